"""Pure tests of the page for the web."""
