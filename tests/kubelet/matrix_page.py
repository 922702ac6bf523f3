"""The table and the picture of the matrix, from its files.

A cell of the table: runs with DiskPressure of all runs; the median first byte after the own mark; the median of the
lowest point, above the kubelet's mark; how many images were left.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.chart import chart
from tests.bench.measure import Row, figure
from tests.kubelet.duel import MIB, Responder
from tests.repository import ROOT

MEASURED = ROOT / "tests" / "bench" / "measured" / "matrix"
PICTURE = MEASURED.with_suffix(".svg")
PAGE = ROOT / "tests" / "README.md"
HEAD = ("Kubelet", "Runtime", "Filesystem", "MiB/s", *Responder)
ABSENT = "-"


@dataclass(frozen=True)
class Recorded:
    """One run, as its file says."""

    head: dict[str, Any]
    samples: list[tuple[float, int, int]]
    events: list[dict[str, Any]]
    summary: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> Recorded:
        """A whole file. ValueError names one that is not."""
        try:
            head, *lines = map(json.loads, file.read_text().splitlines())
            summary = lines[-1]["summary"]
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: from a run that was interrupted: it ends without a summary") from error
        samples = [tuple(line) for line in lines if isinstance(line, list)]
        events = [line for line in lines[:-1] if isinstance(line, dict)]
        return cls(head, samples, events, summary)

    @property
    def node(self) -> tuple[str, str, str, int]:
        """What was filled, and how fast. Of the runtime's version without what a builder has added to it."""
        runtime = re.sub(r"[~+].*", "", self.head["runtime"])
        return self.head["kubelet"], runtime, self.head["filesystem"], self.head["rate_mib"]


def read_all(directory: Path) -> list[Recorded]:
    """Every run of a directory."""
    return [Recorded.read(file) for file in sorted(directory.glob("*.jsonl"))]


def nodes(runs: Sequence[Recorded]) -> list[tuple[str, str, str, int]]:
    """What was filled, in the order of the table."""
    return sorted({run.node for run in runs}, key=lambda node: (*map(_by_number, node[:2]), *node[2:]))


def table(runs: Sequence[Recorded]) -> str:
    """The table, in Markdown. What is as in the row above is left out."""
    lines = [_line(HEAD), "|" + "---|" * len(HEAD)]
    above: tuple[object, ...] = (None,) * 4
    for node in nodes(runs):
        same = [node[: place + 1] == above[: place + 1] for place in range(3)]
        names = ["" if is_same else name for is_same, name in zip((*same, False), node, strict=True)]
        cells = [_cell([run for run in runs if run.node == node and run.head["responder"] == who]) for who in Responder]
        lines.append(_line((*names, *cells)))
        above = node
    return "\n".join(lines) + "\n"


def picture(runs: Sequence[Recorded]) -> str:
    """The first bytes, as a chart."""
    rows = []
    for node in nodes(runs):
        for who in Responder:
            found = [run for run in runs if run.node == node and run.head["responder"] == who]
            kubelet, runtime, filesystem, rate = node
            what = f"kubelet {kubelet}, {runtime}, {filesystem}, {rate} MiB/s: {who}"
            rows.append(Row(what, "ms", [value * 1000 for value in _all(found, "first_freed_seconds")]))
    processors, kernel = runs[0].head["machine"]["processors"], runs[0].head["kernel"]
    return chart(rows, f"from the own mark to the first freed byte; {processors} processors, Linux {kernel}")


def write_page(directory: Path) -> None:
    """Puts the table into the tests' page in place of the one that is there, and writes the picture. ValueError if
    there are no files, or the page has no such table."""
    runs = read_all(directory)
    if not runs:
        raise ValueError(f"{directory}: no files of runs (*.jsonl)")
    page, replaced = re.subn(re.escape(_line(HEAD)) + r"\n(\|.*\n)*", lambda _: table(runs), PAGE.read_text(), count=1)
    if not replaced:
        raise ValueError(f"{PAGE}: no table whose head is {_line(HEAD)!r}")
    PAGE.write_text(page)
    PICTURE.write_text(picture(runs))


def _cell(runs: Sequence[Recorded]) -> str:
    """Those of one node and one responder."""
    if not runs:
        return ABSENT
    pressure = sum(run.summary["pressure"] for run in runs)
    first = _all(runs, "first_freed_seconds")
    lowest = [run.summary["lowest_bytes"] - run.summary["mark_bytes"] for run in runs]
    words = [f"{pressure}/{len(runs)}", f"{figure(statistics.median(first))} s" if first else ABSENT]
    words += [f"{statistics.median(lowest) / MIB:+.0f}", f"{statistics.median(_all(runs, 'images_left')):g}"]
    evicted = sum(len(run.summary["evicted"]) for run in runs)
    return ", ".join(words) + (f", {evicted} evicted" if evicted else "")


def _all(runs: Sequence[Recorded], name: str) -> list[float]:
    """The figures of this name that there are."""
    return [run.summary[name] for run in runs if run.summary[name] is not None]


def _by_number(name: str) -> list[tuple[str, int]]:
    """Sorts 1.10 behind 1.9."""
    return [(words, int(number or 0)) for words, number in re.findall(r"(\D*)(\d*)", name)]


def _line(cells: Iterator[object] | Sequence[object]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in map(str, cells))
