"""Tests of the drill's measurement."""
