"""What a drill leaves behind: one JSON document, and the lines that people read."""

from __future__ import annotations

import json
import os
from typing import Any

from eviction.drill.run import DrillResult, lowest
from eviction.explain import table
from eviction.record import pass_json
from signals.quantity import format_duration


def result_json(result: DrillResult) -> dict[str, Any]:
    """The whole run: expectations, times, passes, and the timeline thinned to at most 2 000 points."""
    step = max(len(result.samples) // 2000, 1)
    return {
        "scenario": result.scenario.name,
        "why": result.scenario.why,
        "held": result.held,
        "simulated": result.simulated,
        "filesystem": result.filesystem,
        "crossed_seconds": result.crossed_seconds,
        "first_removal_seconds": result.first_removal_seconds,
        "relieved_seconds": result.relieved_seconds,
        "from_crossing_to_first_removal_seconds": result.to_first_removal_seconds,
        "from_crossing_to_relief_seconds": result.to_relief_seconds,
        "checks": [
            {"name": check.name, "expected": check.expected, "seen": check.seen, "held": check.held}
            for check in result.checks
        ],
        "history": result.history,
        "passes": [pass_json(record) for record in result.passes],
        "timeline": [
            {
                "seconds": round(sample.seconds, 4),
                "available_bytes": sample.available_bytes,
                "inodes_free": sample.inodes_free,
            }
            for sample in result.samples[::step]
        ],
    }


def write_report(result: DrillResult, directory: str) -> str:
    """Writes the JSON document into `directory`; the path. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"drill-{result.scenario.name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result_json(result), file, indent=2)
        file.write("\n")
    return path


def verdict_lines(result: DrillResult) -> list[str]:
    """Expectations with what was seen, the times, and the verdict."""
    rows = [["", "WHAT", "EXPECTED", "SEEN"]]
    rows += [["ok" if check.held else "NOT", check.name, check.expected, check.seen] for check in result.checks]
    lines = table(rows)
    if result.to_first_removal_seconds is not None and result.to_relief_seconds is not None:
        lines += [
            "",
            f"from crossing the mark to the first removal: {format_duration(result.to_first_removal_seconds)}",
            f"from crossing the mark to relief:            {format_duration(result.to_relief_seconds)}",
            f"lowest point:                                {lowest(result)}",
        ]
    passed = "everything held" if result.held else "NOT everything held"
    return [*lines, "", f"{result.scenario.name}: {passed}{' (simulated filesystem)' * result.simulated}"]
