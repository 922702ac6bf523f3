"""Tests of the page for the web in a real browser."""
