"""What `reclaimd status` prints about the XFS helper and the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.cli.status import lines

STATUS: dict[str, Any] = {
    "conditions": [],
    "doing": None,
    "layout": None,
    "observations": [],
    "thresholds": [],
    "passes": [],
}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"xfs_helper": {"problem": "no XFS helper answers at /s: \x1b[31m", "calls": {}}}, True),
        ({"xfs_helper": {"problem": None, "calls": {"released": 3}}}, False),
        ({}, False),
    ],
)
def test_why_xfs_gives_nothing_back_is_a_line_of_the_status(answer: dict[str, Any], said: bool) -> None:
    """Escaped; nothing where it works, and nothing from a daemon that does not know the helper."""
    found = [line for line in lines({**STATUS, **answer}) if "XFS" in line]
    assert found == ([r"XFS gives nothing back: no XFS helper answers at /s: \x1b[31m"] if said else [])


def test_what_is_wrong_with_the_configuration_is_a_line_of_the_status() -> None:
    """Escaped; nothing from a daemon that does not say it."""
    found = lines({**STATUS, "warnings": ["no threshold", "the kubelet's defaults: \x1b[31m"]})
    assert [line for line in found if line.startswith("warning: ")] == [
        "warning: no threshold",
        r"warning: the kubelet's defaults: \x1b[31m",
    ]
    assert not [line for line in lines(STATUS) if "warning" in line]
