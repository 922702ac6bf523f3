"""A stateful model of a node: whatever happens around and during a pass, nothing that must be kept is removed."""
