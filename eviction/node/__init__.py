"""One node, assembled, and one pass over it."""
