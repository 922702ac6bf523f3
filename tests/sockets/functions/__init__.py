"""The functions of the reclaim table, against a runtime."""
