"""Tests of the embedded runtime over a real socket."""
