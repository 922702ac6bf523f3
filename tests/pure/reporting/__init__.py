"""Pure tests of reporting."""
