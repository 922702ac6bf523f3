"""Pure tests of daemon."""
