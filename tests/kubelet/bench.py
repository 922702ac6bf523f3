"""The duel as a table: the kubelet alone against the kubelet with reclaimd beside it, and a storm of pods.

`python -m tests.kubelet.bench [RUNS]`: so many runs (default 5) of each rate and each side, in alternating order. Each
run has a new node. Prints every run as it ends, and at last the medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.duel import MIB, DuelRun, duel
from tests.kubelet.programs import versions, what_is_missing

RATES_MIB = (20, 100, 300)
RUNS = 5
COLUMNS = ("MiB/s", "reclaimd", "DiskPressure", "evicted", "first byte, s", "lowest, MiB", "images left", "restarted")


def main(arguments: Sequence[str]) -> int:
    """Runs all of it."""
    if sentence := what_is_missing():
        say(sentence)
        return 1
    runs = int(arguments[0]) if arguments else RUNS
    say(versions())
    found: list[DuelRun] = []
    say(_line(COLUMNS))
    with tempfile.TemporaryDirectory(prefix="duel-") as directory, ControlPlane(Path(directory) / "plane") as plane:
        for number, rate in ((number, rate) for number in range(runs) for rate in RATES_MIB):
            for beside in (False, True) if number % 2 == 0 else (True, False):
                node = Path(directory) / f"run-{len(found)}"
                found.append(duel(node, plane, rate, beside=beside))
                say(_line(_cells(found[-1])))
    say(f"kubelet's mark: {found[0].mark_bytes // MIB} MiB; medians (runs with pressure; pods evicted in all):")
    for rate in RATES_MIB:
        for beside in (False, True):
            say(_line(_summary([run for run in found if (run.rate_mib, run.beside) == (rate, beside)])))
    return 0


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
