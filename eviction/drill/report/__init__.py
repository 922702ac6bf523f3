"""The report of a run: JSON, an HTML page, an SVG picture, JUnit XML, and the comparison of two runs."""
