"""What `reclaimd status` prints about the configuration."""

from __future__ import annotations

from typing import Any

from eviction.cli.status import lines

STATUS: dict[str, Any] = {
    "conditions": [],
    "doing": None,
    "layout": None,
    "observations": [],
    "thresholds": [],
    "passes": [],
}


def test_what_is_wrong_with_the_configuration_is_a_line_of_the_status() -> None:
    """Escaped; nothing from a daemon that does not say it."""
    found = lines({**STATUS, "warnings": ["no threshold", "the kubelet's defaults: \x1b[31m"]})
    assert [line for line in found if line.startswith("warning: ")] == [
        "warning: no threshold",
        r"warning: the kubelet's defaults: \x1b[31m",
    ]
    assert not [line for line in lines(STATUS) if "warning" in line]
