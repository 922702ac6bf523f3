"""Tests of pod logs over real sockets."""
