"""Tests of images over real sockets."""
