"""The fill of a real node: its plan, what is refused, what is found there before, and what fills a
directory and gives it back."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.drill.real import foreign_entries, mount_point, traces
from eviction.drill.real_fill_plan import plan_fill, plan_lines
from eviction.drill.scenario import ScenarioError
from eviction.drill.schedule import PREFIX, Bytes, Files, Grower, PressureSchedule
from eviction.types import Threshold
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
from tests.expected import expect
from tests.pure.values import value
from tests.reclaimd_process import came_true
from tests.rows import rows
from tests.sockets.mounts import tmpfs

GIB = 1 << 30
NODEFS, IMAGEFS = FilesystemIdentity("/kubelet", 1), FilesystemIdentity("/images", 2)
STATS = FsStats(50 * GIB, 52 * GIB, 100 * GIB, 900_000, 1_000_000, 0.0)


def observed(*, single: bool = False, **of_nodefs: int) -> SignalObservations:
    """Observations of a node with two filesystems, or with one."""
    nodefs = replace(STATS, **of_nodefs)
    found = {
        FilesystemRole.NODEFS: (NODEFS, nodefs),
        FilesystemRole.IMAGEFS: (NODEFS, nodefs) if single else (IMAGEFS, STATS),
    }
    signals = {}
    for each in KUBELET_SIGNALS:
        if each.filesystem in found:
            identity, stats = found[each.filesystem]
            available = (stats.available_bytes, stats.capacity_bytes)
            if each.counts_inodes:
                available = (stats.inodes_free, stats.inodes_total)
            signals[each] = SignalObservation(each, *available, 0.0, filesystem=identity)
    layout = FsLayout.SINGLE if single else FsLayout.DEDICATED_IMAGEFS
    return SignalObservations(signals, layout, 0.0, filesystems=found)


DOCUMENT: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("real_fill.yaml").read_text())
MARKS, KUBELETS = (
    tuple(Threshold(Signal(signal), value(mark), seconds) for signal, mark, seconds in DOCUMENT[of])
    for of in ("marks", "kubelet")
)
BYTES = {"grows": "bytes", "rate": "100Mi", "amount": "1Gi"}


def test_the_plan_of_a_fill_or_why_it_is_refused() -> None:
    """All that a person has to confirm, with the exact amounts: the prefill, the mark, what is
    left, what is never filled, the kubelet's marks that may be crossed on the way."""
    stories = []
    for name, row in DOCUMENT["fills"].items():
        made = scenario(pressure=row.get("pressure", [BYTES]), **row.get("scenario", {}))
        seen = observed(**row.get("node", {}))
        try:
            plan = plan_fill(made, seen, MARKS, device_id=row.get("device", 1))
        except ScenarioError as error:
            lines = [f"refused: {error}"]
        else:
            lines = plan_lines(plan, "/here", seen, kubelet=KUBELETS)
            for of, unit in plan.units.items():
                exact = f"prefill {unit.prefill}, reserve {unit.reserve}, lowest {unit.lowest}"
                lines.append(f"{'inodes' if of else 'bytes'}: mark {unit.mark}, {exact}")
        stories.append("\n".join([name, *(f"  {line}" for line in lines), ""]))
    expect(Path(__file__).with_name("real_fill.txt"), "\n".join(stories))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 32 MiB and 1 000 inodes."""
    with tmpfs(tmp_path / "disk", 32 * MIB, 1000) as made:
        yield made


def test_what_is_in_a_directory_before_it_is_filled(disk: Path) -> None:
    """Files of other drills, by their prefix, whether they run or were killed. Foreign is what is
    neither the kubelet's, the runtime's nor the drill's, nor above those."""
    own = ["lib/kubelet/pods", "lib/containerd/snapshots", "drill", "lost+found", f"{PREFIX}1-a"]
    for path in own:
        (disk / path).mkdir(parents=True)
    (disk / f"{PREFIX}2").touch()
    assert traces(str(disk)) == [f"{PREFIX}1-a", f"{PREFIX}2"]
    roots = [str(disk / "lib" / "kubelet"), str(disk / "lib" / "containerd"), "/nowhere/else"]
    assert mount_point(str(disk / "drill")) == str(disk)
    assert foreign_entries(str(disk / "drill"), roots) == []
    (disk / "lib" / "postgres").mkdir()
    (disk / "home").symlink_to("lib")
    foreign = [str(disk / "home"), str(disk / "lib" / "postgres")]
    assert foreign_entries(str(disk / "drill"), roots) == foreign


def left(disk: Path) -> tuple[int, int]:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize, found.f_ffree


@rows("""
    grows  | fields                                          | size     | inodes | what
    bytes  | {amount: 5242880}                               | 5242880  | 1      | bytes reserved at once
    bytes  | {amount: 5242880, rate: 104857600}              | 5242880  | 1      | bytes written
    inodes | {amount: 400, file_bytes: 4096}                 | 1638400  | 401    | files and a directory
    bytes  | {amount: 9223372036854775807, reserve: 20971520} | 12582912 | 1      | bytes but a reserve
    inodes | {amount: 9223372036854775807, reserve: 700}     | 0        | 299    | inodes but a reserve
""")
def test_what_was_filled_has_no_name_and_is_given_back(
    disk: Path, grows: str, fields: dict[str, Any], size: int, inodes: int
) -> None:
    """Only files of their own have one, in a directory of their own."""
    before, kind = left(disk), Files if grows == "inodes" else Bytes
    made: Grower = kind(path=str(disk), file="unnamed", **{"rate": 0, **fields})
    while made.goes_on():
        pass
    written, now = made.stop(), left(disk)
    assert [old - new for old, new in zip(before, now, strict=True)] == [size, inodes]
    assert written == (size if grows == "bytes" else inodes - 1)
    assert len(os.listdir(disk)) == (grows == "inodes")
    made.free()
    made.free()
    assert left(disk) == before


def test_a_pressure_that_fails_has_a_problem(disk: Path) -> None:
    """In a directory that is not there nothing is written."""
    made = scenario(pressure=BYTES)
    schedule = PressureSchedule(
        made.pressures,
        lambda each, _: Bytes(path=str(disk / "absent"), file="unnamed", rate=each.rate, amount=1),
    )
    schedule.start(0.0)
    assert came_true(lambda: not schedule.running)
    assert schedule.problem == "No such file or directory"
    schedule.free()
