"""Tests of the drill's node."""
