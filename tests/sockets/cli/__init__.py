"""Tests of cli over real sockets."""
