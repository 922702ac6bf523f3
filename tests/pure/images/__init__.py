"""Pure tests of images."""
