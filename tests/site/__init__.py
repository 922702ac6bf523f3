"""The project as one static page for the web, from what is stored: `python -m
tests.site REPORT DIRECTORY`.

What it is, how to try it and when not to use it are sections of the root page; figures are those of
the stored runs; the report of a drill is the drill's own. The page loads nothing and runs nothing.
"""
