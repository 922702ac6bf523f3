"""Measures a run by means of its own, whoever responds to the pressure."""
