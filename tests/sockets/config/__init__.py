"""Tests of config over real sockets."""
