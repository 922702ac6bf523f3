"""Tests of containerd's own services over their socket."""
