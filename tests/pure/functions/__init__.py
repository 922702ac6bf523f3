"""The functions of the reclaim table."""
