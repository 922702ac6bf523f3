"""Pure tests of containers."""
