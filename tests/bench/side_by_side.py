"""All responders on one node: reclaimd by polling and with inotify, the kubelet's way, a pruner,
everything at once, and the physical floor. One node for the small population, one for the large."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.hook import located_daemon
from tests.bench.measure import Row
from tests.bench.responders import Disk, Everything, KubeletsWay, Pruner, Responder, Spin
from tests.nodes.bench_node import BenchNode, Crossing, populated_node
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon

SEED = 20261121
OURS_SECONDS = 15.0
OTHERS_SECONDS = 45.0
CROSSING = ": crossing to "

WAYS = {"polling": ("--no-watch",), "watching": ()}
AS_THE_UNIT = ("nice", "-n", "-5")  # Nice= of config/systemd/reclaimd.service


def side_by_side(effort: Effort) -> list[Row]:
    """All responders with few objects; reclaimd and everything at once with many."""
    phases = random.Random(SEED)  # noqa: S311 # the same phases in every run
    rows: list[Row] = []
    with populated_node(effort.small) as small:
        cri, disk = small.node.cri, small.disk()

        def others(who: str, rates: Sequence[int], *responders: Responder) -> None:
            rows.extend(_others(small, disk, who, rates, responders))

        others("the floor", effort.rates, *[Spin(cri)] * effort.spins)
        rows += _ours(small, disk, effort, WAYS)
        others("everything at once", effort.rates, *[Everything(cri)] * effort.all_at_once)
        for rate in effort.kubelets:
            others("the kubelet's way", [rate], KubeletsWay(cri, phases.random(), phases.random()))
        # in the middle of its minute
        others("a pruner each minute", effort.pruners, Pruner(cri, effort.pruner_seconds / 2))
    with populated_node(effort.large) as large:
        disk = large.disk()
        rows += _ours(large, disk, effort, {"polling": WAYS["polling"]})
        everything = [Everything(large.node.cri)] * effort.all_at_once
        rows += _others(large, disk, "everything at once", effort.rates, everything)
    return rows


def _others(
    on: BenchNode, disk: Disk, who: str, rates: Sequence[int], responders: Sequence[Responder]
) -> list[Row]:
    rows: list[Row] = []
    for rate in rates:
        crossings = [on.cross(disk, rate, OTHERS_SECONDS, each) for each in responders]
        rows += _rows(on, f"{who}, {rate} MiB/s", crossings)
    return rows


def _ours(on: BenchNode, disk: Disk, effort: Effort, ways: dict[str, tuple[str, ...]]) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        relief = {"imagefs.available": str(on.population.relief_bytes), "nodefs.available": "0"}
        configuration = configure(
            Path(directory),
            on.node,
            evictionHard={"imagefs.available": str(disk.mark)},
            evictionMinimumReclaim=relief,
            controlSocket=f"{directory}/run/control.sock",
        )
        for way, options in ways.items():
            with located_daemon(configuration, *options, before=AS_THE_UNIT) as daemon:
                for rate in effort.rates:
                    crossings = [by_daemon(on, disk, rate, daemon) for _ in range(effort.crossings)]
                    rows += _rows(on, f"reclaimd {way}, {rate} MiB/s", crossings)
    return rows


def by_daemon(on: BenchNode, disk: Disk, rate: int, daemon: Daemon) -> Crossing:
    """One fill, until the daemon has ended its pass."""
    passes = len(daemon.passes)
    return on.cross(disk, rate, OURS_SECONDS, finished=lambda: len(daemon.passes) > passes)


def _rows(on: BenchNode, who: str, crossings: Sequence[Crossing]) -> list[Row]:
    """Up to three rows; a run that timed out has no value, and each row shows
    the number of its values.
    """

    def row(what: str, value: Callable[[Crossing], float | None]) -> Row:
        values = [found for found in map(value, crossings) if found is not None]
        return Row(f"{on.population.name}: {who}{CROSSING}{what}", "ms", values)

    rows = [
        row("the first removal sent", lambda crossing: crossing.sent),
        row("the first byte freed", lambda crossing: crossing.first_byte),
        row("the minimum reclaim", lambda crossing: crossing.relieved),
    ]
    return [row for row in rows if row.values]
