"""Pure tests of pod logs."""
