"""The table of the matrix, and the root page's picture and sentence, from its files: `python -m
tests.lab.matrix_page` writes them.

A cell of the table: runs with DiskPressure of all runs; the median first byte after the own mark;
the median of the lowest point, above the kubelet's mark; how many images were left.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from eviction.drill.report.page import (
    GAP,
    LEFT,
    LINE,
    PLOT,
    RIM,
    WIDTH,
    Event,
    Lane,
    MarkLine,
    chart_svg,
    lanes_svg,
)
from signals.quantity import counted, format_bytes, format_duration
from tests.kubelet.node import MIB
from tests.lab.bench.measure import figure, markdown_line, put
from tests.lab.duel import SAMPLE_SECONDS, Responder
from tests.picture import sheet
from tests.repository import ROOT

MEASURED = ROOT / "tests" / "lab" / "bench" / "measured" / "matrix"
PAGE = ROOT / "tests" / "README.md"
ROOT_PAGE = ROOT / "README.md"
PICTURE = ROOT / "config" / "pictures" / "kubelet.svg"
DUEL = ("1.36.2", "containerd 2.3.4", "ext4", 100)
HEAD = ("Kubelet", "Runtime", "Filesystem", "MiB/s", *Responder)
ABSENT = "-"
Node = tuple[str, str, str, int]
"""What was filled, and how fast: kubelet, runtime, filesystem, MiB/s."""
ALL_RUNS = "all runs: DiskPressure, and above it each pod that was evicted"
SQUARE = 12  # from one pod that was evicted to the next


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
            raise ValueError(
                f"{file}: from a run that was interrupted: it ends without a summary"
            ) from error
        samples = [tuple(line) for line in lines if isinstance(line, list)]
        events = [line for line in lines[:-1] if isinstance(line, dict)]
        return cls(head, samples, events, summary)

    @property
    def ended(self) -> float:
        """When something was last seen, in seconds since the fill began."""
        return float(max(self.samples[-1][0], *(event["at"] for event in self.events)))

    def line(self, ended: float) -> list[tuple[float, float]]:
        """What was available.

        A reading that is as the last one is not in the file, so each holds until the next.
        """
        points: list[tuple[float, float]] = []
        for at, available, _ in self.samples:
            if points and at - points[-1][0] > 2 * SAMPLE_SECONDS:
                points.append((at - SAMPLE_SECONDS, points[-1][1]))
            points.append((at, available))
        return [*points, (ended, points[-1][1])]

    def said(self, whose: str, what: str) -> list[tuple[float, str]]:
        """When somebody said something that begins so, and the whole."""
        found = [
            (each["at"], each["what"].strip('"')) for each in self.events if each["whose"] == whose
        ]
        return [(at, said) for at, said in found if re.match(what, said)]

    @property
    def pressure(self) -> list[Event]:
        """When the node had DiskPressure."""
        changes = [*self.said("node", "(no )?DiskPressure"), (self.ended, "")]
        return [
            Event("DiskPressure", "mark", began, ended)
            for (began, said), (ended, _) in pairwise(changes)
            if said == "DiskPressure"
        ]

    def lanes(self, side: str) -> list[Lane]:
        """DiskPressure, and removals (of the kubelet each image, of reclaimd each pass)."""
        gone = [*self.said("kubelet", "Removing image"), *self.said("reclaimd", ".*removed")]
        images = str(self.summary["images_before"] - self.summary["images_left"])
        if self.head["responder"] == Responder.RECLAIMD:
            images += f", in {len(gone)} pass{'es' * (len(gone) > 1)}"
        return [
            Lane(f"{side}: DiskPressure", self.pressure),
            Lane(
                f"{side}: images removed", [Event(said, "image", at) for at, said in gone], images
            ),
        ]

    @property
    def node(self) -> Node:
        """The version of the runtime without what a builder has added to it."""
        runtime = re.sub(r"[~+].*", "", self.head["runtime"])
        return self.head["kubelet"], runtime, self.head["filesystem"], self.head["rate_mib"]


def read_all(directory: Path) -> list[Recorded]:
    """Every run of a directory."""
    return [Recorded.read(file) for file in sorted(directory.glob("*.jsonl"))]


def nodes(runs: Sequence[Recorded]) -> list[Node]:
    """In the order of the table."""
    return sorted({run.node for run in runs})


def table(runs: Sequence[Recorded]) -> str:
    """The table, in Markdown. What is as in the row above is left out."""
    lines = [markdown_line(HEAD), "|" + "---|" * len(HEAD)]
    above: tuple[object, ...] = ()
    for node in nodes(runs):
        *names, rate = node
        shown = [
            "" if node[: place + 1] == above[: place + 1] else name
            for place, name in enumerate(names)
        ]
        cells = [cell(_of(runs, who, node)) for who in Responder]
        lines.append(markdown_line((*shown, rate, *cells)))
        above = node
    return "\n".join(lines) + "\n"


def cell(runs: Sequence[Recorded]) -> str:
    """What became of the runs of one node and one responder, if there are any."""
    if not runs:
        return ABSENT
    pressure = sum(run.summary["pressure"] for run in runs)
    first = _first_freed(runs)
    lowest = median(run.summary["lowest_bytes"] - run.summary["mark_bytes"] for run in runs)
    left = median(run.summary["images_left"] for run in runs)
    evicted = sum(len(run.summary["evicted"]) for run in runs)
    words = [
        f"{pressure}/{len(runs)}",
        ABSENT if first is None else f"{figure(first)} s",
        f"{lowest / MIB:+.0f}",
        f"{left:g}",
    ]
    return ", ".join([*words, *([f"{evicted} evicted"] if evicted else ())])


def _first_freed(runs: Sequence[Recorded]) -> float | None:
    """Seconds, the median of the runs in which anything was freed, and the filesystem tells when."""
    seconds = (run.summary["first_freed_seconds"] for run in runs)
    found = [each for each in seconds if each is not None]
    return median(found) if found else None


def sentence(runs: Sequence[Recorded]) -> str:
    """The root page's item, in Markdown: all runs of the kubelet alone, and with reclaimd."""
    kubelets, runtimes, filesystems, rates = (
        list(dict.fromkeys(names)) for names in zip(*nodes(runs), strict=True)
    )
    assert len(rates) == 1
    each = counted(len(_of(runs, Responder.NOBODY)), "run")
    text = (
        f"* A kubelet {_and(kubelets)} on {_and(runtimes)}, a file that grows by {rates[0]} MiB/s"
        f" on {_and(dict.fromkeys(filesystems))} ([the matrix](tests/README.md#beside-a-real-kubelet)"
        f", {runs[0].head['date'][:10]}; first byte and images left: medians of {each}): alone,"
        f" {_summed(runs, Responder.NOBODY)}; with reclaimd,"
        f" {_summed(runs, Responder.RECLAIMD, ' its own, earlier mark')}."
    )
    lines = textwrap.wrap(
        text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines) + "\n"


