"""Tests of daemon over real sockets."""
