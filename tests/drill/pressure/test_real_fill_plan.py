"""The plan for filling a real node, and the scenarios that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eviction.drill.pressure.real_fill_plan import UnitPlan, plan_fill, plan_lines
from eviction.drill.scenario import ScenarioError
from eviction.types import Threshold, ThresholdValue
from signals.quantity import parse_percentage, parse_quantity
from signals.types import (
    KUBELET_SIGNALS,
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Signal,
    SignalObservation,
    SignalObservations,
)
from tests.drill.documents import MIB, scenario

GIB = 1 << 30
NODEFS, IMAGEFS = FilesystemIdentity("/kubelet", 1), FilesystemIdentity("/images", 2)
STATS = FsStats(50 * GIB, 52 * GIB, 100 * GIB, 900_000, 1_000_000, 0.0)
MARKS = (
    Threshold(Signal.NODEFS_AVAILABLE, ThresholdValue(percentage=parse_percentage("10%"))),
    Threshold(
        Signal.NODEFS_AVAILABLE, ThresholdValue(quantity=parse_quantity("12Gi")), grace_seconds=60.0
    ),
    Threshold(Signal.IMAGEFS_AVAILABLE, ThresholdValue(quantity=parse_quantity("20Gi"))),
    Threshold(Signal.NODEFS_INODES_FREE, ThresholdValue(quantity=parse_quantity("500000"))),
)


def observations_of(nodefs: FsStats = STATS, *, single: bool = False) -> SignalObservations:
    """Observations of a node with two filesystems, or with one."""
    found = {
        FilesystemRole.NODEFS: (NODEFS, nodefs),
        FilesystemRole.IMAGEFS: (NODEFS if single else IMAGEFS, nodefs if single else STATS),
    }
    signals = {}
    for role, (identity, stats) in found.items():
        for signal in KUBELET_SIGNALS:
            if signal.filesystem is role:
                available = (
                    (stats.inodes_free, stats.inodes_total)
                    if signal.counts_inodes
                    else (stats.available_bytes, stats.capacity_bytes)
                )
                signals[signal] = SignalObservation(signal, *available, 0.0, filesystem=identity)
    layout = FsLayout.SINGLE if single else FsLayout.DEDICATED_IMAGEFS
    return SignalObservations(signals, layout, 0.0, filesystems=found)


def pressed(*pressures: dict[str, Any]) -> Any:
    """The small scenario with other pressures."""
    return scenario(pressure=list(pressures))


def bytes_grow(**fields: Any) -> dict[str, Any]:
    return {"grows": "bytes", "rate": "100Mi", "amount": "1Gi", **fields}


def test_after_the_prefill_half_of_the_pressure_crosses_the_highest_mark() -> None:
    """The soft mark at 12 GiB is higher than the hard one, so it is crossed first."""
    plan = plan_fill(pressed(bytes_grow()), observations_of(), MARKS, device_id=1)
    assert plan.units == {
        False: UnitPlan(
            MARKS[1],
            12 * GIB,
            prefill=50 * GIB - 12 * GIB - GIB // 2,
            reserve=GIB,  # a hundredth of the disk
            lowest=12 * GIB - GIB // 2,
        )
    }


def test_the_marks_of_all_roles_of_a_filesystem_count() -> None:
    """With one filesystem for everything, the mark of imagefs is the highest."""
    plan = plan_fill(pressed(bytes_grow()), observations_of(single=True), MARKS, device_id=1)
    assert plan.units[False][:2] == (MARKS[2], 20 * GIB)


def test_a_node_close_to_its_mark_needs_no_prefill() -> None:
    """The pressure alone crosses the mark, and goes further below it."""
    near = replace(STATS, available_bytes=12 * GIB + 100 * MIB)
    plan = plan_fill(pressed(bytes_grow()), observations_of(near), MARKS, device_id=1)
    assert plan.units[False].prefill == 0
    assert plan.units[False].lowest == 11 * GIB + 100 * MIB


def test_bytes_and_inodes_have_a_prefill_each() -> None:
    """Small files take a block each, which lowers the bytes that are left."""
    files = {"grows": "inodes", "rate": "1000", "amount": "10000", "fileSize": "5Ki"}
    plan = plan_fill(pressed(bytes_grow(), files), observations_of(), MARKS, device_id=1)
    assert plan.units[False].prefill == 50 * GIB - 12 * GIB - GIB // 2
    assert plan.units[True].prefill == 900_000 - 500_000 - 5000
    assert plan.units[True].lowest == 500_000 - 5000
    assert plan.units[False].lowest == 12 * GIB - GIB // 2 - 10_000 * 8192


def test_a_pressure_until_the_disk_is_full_ends_at_the_reserve() -> None:
    """The lines say what is never filled."""
    plan = plan_fill(pressed(bytes_grow(amount="full")), observations_of(), MARKS, device_id=1)
    assert plan.units[False].lowest == plan.units[False].reserve
    assert plan.units[False].prefill == 50 * GIB - 12 * GIB - 50 * MIB, (
        "half a second of it is left to the mark"
    )
    assert any(
        "are never filled" in line
        for line in plan_lines(plan, "/here", observations_of(), kubelet=())
    )


def test_a_pressure_that_ends_after_a_time_has_the_amount_of_that_time() -> None:
    """Two seconds at 100 MiB a second."""
    plan = plan_fill(
        pressed({"grows": "bytes", "rate": "100Mi", "for": "2s"}),
        observations_of(),
        MARKS,
        device_id=1,
    )
    assert plan.units[False].lowest == 12 * GIB - 100 * MIB


def test_the_confirmation_names_every_amount() -> None:
    """The prefill, the mark, what is left, the reserve, and that everything is freed."""
    plan = plan_fill(pressed(bytes_grow()), observations_of(), MARKS, device_id=1)
    text = "\n".join(plan_lines(plan, "/here", observations_of(), kubelet=()))
    for said in (
        "/here",
        "37.5GiB",
        "nodefs.available<12Gi = 12.0GiB",
        "11.5GiB are left",
        "1.0GiB are never filled",
        "is freed at the end",
    ):
        assert said in text


FAULT = [{"action": "restart", "at": "1s"}]
REFUSED: dict[str, tuple[Any, SignalObservations, int, str]] = {
    "another filesystem": (
        pressed(bytes_grow()),
        observations_of(),
        9,
        "on none of the node's filesystems",
    ),
    "another role": (
        pressed(bytes_grow(where="imagefs")),
        observations_of(),
        1,
        "fills imagefs, but the directory is on nodefs",
    ),
    "already under pressure": (
        pressed(bytes_grow()),
        observations_of(replace(STATS, available_bytes=12 * GIB)),
        1,
        "already under pressure",
    ),
    "too much": (
        pressed(bytes_grow(amount="30Gi")),
        observations_of(),
        1,
        "less than the 1.0GiB that must stay free",
    ),
    "no mark": (
        pressed({"grows": "inodes", "rate": "1", "amount": "2", "where": "imagefs"}),
        observations_of(),
        2,
        "no threshold counts inodes",
    ),
    "a log": (
        scenario(pressure={"grows": "log", "pod": "web", "amount": "1Mi"}),
        observations_of(),
        1,
        "only bytes and inodes",
    ),
    "faults": (scenario(faults=FAULT), observations_of(), 1, "faults"),
    "a reboot": (scenario(node={"rebooted": True}), observations_of(), 1, "just rebooted"),
    "millions of files": (
        pressed({"grows": "inodes", "rate": "1", "amount": "2"}),
        observations_of(replace(STATS, inodes_free=3_000_000, inodes_total=5_000_000)),
        1,
        "more than the 1000000",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_fill_that_is_not_possible_or_not_allowed_is_refused(why: str) -> None:
    """The message says why."""
    made, seen, device, said = REFUSED[why]
    with pytest.raises(ScenarioError, match=said):
        plan_fill(made, seen, MARKS, device_id=device)


def test_the_kubelets_marks_that_the_fill_may_cross_are_named() -> None:
    """Of the filesystem that is filled, and of what grows:

    11.5 GiB are left, so 11.7 GiB are crossed, 11 are not.
    """
    plan = plan_fill(pressed(bytes_grow()), observations_of(), MARKS, device_id=1)
    marks = [
        (Signal.NODEFS_AVAILABLE, "11980Mi"),
        (Signal.NODEFS_AVAILABLE, "11Gi"),
        (Signal.IMAGEFS_AVAILABLE, "20Gi"),
        (Signal.NODEFS_INODES_FREE, "800k"),
    ]
    kubelet = [
        Threshold(signal, ThresholdValue(quantity=parse_quantity(mark))) for signal, mark in marks
    ]
    lines = plan_lines(plan, "/here", observations_of(), kubelet=kubelet)
    assert [line for line in lines if "evicts" in line] == [
        "below 11.7GiB (nodefs.available) the kubelet evicts pods; the fill may reach that"
    ]
