"""The report of a run: JSON, a page, a picture, JUnit XML, a comparison."""
