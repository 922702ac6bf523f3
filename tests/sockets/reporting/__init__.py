"""Tests of reporting over real sockets."""
