"""Tests of node over real sockets."""
