"""Tests of the XFS helper over its socket."""
