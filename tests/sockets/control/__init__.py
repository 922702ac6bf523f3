"""Tests of control over real sockets."""
