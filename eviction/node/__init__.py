"""One node with everything that observes it and reclaims on it, and one pass over a row."""
