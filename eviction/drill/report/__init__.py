"""The report of a run: JSON, an HTML page, an SVG picture, JUnit XML."""
