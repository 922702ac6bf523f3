"""Rotated logs on real files, and on small nodes."""
