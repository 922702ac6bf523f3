"""The tests of reclaimd; tests/README.md describes the rings."""
