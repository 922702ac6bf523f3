"""Passes against a runtime."""
