"""How the pressure of a scenario is applied to a real node: the prefill and the reserve.

The scenario's amounts and rates are not scaled. A prefill, before the clock starts, makes up
for the size of the node: after it, the first pressure crosses the highest mark with half of
its amount. So the mark is crossed at the scenario's own rate, and without relief the node ends
half the amount below it.

Covers: bytes and inodes, in one directory. Does not cover: logs, writable layers and pulls, which
need a scenario's own pods and images; faults, which need the embedded runtime.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eviction.drill.scenario import Pressure, Scenario, ScenarioError
from eviction.types import Threshold
from eviction.wording.tables import amount
from signals.types import FilesystemIdentity, Signal, SignalObservations

RESERVE_DIVISOR = 100  # a hundredth of the filesystem is never filled
SMALLEST_RESERVE = {False: 64 << 20, True: 500}  # bytes, and inodes
MOST_PREFILL_FILES = 1_000_000  # they take a minute to make and a minute to remove
BLOCK_BYTES = 4096  # the least that a small file takes
# a pressure that lasts until the disk is full crosses the mark after this time
FULL_HEADROOM_SECONDS = 0.5

# only to format an amount
UNITS = {False: Signal.NODEFS_AVAILABLE, True: Signal.NODEFS_INODES_FREE}


@dataclass(frozen=True, slots=True)
class FillPlan:
    """What to do on one filesystem. The maps are by unit: False for bytes, True for inodes.

    `crossed`: the highest mark of each unit that is filled, and its amount. `prefill`:
    what is written before the clock starts. `reserve`: what is never filled. `lowest`:
    what is left without relief.
    """

    identity: FilesystemIdentity
    crossed: dict[bool, tuple[Threshold, int]]
    prefill: dict[bool, int]
    reserve: dict[bool, int]
    lowest: dict[bool, int]


def plan_fill(
    scenario: Scenario,
    observations: SignalObservations,
    thresholds: Iterable[Threshold],
    *,
    device_id: int,
) -> FillPlan:
    """The plan for a directory on the filesystem `device_id`.

    Raises ScenarioError if the scenario does not fit it.
    """
    _refuse_what_needs_a_node_of_its_own(scenario)
    roles = {
        role: found
        for role, found in observations.filesystems.items()
        if found[0].device_id == device_id
    }
    if not roles:
        raise ScenarioError(
            "the directory is on none of the node's filesystems, so filling it causes no pressure"
        )
    for pressure in scenario.pressures:
        if pressure.where not in roles:
            raise ScenarioError(
                f"the scenario fills {pressure.where}, but the directory is on {', '.join(roles)}"
            )
    identity, stats = next(iter(roles.values()))
    thresholds = tuple(
        threshold for threshold in thresholds if threshold.signal.filesystem in roles
    )
    units = sorted({pressure.counts_inodes for pressure in scenario.pressures})
    available = {False: stats.available_bytes, True: stats.inodes_free}
    total = {False: stats.capacity_bytes, True: stats.inodes_total}
    reserve = {
        inodes: max(total[inodes] // RESERVE_DIVISOR, SMALLEST_RESERVE[inodes]) for inodes in UNITS
    }
    lowest = dict(available)
    crossed = {}
    prefill = {}
    for inodes in units:
        crossed[inodes] = threshold, mark = _highest_mark(thresholds, observations, inodes=inodes)
        if available[inodes] <= mark:
            raise ScenarioError(
                f"the node is already under pressure: {threshold.signal} is"
                f" {amount(threshold.signal, available[inodes])}, its mark"
                f" {amount(threshold.signal, mark)}"
            )
        first = next(
            pressure for pressure in scenario.pressures if pressure.counts_inodes == inodes
        )
        prefill[inodes] = max(available[inodes] - mark - _headroom(first), 0)
        lowest[inodes] -= prefill[inodes]
    for pressure in scenario.pressures:
        lowest[pressure.counts_inodes] -= _largest_amount(pressure)
        if pressure.counts_inodes:
            blocks = -(-pressure.file_bytes // BLOCK_BYTES)
            lowest[False] -= _largest_amount(pressure) * blocks * BLOCK_BYTES
    full = {pressure.counts_inodes for pressure in scenario.pressures if pressure.until_full}
    lowest |= {inodes: reserve[inodes] for inodes in full}
    for inodes, unit in UNITS.items():
        if lowest[inodes] < min(reserve[inodes], available[inodes]):
            left = amount(unit, max(lowest[inodes], 0))
            needed = amount(unit, reserve[inodes])
            raise ScenarioError(
                f"it would leave {left}, less than the {needed} that must stay free"
            )
    if prefill.get(True, 0) > MOST_PREFILL_FILES:
        raise ScenarioError(
            f"it would take {prefill[True]} files to come close to the mark, more than the"
            f" {MOST_PREFILL_FILES} allowed"
        )
    return FillPlan(identity, crossed, prefill, reserve=reserve, lowest=lowest)


def plan_lines(
    plan: FillPlan,
    directory: str,
    observations: SignalObservations,
    *,
    kubelet: Iterable[Threshold],
) -> list[str]:
    """What will be done, for the person who has to confirm it.

    `kubelet`: its thresholds. One that the fill may cross without relief is named, as below it pods
    are evicted.
    """
    lines: list[str] = []
    for inodes, (threshold, mark) in plan.crossed.items():
        signal = threshold.signal
        lines += [
            f"{amount(signal, plan.prefill[inodes])} are filled at once in {directory}",
            f"then the pressure crosses {signal}<{threshold.text()} = {amount(signal, mark)}",
            f"without relief {amount(signal, plan.lowest[inodes])} are left",
            f"{amount(signal, plan.reserve[inodes])} are never filled",
        ]
    for threshold in kubelet:
        signal = threshold.signal
        found = observations.signals.get(signal)
        if found is None or found.filesystem is None or signal.counts_inodes not in plan.crossed:
            continue
        mark = threshold.mark(found.capacity)
        here = found.filesystem.device_id == plan.identity.device_id
        if here and plan.lowest[signal.counts_inodes] < mark:
            lines.append(
                f"below {amount(signal, mark)} ({signal}) the kubelet evicts pods; the fill may"
                " reach that"
            )
    return [
        *lines,
        "everything that was filled is freed at the end, even if this process is killed",
    ]


def _refuse_what_needs_a_node_of_its_own(scenario: Scenario) -> None:
    """Refuses a scenario that would test less than it says without the embedded node."""
    for pressure in scenario.pressures:
        if pressure.grows not in ("bytes", "inodes"):
            raise ScenarioError(
                f"in a directory only bytes and inodes can grow, but it was {pressure.grows}"
            )
    node = scenario.node
    for has, what in (
        (scenario.faults, "faults, which only the embedded runtime can have"),
        (node.rebooted, "a node that has just rebooted"),
    ):
        if has:
            raise ScenarioError(f"the scenario is about {what}; it runs only on the embedded node")


def _highest_mark(
    thresholds: tuple[Threshold, ...], observations: SignalObservations, *, inodes: bool
) -> tuple[Threshold, int]:
    marks = [
        (threshold.mark(observations.signals[threshold.signal].capacity), threshold)
        for threshold in thresholds
        if threshold.signal.counts_inodes == inodes and threshold.signal in observations.signals
    ]
    if not marks:
        raise ScenarioError(
            f"no threshold counts {'inodes' if inodes else 'bytes'} on the directory's filesystem"
        )
    mark, threshold = max(marks, key=lambda each: each[0])
    return threshold, mark


def _headroom(first: Pressure) -> int:
    """How far above the mark the first pressure begins: half of it, or half a second of it."""
    if first.until_full:
        return int(first.rate * FULL_HEADROOM_SECONDS)
    return _largest_amount(first) // 2


def _largest_amount(pressure: Pressure) -> int:
    """The most that a pressure writes; 0 if it lasts until the disk is full."""
    timed = None if pressure.for_seconds is None else int(pressure.rate * pressure.for_seconds)
    known = [limit for limit in (pressure.amount, timed) if limit is not None]
    return min(known, default=0)
