"""Tests of signals over real sockets."""
