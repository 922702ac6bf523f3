"""Writes the files of a report, and of a comparison, into a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from eviction.drill.report.compare import comparison_page, comparison_picture
from eviction.drill.report.document import Report, report_of
from eviction.drill.report.page import junit_xml, page, picture


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
    return _write(texts, directory)


def write_comparison(first: Report, second: Report, directory: str) -> list[str]:
    """Writes the page and the picture of two runs. Returns their paths. Raises OSError."""
    texts = {"comparison.html": comparison_page(first, second), "comparison.svg": comparison_picture(first, second)}
    return _write(texts, directory)


def _write(texts: Mapping[str, str], directory: str) -> list[str]:
    os.makedirs(directory, exist_ok=True)
    paths = {os.path.join(directory, name): text for name, text in texts.items()}
    for path, text in paths.items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return list(paths)
