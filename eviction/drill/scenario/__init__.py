"""Scenarios: their types, their strict reader, and the built-in library."""
