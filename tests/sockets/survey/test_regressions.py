"""Bugs found in what is logged of a pass: each has the test that found it."""

from __future__ import annotations

import json

import pytest

from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.small_node import EVERYTHING, SmallNode, relieve

pytestmark = pytest.mark.regression


@pytest.mark.parametrize("how", [Distortion.HUGE_NAMES, Distortion.CONTROL_NAMES], ids=str)
def test_a_name_of_one_mebibyte_makes_no_line_of_megabytes(
    small_node: SmallNode, how: Distortion
) -> None:
    """The line of a pass had 12 MiB: journald cuts at 48 KiB, and half an object is no JSON."""
    small_node.exited(small_node.run_pod("crashed"))
    small_node.gone_pod("gone")
    small_node.failpoints["ListContainers"] = Distort(how)
    small_node.failpoints["ListImages"] = Distort(how)
    line = json.dumps(to_json(pass_json(relieve(small_node.node(), EVERYTHING))))
    assert len(line) < 48 << 10
