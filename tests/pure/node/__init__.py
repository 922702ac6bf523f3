"""Pure tests of node."""
