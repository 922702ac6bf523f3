"""Tests of doctor over real sockets."""
