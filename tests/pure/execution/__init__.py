"""Pure tests of execution."""
