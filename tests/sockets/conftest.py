"""Fixtures of this ring: a bare embedded runtime, and small nodes on real filesystems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .one_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A bare embedded runtime behind its socket."""
    made = Node(tmp_path)
    yield made
    made.close()
