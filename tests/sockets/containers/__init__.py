"""Tests of containers over real sockets."""
