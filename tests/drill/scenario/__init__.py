"""Tests of the drill's scenario."""
