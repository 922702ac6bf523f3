"""Decides which thresholds are met, which one is acted on, and by which reclaim functions."""
