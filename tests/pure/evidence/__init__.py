"""Pure tests of pods."""
