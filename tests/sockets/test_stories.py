"""Nodes go as their stories tell, each in a file of a folder `stories` that has the name of its rule;
its first line says more."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.small_node import SmallNode
from tests.sockets.stage import Stage


def stories() -> list[Any]:
    """All of them; with `(regression)` at the end of its first line one tells of a bug."""
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[pytest.mark.regression] * ("(regression)\n" in path.read_text()),
        )
        for path in sorted(Path(__file__).parent.glob("*/stories/*.txt"))
    ]


@pytest.mark.parametrize("story", stories())
def test_a_node_goes_as_its_story_tells(small_node: SmallNode, story: Path) -> None:
    """Whatever is typed and happens, all that is printed."""
    with closing(Stage(small_node, story)) as stage:
        stage.plays()
