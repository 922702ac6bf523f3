"""Nodes go as their stories tell, each in a file of a folder `stories` that has the name of its rule;
its first line says more."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.nodes.small_node import SmallNode
from tests.sockets.stage import Stage

STORIES = sorted(Path(__file__).parent.glob("*/stories/*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=[path.stem for path in STORIES])
def test_a_node_goes_as_its_story_tells(small_node: SmallNode, story: Path) -> None:
    """Whatever is typed and happens, all that is printed."""
    with closing(Stage(small_node, story)) as stage:
        stage.plays()
