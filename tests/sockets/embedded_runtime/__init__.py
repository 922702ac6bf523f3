"""Tests of embedded runtime over real sockets."""
