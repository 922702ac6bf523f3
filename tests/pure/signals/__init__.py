"""Pure tests of signals."""
