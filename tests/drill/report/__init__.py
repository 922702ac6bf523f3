"""Tests of the drill's report."""