def _summed(runs: Sequence[Recorded], who: Responder, mark: str = " its mark") -> str:
    """What became of all runs of one responder. Of medians, the least and the greatest."""
    cells = [of for node in nodes(runs) if (of := _of(runs, who, node))]
    first = [seconds for of in cells if (seconds := _first_freed(of)) is not None]
    left = [median(run.summary["images_left"] for run in of) for of in cells]
    before = {run.summary["images_before"] for run in runs}
    mine = [run.summary for of in cells for run in of]
    return (
        f"DiskPressure in {sum(each['pressure'] for each in mine)} of {len(mine)} runs, first byte"
        f" {figure(min(first))} to {figure(max(first))} s after{mark},"
        f" {min(left):g} to {max(left):g} of {_and(before)} images left,"
        f" {counted(sum(len(each['evicted']) for each in mine), 'pod')} evicted"
    )


def _and(names: Iterable[object]) -> str:
    *most, last = map(str, names)
    return f"{', '.join(most)} and {last}" if most else last


def picture(runs: Sequence[Recorded]) -> str:
    """The root page's picture: of the node `DUEL`, a run of the kubelet alone and one with reclaimd
    beside it, of each side that whose first byte is the median; and the pods that were evicted in
    all runs."""
    kubelet, runtime, filesystem, rate = DUEL
    alone, beside = (_median_run(runs, who) for who in (Responder.NOBODY, Responder.RECLAIMD))
    sides = {"A": alone, "B": beside}
    node = f"Kubelet {kubelet}, {runtime}, {filesystem}, {alone.head['date'][:10]}"
    ended = max(run.ended for run in sides.values())
    lines = [
        ("a", f"A, the kubelet alone: {_told(alone)}."),
        ("b", f"B, with reclaimd beside it: {_told(beside)}."),
        ("soft", f"{node}; one run of {len(_of(runs, Responder.NOBODY))} each."),
    ]
    threshold = beside.head["thresholds"]["imagefs.available"]
    ours = f"reclaimd's mark {threshold} + {beside.head['margin']}"
    marks = [
        MarkLine(f"kubelet's mark {threshold}", alone.summary["mark_bytes"]),
        MarkLine(ours, beside.summary["own_mark_bytes"], "soft-mark"),
    ]
    room = f"bytes available on the disk (of {format_bytes(alone.summary['capacity_bytes'])})"
    lanes = [lane for side, run in sides.items() for lane in run.lanes(side)]
    available = {"a": alone.line(ended), "b": beside.line(ended)}
    drawings = [
        (room, chart_svg(room, ended, available, marks=marks)),
        ("what happened", lanes_svg("what happened", ended, lanes)),
        (ALL_RUNS, _all_runs(runs)),
    ]
    title = f"A disk fills at {rate} MiB/s: the kubelet alone, and with reclaimd"
    return sheet(title, lines, drawings)


