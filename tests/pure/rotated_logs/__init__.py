"""Rotated logs: the plan."""
