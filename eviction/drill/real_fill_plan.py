"""How the pressure of a scenario is applied to a real node: the prefill and the reserve.

The scenario's amounts and rates are not scaled. A prefill, before the clock starts, makes up
for the size of the node: after it, the first pressure crosses the highest mark with half of
its amount. So the mark is crossed at the scenario's own rate, and without relief the node ends
half the amount below it.

Covers: bytes and inodes, in one directory. Does not cover: logs, writable layers and pulls, which
need a scenario's own pods and images; faults, which need the embedded runtime.
"""

from collections.abc import Iterable
from typing import NamedTuple

from eviction.drill.scenario import Pressure, Scenario, ScenarioError
from eviction.types import Threshold
from eviction.wording.explain import amount
from signals.types import FilesystemIdentity, Signal, SignalObservations

RESERVE_DIVISOR = 100  # a hundredth of the filesystem is never filled
# bytes and inodes: their signal on any filesystem, only to format an amount, and the least reserve
UNITS = {False: (Signal.NODEFS_AVAILABLE, 64 << 20), True: (Signal.NODEFS_INODES_FREE, 500)}
MOST_PREFILL_FILES = 1_000_000  # they take a minute to make and a minute to remove
BLOCK_BYTES = 4096  # the least that a small file takes
# a pressure that lasts until the disk is full crosses the mark after this time
FULL_HEADROOM_SECONDS = 0.5


class UnitPlan(NamedTuple):
    """What to do about bytes, or about inodes."""

    threshold: Threshold
    """That with the highest mark."""
    mark: int
    """The amount of that."""
    prefill: int
    """What is written before the clock starts."""
    reserve: int
    """What is never filled."""
    lowest: int
    """What is left without relief."""


class FillPlan(NamedTuple):
    """What to do on one filesystem. `units`: False for bytes, True for inodes, if they grow."""

    identity: FilesystemIdentity
    units: dict[bool, UnitPlan]


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
    here = [threshold for threshold in thresholds if threshold.signal.filesystem in roles]
    available = (stats.available_bytes, stats.inodes_free)
    total = (stats.capacity_bytes, stats.inodes_total)
    units = {}
    for inodes, (unit, least) in UNITS.items():
        reserve = max(total[inodes] // RESERVE_DIVISOR, least)
        left = available[inodes]
        if not inodes:
            # the bytes of the blocks that small files take
            left -= sum(
                _largest_amount(each) * -(-each.file_bytes // BLOCK_BYTES) * BLOCK_BYTES
                for each in scenario.pressures
            )
        pressures = [each for each in scenario.pressures if each.counts_inodes == inodes]
        if pressures:
            threshold, mark = _highest_mark(here, observations, inodes)
            if available[inodes] <= mark:
                raise ScenarioError(
                    f"the node is already under pressure: {threshold.signal} is"
                    f" {amount(unit, available[inodes])}, its mark {amount(unit, mark)}"
                )
            prefill = max(available[inodes] - mark - _headroom(pressures[0]), 0)
            left -= prefill + sum(map(_largest_amount, pressures))
            if any(pressure.until_full for pressure in pressures):
                left = reserve
            units[inodes] = UnitPlan(threshold, mark, prefill, reserve, left)
        if left < min(reserve, available[inodes]):
            raise ScenarioError(
                f"it would leave {amount(unit, max(left, 0))}, less than the"
                f" {amount(unit, reserve)} that must stay free"
            )
    if True in units and units[True].prefill > MOST_PREFILL_FILES:
        raise ScenarioError(
            f"it would take {units[True].prefill} files to come close to the mark, more than the"
            f" {MOST_PREFILL_FILES} allowed"
        )
    return FillPlan(identity, units)


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
    for threshold, mark, prefill, reserve, lowest in plan.units.values():
        signal = threshold.signal
        lines += [
            f"{amount(signal, prefill)} are filled at once in {directory}",
            f"then the pressure crosses {signal}<{threshold.text()} = {amount(signal, mark)}",
            f"without relief {amount(signal, lowest)} are left",
            f"{amount(signal, reserve)} are never filled",
        ]
    for threshold in kubelet:
        signal = threshold.signal
        found = observations.signals.get(signal)
        unit = plan.units.get(signal.counts_inodes)
        if found is None or unit is None:
            continue
        mark = threshold.mark(found.capacity)
        if found.filesystem.device_id == plan.identity.device_id and unit.lowest < mark:
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
    for has, what in (
        (scenario.faults, "faults, which only the embedded runtime can have"),
        (scenario.node.rebooted, "a node that has just rebooted"),
    ):
        if has:
            raise ScenarioError(f"the scenario is about {what}; it runs only on the embedded node")


def _highest_mark(
    thresholds: Iterable[Threshold], observations: SignalObservations, inodes: bool
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
    timed = int(first.rate * FULL_HEADROOM_SECONDS)
    return timed if first.until_full else _largest_amount(first) // 2


def _largest_amount(pressure: Pressure) -> int:
    """The most that a pressure writes; 0 if it lasts until the disk is full."""
    timed = None if pressure.for_seconds is None else int(pressure.rate * pressure.for_seconds)
    return min([limit for limit in (pressure.amount, timed) if limit is not None], default=0)
