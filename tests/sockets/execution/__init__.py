"""Tests of execution over real sockets."""
