"""Tests of what is containerd's own, without a socket."""
