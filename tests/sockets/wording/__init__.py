"""What is said, of a node."""
