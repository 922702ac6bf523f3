"""What `reclaimd status` prints about the XFS helper."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.cli.status import lines


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
    status: dict[str, Any] = {
        "conditions": [],
        "doing": None,
        "layout": None,
        "observations": [],
        "thresholds": [],
        "passes": [],
    }
    found = [line for line in lines({**status, **answer}) if "XFS" in line]
    assert found == ([r"XFS gives nothing back: no XFS helper answers at /s: \x1b[31m"] if said else [])
