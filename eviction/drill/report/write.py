"""Writes the files of a report into a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from eviction.drill.report.document import report_of
from eviction.drill.report.html import page
from eviction.drill.report.junit import junit_xml
from eviction.drill.report.svg import picture


def write_reports(document: Mapping[str, Any], directory: str) -> list[str]:
    """Writes the page, the JSON document, JUnit XML and the picture. Returns their paths in this order. Raises
    OSError."""
    report = report_of(document, "the report")
    stem = f"drill-{report.scenario}" if report.response == "reclaimd" else f"drill-{report.scenario}-observed"
    texts = {
        f"{stem}.html": page(report),
        f"{stem}.json": json.dumps(document, indent=2) + "\n",
        f"{stem}.xml": junit_xml(report),
        f"{stem}.svg": picture(report),
    }
    return [write_text(os.path.join(directory, name), text) for name, text in texts.items()]


def write_text(path: str, text: str) -> str:
    """Writes one file, and makes its directory if it is missing. Returns the path. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path
