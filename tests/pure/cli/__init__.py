"""Pure tests of cli."""