def _all_runs(runs: Sequence[Recorded]) -> str:
    """A column for each run: whether the node had DiskPressure, and the pods that were evicted."""
    parts, floor, there = [], 0, nodes(runs)

    def text(x: float, y: float, words: str, style: str = "soft") -> None:
        parts.append(f'<text class="{style}" x="{x:.1f}" y="{y:g}">{words}</text>')

    for side, who in (("A", Responder.NOBODY), ("B", Responder.RECLAIMD)):
        mine = [run for node in there for run in _of(runs, who, node)]
        evicted = [run.summary["evicted"] for run in mine]
        floor += SQUARE * (2 + max(map(len, evicted)))
        text(LEFT - GAP, floor, side, "soft end")
        text(RIM + GAP, floor, f"{counted(sum(map(len, evicted)), 'pod')} evicted")
        size = f'width="{PLOT / len(mine) - 4:.1f}" height="{SQUARE - 2}"'
        for place, run in enumerate(mine):
            x = LEFT + PLOT * place / len(mine)
            had = "mark" if run.summary["pressure"] else "grid"
            for row, style in enumerate([had, *("container" for _ in evicted[place])]):
                y = floor - 9 - SQUARE * row
                parts.append(f'<rect class="{style}" x="{x:.1f}" y="{y}" {size}/>')
    runtime = ""
    for place, (_, above, filesystem, _) in enumerate(there):
        x = LEFT + PLOT * place / len(there)
        text(x, floor + LINE, filesystem)
        if above != runtime:
            text(x, floor + 2 * LINE, above)
        runtime = above
    size = f"{WIDTH:g} {floor + 3 * LINE:g}"
    head = f'<svg viewBox="0 0 {size}" role="img" aria-label="{ALL_RUNS}">'
    return "\n".join([head, *parts, "</svg>"])


def _told(run: Recorded) -> str:
    """What became of it."""
    told = run.summary
    first, before = told["first_freed_seconds"], told["images_before"]
    pressure = sum((event.ended or 0.0) - event.began for event in run.pressure)
    words = (
        f"first byte freed {format_duration(first)} after its mark is crossed",
        f"{format_bytes(told['lowest_bytes'])} left at the lowest point",
        f"DiskPressure for {pressure:.0f} s" if told["pressure"] else "no DiskPressure",
        f"{before - told['images_left']} of {before} images removed",
        f"{counted(len(told['evicted']), 'pod') if told['evicted'] else 'no pod'} evicted",
    )
    return ", ".join(words)


def _of(runs: Sequence[Recorded], who: Responder, node: Node = DUEL) -> list[Recorded]:
    """The runs of one node and one responder."""
    return [run for run in runs if run.node == node and run.head["responder"] == who]


def _median_run(runs: Sequence[Recorded], who: Responder) -> Recorded:
    """The run of one side whose first byte is the median."""
    mine = sorted(_of(runs, who), key=lambda run: run.summary["first_freed_seconds"])
    return mine[len(mine) // 2]


def write_page() -> None:
    """Puts the table into the tests' page in place of the one that is there, and writes the
    picture. ValueError if a page has nothing like it."""
    runs = read_all(MEASURED)
    put(PAGE, re.escape(markdown_line(HEAD)) + r"\n(\|.*\n)*", table(runs))
    put(ROOT_PAGE, r"\* A kubelet (.+\n)+?(?=\*)", sentence(runs))
    PICTURE.write_text(picture(runs))


if __name__ == "__main__":
    write_page()
