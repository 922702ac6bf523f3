"""The duel as a table: the kubelet alone against the kubelet with reclaimd beside it.

`python -m tests.kubelet.bench table`: each rate and each side, in alternating order, five times. Each run has a new
node. Prints every run as it ends, and at last the medians.

`python -m tests.kubelet.bench picture` draws one run of each side: `drill --observe` measures both by the marks of the
kubelet, and `drill compare` lays them over each other.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from eviction.drill.runtime.private_mounts import enter_private_mounts
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.duel import MIB, DuelRun, Side, duel
from tests.kubelet.node import KubeletNode
from tests.kubelet.programs import versions, what_is_missing
from tests.observing import Observing
from tests.reclaimd_process import reclaimd, write_configuration

RATES_MIB = (20, 100, 300)
RUNS = 5
PICTURE_RATE_MIB = 100
PICTURE = "config/pictures/kubelet.svg"
COLUMNS = ("MiB/s", "beside", "DiskPressure", "evicted", "first byte, s", "lowest, MiB", "images left", "restarted")


def main(arguments: Sequence[str]) -> int:
    """Runs all of it, or draws the picture."""
    asked = _parser().parse_args(arguments)
    if sentence := what_is_missing():
        say(sentence)
        return 1
    enter_private_mounts()  # so that no process that makes a namespace of its own meanwhile holds a node's filesystem
    with tempfile.TemporaryDirectory(prefix="duel-") as directory, ControlPlane(Path(directory) / "plane") as plane:
        if asked.what == "picture":
            say(versions())
            return picture(Path(directory), plane, asked.svg)
        say(f"{versions()}, {asked.filesystem}")
        sides = asked.side or list(Side)
        return table(Path(directory), plane, asked.rate or RATES_MIB, sides, asked.runs, asked.filesystem)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kubelet.bench")
    parser.add_argument("what", choices=("table", "picture"))
    parser.add_argument("--rate", type=int, action="append", help="MiB a second; may be repeated (20, 100, 300)")
    parser.add_argument("--side", type=Side, choices=list(Side), action="append", help="may be repeated (all)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each rate and each side ({RUNS})")
    parser.add_argument("--filesystem", choices=("ext4", "xfs", "btrfs"), default="ext4", help="of the node (ext4)")
    parser.add_argument("--svg", type=Path, default=Path(PICTURE), help="where the picture goes")
    return parser


def table(
    directory: Path, plane: ControlPlane, rates: Sequence[int], sides: Sequence[Side], runs: int, filesystem: str
) -> int:
    """All rates, all sides, so many times."""
    found: list[DuelRun] = []
    say(_line(COLUMNS))
    for number, rate in ((number, rate) for number in range(runs) for rate in rates):
        for side in sides if number % 2 == 0 else reversed(sides):
            found.append(duel(directory / f"run-{len(found)}", plane, rate, side=side, fstype=filesystem))
            say(_line(_cells(found[-1])))
    say(f"kubelet's mark: {found[0].mark_bytes // MIB} MiB; medians (runs with pressure; pods evicted in all):")
    for rate in rates:
        for side in sides:
            say(_line(_summary([run for run in found if (run.rate_mib, run.side) == (rate, side)])))
    return 0


def picture(directory: Path, plane: ControlPlane, svg: Path) -> int:
    """One run of each side at `PICTURE_RATE_MIB`, as one picture."""
    reports = []
    for name, side in (("kubelet-alone", Side.KUBELET), ("kubelet-with-reclaimd", Side.RECLAIMD)):
        reports.append(directory / f"drill-{name}-observed.json")
        observe = partial(_observed, directory=directory, name=name)
        say(_line(_cells(duel(directory / name, plane, PICTURE_RATE_MIB, side=side, observe=observe))))
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


def _beside(side: Side) -> str:
    return "nobody" if side == Side.KUBELET else side


def _cells(run: DuelRun) -> tuple[object, ...]:
    return (
        run.rate_mib,
        _beside(run.side),
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
        _beside(runs[0].side),
        f"{sum(run.pressure for run in runs)} of {len(runs)}",
        sum(len(run.evicted) for run in runs),
        f"{statistics.median(first):.2f}" if first else "nothing",
        statistics.median(run.lowest_bytes // MIB for run in runs),
        statistics.median(run.images_left for run in runs),
        sum(len(run.restarted) for run in runs),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
