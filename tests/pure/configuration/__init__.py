"""Pure tests of configuration."""
