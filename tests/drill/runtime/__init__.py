"""Tests of the drill's runtime."""
