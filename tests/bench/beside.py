"""This reclaimd beside another installation of it, an earlier version say: the same
node, in turns, in one run.

    RECLAIMD_BESIDE=/path/to/the/other/bin/reclaimd python -m tests.bench beside

On a shared machine one run after the other compares two hours, not two programs. Only what both
versions offer is used: the command line, the configuration file, the JSON log.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import median

from signals.types import FsLayout
from tests.bench.effort import Effort, Population
from tests.bench.hook import control_configuration, located_daemon, one_hook
from tests.bench.measure import Row, command_milliseconds
from tests.bench.rest import SETTLED_SECONDS, configuration_at_rest, resident_mib
from tests.bench.side_by_side import AS_THE_UNIT, by_daemon, located, node_configuration
from tests.nodes.bench_node import Crossing, populated_node
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import PROGRAM, Daemon, came_true

VARIABLE = "RECLAIMD_BESIDE"
RATES = (100, 400)
NEWER_FIELDS = ("lockDirectory",)
ROUNDS = 3
CROSSINGS_A_ROUND = 2
HOOKS_A_ROUND = 4

Value = tuple[str, str, str, float]
"""Whose it is, what was measured, its unit, the value."""


def beside(effort: Effort) -> list[Row]:
    """All measurements for both programs, and the ratio of the medians.

    Nothing without the variable.
    """
    other = os.environ.get(VARIABLE)
    if not other:
        return []
    programs = {"this": PROGRAM, "the other": other}
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for who, what, unit, value in chain(
        _processes(programs), *(_crossings(programs, each) for each in (effort.small, effort.large))
    ):
        # a long run shows how far it is
        print(f"{who}: {what}: {value:.1f} {unit}", file=sys.stderr)
        values[what, unit, who].append(value)
    rows = [Row(f"{who}: {what}", unit, found) for (what, unit, who), found in values.items()]
    for what, unit in dict.fromkeys((what, unit) for what, unit, _ in values):
        mine, others = (median(values[what, unit, who]) for who in programs)
        rows.append(Row(f"{what}: this in times the other", "x", [mine / others]))
    return rows


def known_to_both(configuration: str) -> str:
    """The configuration file without the fields that the other version may not know."""
    path = Path(configuration)
    fields = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: value for name, value in fields.items() if name not in NEWER_FIELDS})
    )
    return configuration


def _in_turn(programs: dict[str, str], number: int) -> Iterable[tuple[str, str]]:
    """Both programs; each is the first one in every other round."""
    return reversed(programs.items()) if number % 2 else programs.items()


def _crossings(programs: dict[str, str], population: Population) -> Iterator[Value]:
    """Fills of a real node until the minimum reclaim."""
    with (
        populated_node(population) as on,
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
    ):
        disk = on.disk()
        configuration = known_to_both(node_configuration(on, disk, Path(directory)))
        for number in range(ROUNDS):
            for who, program in _in_turn(programs, number):
                options = ("--config", configuration, "--no-watch")
                with Daemon(*options, before=AS_THE_UNIT, program=program) as daemon:
                    assert came_true(lambda: located(configuration))
                    for rate in RATES:
                        crossings = [
                            by_daemon(on, disk, rate, daemon) for _ in range(CROSSINGS_A_ROUND)
                        ]
                        for what, value in _times(crossings):
                            yield who, f"{population.name}: {rate} MiB/s: {what}", "ms", value


def _times(crossings: Sequence[Crossing]) -> Iterator[tuple[str, float]]:
    for crossing in crossings:
        if crossing.sent is not None:
            yield "crossing to the first removal sent", crossing.sent
        if crossing.relieved is not None:
            yield "crossing to the minimum reclaim", crossing.relieved


def _processes(programs: dict[str, str]) -> Iterator[Value]:
    """Whole processes on the embedded node."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(Path(directory), FsLayout.SINGLE, size_bytes=400 * MIB)
        try:
            small.add_images(40, MIB)
            configuration = known_to_both(control_configuration(small, directory))
            check = ["check", "--config", configuration, "--standalone"]
            for number in range(ROUNDS):
                for who, program in _in_turn(programs, number):
                    for value in command_milliseconds([program, "--help"], HOOKS_A_ROUND):
                        yield who, "reclaimd --help", "ms", value
                    for value in command_milliseconds([program, *check], HOOKS_A_ROUND):
                        yield who, "reclaimd check, standalone", "ms", value
                    for _ in range(HOOKS_A_ROUND):
                        taken = one_hook(small, configuration, "--standalone", program=program)
                        yield who, "hook, standalone", "ms", taken
                    with located_daemon(configuration, program):
                        for _ in range(HOOKS_A_ROUND):
                            yield (
                                who,
                                "hook, asking the daemon",
                                "ms",
                                one_hook(small, configuration, program=program),
                            )
            for who, program in programs.items():
                with Daemon(
                    "--config", known_to_both(configuration_at_rest(small, MIB)), program=program
                ) as daemon:
                    time.sleep(SETTLED_SECONDS)
                    yield (
                        who,
                        "daemon with metrics, at rest",
                        "MiB",
                        resident_mib(daemon.process.pid),
                    )
        finally:
            small.close()
