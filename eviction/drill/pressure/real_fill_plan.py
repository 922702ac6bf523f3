"""How a scenario's pressure is put on a real node: what is set aside first, what is written then, what is left.

The scenario's amounts and rates stay as they are written; what differs from node to node is set aside before the clock
starts. So much that the first pressure crosses the highest mark when half of it is written: the mark is crossed at the
scenario's own pace, and as far below it as half its amount if nobody responds.

Covers: bytes and inodes made by files in one directory. Does not cover: logs, writable layers and pulls, which need
pods and images that the scenario made; faults, which need a runtime that takes orders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eviction.drill.scenario.amounts import ScenarioError
from eviction.drill.scenario.types import Grows, Pressure, Scenario
from eviction.reporting.tables import amount
from eviction.types import Threshold
from signals.types import FilesystemIdentity, FsStats, Signal, SignalObservations

LEAST_SHARE = 100  # a hundredth of the filesystem stays
LEAST = {False: 64 << 20, True: 500}  # and at least so many bytes, or inodes
MOST_FILES = 1_000_000  # a minute to make and a minute to remove
BLOCK_BYTES = 4096  # of the filesystem: a small file takes one
FULL_HEADROOM_SECONDS = 0.5  # of a pressure without an amount: so long it takes to the mark

UNITS = {False: Signal.NODEFS_AVAILABLE, True: Signal.NODEFS_INODES_FREE}  # only to name an amount


@dataclass(frozen=True, slots=True)
class FillPlan:
    """What is done on one filesystem; the maps are by unit: False bytes, True inodes.

    `crossed`: the highest mark of each unit that is written, with its amount. `aside`: what is set aside before the
    clock starts. `leave`: what is left whatever happens. `lowest`: what is left if nobody responds. `limited`: a
    pressure that would go on to the last byte or inode ends there.
    """

    identity: FilesystemIdentity
    crossed: dict[bool, tuple[Threshold, int]]
    aside: dict[bool, int]
    pressures: tuple[Pressure, ...]
    leave: dict[bool, int]
    lowest: dict[bool, int]
    limited: bool


def plan_fill(
    scenario: Scenario, observations: SignalObservations, thresholds: Iterable[Threshold], device_id: int
) -> FillPlan:
    """The plan for a directory on the filesystem `device_id`. Raises ScenarioError: why there is none."""
    _refuse_what_needs_a_node_of_its_own(scenario)
    roles = {role: found for role, found in observations.filesystems.items() if found[0].device_id == device_id}
    if not roles:
        raise ScenarioError("the directory is on none of the node's filesystems, so filling it presses nothing")
    for pressure in scenario.pressures:
        if pressure.where not in roles:
            raise ScenarioError(f"the scenario fills {pressure.where}, and the directory is on {', '.join(roles)}")
    identity, stats = next(iter(roles.values()))
    thresholds = tuple(threshold for threshold in thresholds if threshold.signal.filesystem in roles)
    units = sorted({pressure.counts_inodes for pressure in scenario.pressures})
    room = {False: stats.available_bytes, True: stats.inodes_free}
    leave = {False: _leave(stats, inodes=False), True: _leave(stats, inodes=True)}
    lowest, crossed, aside = dict(room), {}, {}
    for inodes in units:
        crossed[inodes] = threshold, mark = _highest_mark(thresholds, observations, inodes=inodes)
        if room[inodes] <= mark:
            raise ScenarioError(
                f"the node is under pressure already: {threshold.signal} is "
                f"{amount(threshold.signal, room[inodes])}, its mark {amount(threshold.signal, mark)}"
            )
        first = next(pressure for pressure in scenario.pressures if pressure.counts_inodes == inodes)
        aside[inodes] = max(room[inodes] - mark - _headroom(first), 0)
        lowest[inodes] -= aside[inodes]
    for pressure in scenario.pressures:
        lowest[pressure.counts_inodes] -= _most(pressure)
        if pressure.counts_inodes:
            lowest[False] -= _most(pressure) * _blocks(pressure.file_bytes)
    full = {pressure.counts_inodes for pressure in scenario.pressures if pressure.until_full}
    lowest |= {inodes: min(lowest[inodes], leave[inodes]) for inodes in full}
    touched = {inodes for inodes in UNITS if lowest[inodes] < room[inodes]} - full
    _refuse_too_much(lowest, leave, touched)
    if aside.get(True, 0) > MOST_FILES:
        raise ScenarioError(f"it would take {aside[True]} files to come near the mark, more than {MOST_FILES}")
    return FillPlan(identity, crossed, aside, scenario.pressures, leave, lowest, limited=bool(full))


def plan_lines(plan: FillPlan, directory: str) -> list[str]:
    """What is going to be done, for the person who is asked."""
    lines: list[str] = []
    for inodes, (threshold, mark) in plan.crossed.items():
        signal = threshold.signal
        lines += [
            f"in {directory} {amount(signal, plan.aside[inodes])} are set aside at once",
            f"then the pressure goes across {signal}<{threshold.text()} = {amount(signal, mark)}",
            f"if nobody responds {amount(signal, max(plan.lowest[inodes], plan.leave[inodes]))} are left",
            f"{amount(signal, plan.leave[inodes])} stay whatever happens",
        ]
    if plan.limited:
        lines.append("the scenario goes on until the disk is full; here it ends at what has to stay")
    return [*lines, "all of it is given back at the end, also if this process is killed"]


def _refuse_what_needs_a_node_of_its_own(scenario: Scenario) -> None:
    """A run without its faults, or with another pressure than it names, would not be that scenario."""
    for pressure in scenario.pressures:
        if pressure.grows not in (Grows.BYTES, Grows.INODES):
            raise ScenarioError(f"what grows is {pressure.grows}: in a directory only bytes and inodes can grow")
    node = scenario.node
    for has, what in (
        (scenario.faults, "faults, which strike the embedded runtime only"),
        (node.collectors > 1, "several collectors"),
        (node.rebooted, "a node that has just come up"),
    ):
        if has:
            raise ScenarioError(f"the scenario is about {what}; it runs on the embedded node")


def _highest_mark(
    thresholds: tuple[Threshold, ...], observations: SignalObservations, *, inodes: bool
) -> tuple[Threshold, int]:
    marks = [
        (threshold.mark(observations.signals[threshold.signal].capacity), threshold)
        for threshold in thresholds
        if threshold.signal.counts_inodes == inodes and threshold.signal in observations.signals
    ]
    if not marks:
        raise ScenarioError(f"no threshold counts {'inodes' if inodes else 'bytes'} on the directory's filesystem")
    mark, threshold = max(marks, key=lambda each: each[0])
    return threshold, mark


def _headroom(first: Pressure) -> int:
    """How far above the mark the pressure begins: half of what it writes, or half a second of it."""
    return int(first.rate * FULL_HEADROOM_SECONDS) if first.until_full else _most(first) // 2


def _most(pressure: Pressure) -> int:
    """What a pressure writes at most; 0 of one that goes on until the disk is full."""
    timed = None if pressure.for_seconds is None else int(pressure.rate * pressure.for_seconds)
    known = [limit for limit in (pressure.amount, timed) if limit is not None]
    return min(known, default=0)


def _blocks(file_bytes: int) -> int:
    return -(-file_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _leave(stats: FsStats, *, inodes: bool) -> int:
    total = stats.inodes_total if inodes else stats.capacity_bytes
    return max(total // LEAST_SHARE, LEAST[inodes])


def _refuse_too_much(lowest: dict[bool, int], leave: dict[bool, int], touched: set[bool]) -> None:
    for inodes in sorted(touched):
        if lowest[inodes] < leave[inodes]:
            left, needed = (amount(UNITS[inodes], max(each, 0)) for each in (lowest[inodes], leave[inodes]))
            raise ScenarioError(f"it would leave {left}, less than the {needed} that have to stay")
