"""Pure tests of doctor."""
