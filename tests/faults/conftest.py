"""Fixtures of this ring: the small nodes of the sockets ring."""

from __future__ import annotations

from tests.sockets.conftest import make_small_node, small_node

__all__ = ["make_small_node", "small_node"]
