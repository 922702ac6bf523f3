"""Pure tests of control."""
