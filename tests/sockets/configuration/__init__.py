"""Tests of configuration over real sockets."""
