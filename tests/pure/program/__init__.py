"""Programs as reclaim functions."""
