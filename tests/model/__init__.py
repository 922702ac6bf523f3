"""A stateful model of a node: whatever happens around a pass, and in the middle of it, nothing is harmed."""
