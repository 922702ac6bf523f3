"""Reclaim functions of other distributions. What an author of one needs is importable from here; how to write one is
in `config/examples/plugin/README.md`."""

from reclaim.plugins.protocol import ENTRY_POINT_GROUP, MOST_OBJECTS, Found, ReclaimPlugin

__all__ = ["ENTRY_POINT_GROUP", "MOST_OBJECTS", "Found", "ReclaimPlugin"]
