"""Tests of cri over real sockets."""
