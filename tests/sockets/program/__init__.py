"""Programs as reclaim functions, really run."""
