"""All responders on one node: reclaimd by polling and with inotify, the kubelet's way, a pruner,
everything at once, and the physical floor. One node for the small population, one for the large."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.measure import Row
from tests.bench.responders import Disk, Everything, KubeletsWay, Pruner, Responder, Spin
from tests.nodes.bench_node import BenchNode, Crossing, populated_node
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd

SEED = 20261121
OURS_SECONDS = 15.0
KUBELET_SECONDS = 45.0

WAYS = {"polling": ("--no-watch",), "watching": ()}
AS_THE_UNIT = ("nice", "-n", "-5")  # Nice= of config/systemd/reclaimd.service


def side_by_side(effort: Effort) -> list[Row]:
    """All responders with few objects; reclaimd and everything at once with many."""
    rows: list[Row] = []
    with populated_node(effort.small) as small:
        disk = small.disk()
        for rate in effort.rates:
            spin = Spin(small.node.cri)
            rows += _rows(
                small, f"the floor, {rate} MiB/s", _others(small, disk, rate, [spin] * effort.spins)
            )
            seconds = [second * 1000 for second in spin.removal_seconds]
            rows.append(
                Row(f"{small.population.name}: RemoveImage alone, {rate} MiB/s", "ms", seconds)
            )
        rows += _ours(small, disk, effort, WAYS)
        for rate in effort.rates:
            everything: list[Responder] = [Everything(small.node.cri)] * effort.all_at_once
            rows += _rows(
                small, f"everything at once, {rate} MiB/s", _others(small, disk, rate, everything)
            )
        phases = random.Random(SEED)  # noqa: S311 # the same phases in every run
        for rate in effort.kubelets:
            kubelet = KubeletsWay(small.node.cri, phases.random(), phases.random())
            rows += _rows(
                small, f"the kubelet's way, {rate} MiB/s", _others(small, disk, rate, [kubelet])
            )
        for rate in effort.pruners:
            pruner = Pruner(small.node.cri, effort.pruner_seconds / 2)  # the middle of its minute
            rows += _rows(
                small, f"a pruner each minute, {rate} MiB/s", _others(small, disk, rate, [pruner])
            )
    with populated_node(effort.large) as large:
        disk = large.disk()
        rows += _ours(large, disk, effort, {"polling": WAYS["polling"]})
        for rate in effort.rates:
            everything = [Everything(large.node.cri)] * effort.all_at_once
            rows += _rows(
                large, f"everything at once, {rate} MiB/s", _others(large, disk, rate, everything)
            )
    return rows


def _others(
    on: BenchNode, disk: Disk, rate: int, responders: Sequence[Responder]
) -> list[Crossing]:
    return [on.cross(disk, rate, KUBELET_SECONDS, responder) for responder in responders]


def _ours(on: BenchNode, disk: Disk, effort: Effort, ways: dict[str, tuple[str, ...]]) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        configuration = node_configuration(on, disk, Path(directory))
        for way, options in ways.items():
            with Daemon("--config", configuration, *options, before=AS_THE_UNIT) as daemon:
                assert came_true(lambda: located(configuration), 30.0)
                for rate in effort.rates:
                    crossings = [by_daemon(on, disk, rate, daemon) for _ in range(effort.crossings)]
                    rows += _rows(on, f"reclaimd {way}, {rate} MiB/s", crossings)
    return rows


def node_configuration(on: BenchNode, disk: Disk, directory: Path) -> str:
    """A configuration with the mark of the disk and the relief of the population."""
    return configure(
        directory,
        on.node,
        evictionHard={"imagefs.available": str(disk.mark)},
        evictionMinimumReclaim={
            "imagefs.available": str(on.population.relief_bytes),
            "nodefs.available": "0",
        },
        controlSocket=f"{directory}/run/control.sock",
    )


def located(configuration: str) -> bool:
    return answer(reclaimd("status", "--config", configuration, "-o", "json"))["layout"] is not None


def by_daemon(on: BenchNode, disk: Disk, rate: int, daemon: Daemon) -> Crossing:
    passes = len(daemon.passes)
    return on.cross(disk, rate, OURS_SECONDS, finished=lambda: len(daemon.passes) > passes)


def _rows(on: BenchNode, who: str, crossings: Sequence[Crossing]) -> list[Row]:
    """Up to four rows; a run that timed out has no value, and each row shows
    the number of its values.
    """

    def row(what: str, unit: str, value: Callable[[Crossing], float | None]) -> Row:
        values = [found for found in map(value, crossings) if found is not None]
        return Row(f"{on.population.name}: {who}: {what}", unit, values)

    rows = [
        row("crossing to the first removal sent", "ms", lambda crossing: crossing.sent),
        row("crossing to the first byte freed", "ms", lambda crossing: crossing.first_byte),
        row("crossing to the minimum reclaim", "ms", lambda crossing: crossing.relieved),
        row("deepest below the mark", "MiB", lambda crossing: crossing.below),
    ]
    return [row for row in rows if row.values]
