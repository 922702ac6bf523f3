"""Tests of the drill's pressure."""
