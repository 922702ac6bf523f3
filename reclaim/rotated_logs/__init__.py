"""Rotated logs of containers, also of those that run: all but the newest of each may go."""
