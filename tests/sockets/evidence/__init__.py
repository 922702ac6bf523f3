"""Tests of pods over real sockets."""
