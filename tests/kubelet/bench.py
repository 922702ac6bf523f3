"""The duel as a table: the kubelet alone against the kubelet with reclaimd beside it, and a storm of pods.

`python -m tests.kubelet.bench [RUNS]`: so many runs (default 5) of each rate and each side, in alternating order. Each
run has a new node. Prints every run as it ends, and at last the medians.

`python -m tests.kubelet.bench picture [SVG]` draws one run of each side: `drill --observe` measures both by the marks
of the kubelet, and `drill compare` lays them over each other.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.duel import MIB, DuelRun, duel
from tests.kubelet.node import KubeletNode
from tests.kubelet.programs import versions, what_is_missing
from tests.observing import Observing
from tests.reclaimd_process import reclaimd, write_configuration

RATES_MIB = (20, 100, 300)
RUNS = 5
PICTURE_RATE_MIB = 100
PICTURE = "config/pictures/kubelet.svg"
COLUMNS = ("MiB/s", "reclaimd", "DiskPressure", "evicted", "first byte, s", "lowest, MiB", "images left", "restarted")


def main(arguments: Sequence[str]) -> int:
    """Runs all of it, or draws the picture."""
    if sentence := what_is_missing():
        say(sentence)
        return 1
    say(versions())
    say(_line(COLUMNS))
    with tempfile.TemporaryDirectory(prefix="duel-") as directory, ControlPlane(Path(directory) / "plane") as plane:
        if arguments[:1] == ["picture"]:
            return picture(Path(directory), plane, Path(arguments[1] if arguments[1:] else PICTURE))
        return table(Path(directory), plane, int(arguments[0]) if arguments else RUNS)


def table(directory: Path, plane: ControlPlane, runs: int) -> int:
    """All rates, both sides, so many times."""
    found: list[DuelRun] = []
    for number, rate in ((number, rate) for number in range(runs) for rate in RATES_MIB):
        for beside in (False, True) if number % 2 == 0 else (True, False):
            found.append(duel(directory / f"run-{len(found)}", plane, rate, beside=beside))
            say(_line(_cells(found[-1])))
    say(f"kubelet's mark: {found[0].mark_bytes // MIB} MiB; medians (runs with pressure; pods evicted in all):")
    for rate in RATES_MIB:
        for beside in (False, True):
            say(_line(_summary([run for run in found if (run.rate_mib, run.beside) == (rate, beside)])))
    return 0


def picture(directory: Path, plane: ControlPlane, svg: Path) -> int:
    """One run of each side at `PICTURE_RATE_MIB`, as one picture."""
    reports = []
    for name, beside in (("kubelet-alone", False), ("kubelet-with-reclaimd", True)):
        reports.append(directory / f"drill-{name}-observed.json")
        observe = partial(_observed, directory=directory, name=name)
        say(_line(_cells(duel(directory / name, plane, PICTURE_RATE_MIB, beside=beside, observe=observe))))
    compared = reclaimd("drill", "compare", *map(str, reports), "--report", str(directory))
    say(compared.stdout + compared.stderr)
    shutil.copy(directory / "comparison.svg", svg)
    return compared.returncode


@contextmanager
def _observed(node: KubeletNode, *, directory: Path, name: str) -> Iterator[None]:
    """The node is observed by the kubelet's own marks."""
    configuration = write_configuration(directory / f"{name}.yaml", **node.reclaimd_fields())
    observing = Observing(directory, "--config", str(configuration), "--quiet", "10m", name=name)
    try:
        yield
    finally:
        observing.stopped()


def say(line: str) -> None:
    """A line of the table."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _cells(run: DuelRun) -> tuple[object, ...]:
    return (
        run.rate_mib,
        "beside" if run.beside else "none",
        "yes" if run.pressure else "no",
        ", ".join(run.evicted) or "none",
        "nothing" if run.first_freed_seconds is None else f"{run.first_freed_seconds:.2f}",
        run.lowest_bytes // MIB,
        run.images_left,
        ", ".join(run.restarted) or "none",
    )


def _summary(runs: Sequence[DuelRun]) -> tuple[object, ...]:
    first = [run.first_freed_seconds for run in runs if run.first_freed_seconds is not None]
    return (
        runs[0].rate_mib,
        "beside" if runs[0].beside else "none",
        f"{sum(run.pressure for run in runs)} of {len(runs)}",
        sum(len(run.evicted) for run in runs),
        f"{statistics.median(first):.2f}" if first else "nothing",
        statistics.median(run.lowest_bytes // MIB for run in runs),
        statistics.median(run.images_left for run in runs),
        sum(len(run.restarted) for run in runs),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
