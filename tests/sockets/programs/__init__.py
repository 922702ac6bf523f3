"""Tests of programs of the user's own: small real programs, really started."""
