"""Compares what was expected with what was measured."""
