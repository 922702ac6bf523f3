"""What a drill measures: crossings, reliefs and conditions of what is observed, and removals by
comparing one list of the runtime with the next."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.measurements import ConditionPeriod, Episode, Measurements
from eviction.drill.observer import (
    LARGEST_SAMPLES,
    InventoryPoller,
    Observer,
    take_inventory,
)
from eviction.types import NodeCondition
from reclaim.types import Image, PodSandbox, PodSandboxState, RuntimeUnavailable
from signals.types import (
    KUBELET_ROLES,
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    SignalObservations,
)
from tests.drill.documents import MARK, MIB
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock, observation, observations_of, stats, value
from tests.reclaimd_process import came_true
from tests.rows import rows

RELEASE = replace(MARK, min_reclaim=value("5Mi"))
PRESSURE = frozenset({NodeCondition.RECLAIM_PRESSURE})
KIB = 1 << 10


def observed(
    available: int, *, stale: bool = False, layout: FsLayout | None = FsLayout.SINGLE
) -> SignalObservations:
    """An observation of one filesystem for everything."""
    seen = observation(MARK.signal, available, 100 * MIB, stale=stale)
    disk = FilesystemIdentity("/", 7), stats(available)
    filesystems = dict.fromkeys(KUBELET_ROLES, disk)
    return observations_of(seen, layout=layout)._replace(filesystems=filesystems)


def observer_of(*amounts_kib: int, times: Sequence[float] = ()) -> Observer:
    """An observer that sampled these amounts, one a second or at these times."""
    made = Observer(lambda _: (RELEASE,))
    for second, amount in enumerate(amounts_kib):
        made.sample(observed(amount * KIB), times[second] if times else float(second))
    return made


@rows("""
    mib                             | episodes               | what
    [20, 12, 9, 12, 14, 15, 12, 20] | [[2, 5, 3]]            | until minimum reclaim is reached; falling there again is no new crossing
    [20, 9, 20, 8, 9]               | [[1, 2, 2], [3, null, 4]] | again; the last is not relieved yet
    [20, 9, 8, 8.00390625, 7, 8]    | [[1, null, 5]]         | a rise of less than a mebibyte is no relief
""")
def test_a_mark_is_crossed_and_relieved(mib: list[float], episodes: list[Any]) -> None:
    """Each crossing is an episode of its own: when it began, when it ended, and when the first rise
    was. Of the mark 10 MiB, with minimum reclaim 15 MiB."""
    observer = observer_of(*(int(each * 1024) for each in mib))
    assert observer.episodes == [Episode(*each) for each in episodes]
    (_, relieved, _) = episodes[-1]
    assert observer.under_pressure == (relieved is None)
    assert observer.last_relief == relieved


def test_hours_of_samples_are_kept_as_fewer_without_losing_the_low_point() -> None:
    """The number of samples is bounded, and the lowest one is kept."""
    observer = Observer(lambda _: ())
    usual, low = observed(20 * MIB), observed(5 * MIB)
    for n in range(LARGEST_SAMPLES * 2):
        observer.sample(low if n == 12_345 else usual, n / 50)
    assert len(observer.samples) <= LARGEST_SAMPLES
    assert min(sample.available[0][0] for sample in observer.samples) == 5 * MIB


def test_what_says_nothing_or_comes_late_is_ignored() -> None:
    """Observations that are stale, without a layout, or older than another: the daemon's count
    unless they are late."""
    observer = observer_of(20 * KIB, 9 * KIB, 20 * KIB, 9 * KIB, times=(1.0, 1.5, 2.0, 1.9))
    assert observer.episodes == [Episode(1.5, 2.0, first_rise=2.0)]
    observer.sample(observed(9 * MIB, stale=True), 3.0)
    observer.sample(observed(9 * MIB, layout=None), 4.0)
    assert not observer.under_pressure
    assert [sample.seconds for sample in observer.samples] == [1.0, 1.5, 2.0]
    (filesystem,) = observer.filesystems
    assert (filesystem.name, filesystem.roles) == (FilesystemRole.NODEFS, KUBELET_ROLES)


def test_a_condition_period_lasts_from_its_first_to_its_last_report() -> None:
    """A condition that is reported again begins a new period."""
    observer = observer_of()
    for second, reported in enumerate([frozenset(), PRESSURE, PRESSURE, frozenset(), PRESSURE]):
        observer.record_conditions(reported, float(second))
    assert observer.conditions == [
        ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, 1.0, 3.0),
        ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, 4.0),
    ]


# ---- lists of the runtime

WEB = PodSandbox("s1", PodSandboxState.READY, 1, "uid-web", "web", "default")
JOB = PodSandbox("s2", PodSandboxState.READY, 2, "uid-job", "job", "default")
OLD = Image("sha256:1", ("registry.example/old:1",))


@pytest.fixture
def runtime() -> MemoryRuntime:
    """Two pods and an image."""
    made = MemoryRuntime(SteppedClock())
    made.hold(WEB, JOB, OLD)
    return made


def polling(runtime: MemoryRuntime, logs: Path) -> tuple[InventoryPoller, Measurements]:
    """A started poller, at the interval used under pressure, and what it fills."""
    measured = Measurements(episodes=[Episode(0.0)])
    poller = InventoryPoller(runtime, str(logs), measured)
    poller.start(time.monotonic())
    return poller, measured


def test_everything_that_is_listed_has_its_name(runtime: MemoryRuntime, tmp_path: Path) -> None:
    """Objects of the runtime, directories of logs, and the pods whose sandbox is READY. Only a
    directory that does not exist has no logs; one that cannot be listed is an error."""
    (tmp_path / "default_web_uid").mkdir()
    (tmp_path / "default_web_uid" / "file").touch()
    objects, ready_pods, _ = take_inventory(runtime, str(tmp_path))
    assert objects == {
        ("sandbox", "s1"): "default/web#0",
        ("sandbox", "s2"): "default/job#0",
        ("image", "sha256:1"): "registry.example/old:1",
        ("log", "default_web_uid"): "default_web_uid",
    }
    assert ready_pods == {"uid-web": "default/web", "uid-job": "default/job"}
    assert take_inventory(runtime, str(tmp_path / "absent"))[0]
    with pytest.raises(RuntimeUnavailable, match="file: Not a directory"):
        take_inventory(runtime, str(tmp_path / "default_web_uid" / "file"))


def test_a_removal_is_recorded_once_and_a_pod_ends_with_its_last_ready_sandbox(
    runtime: MemoryRuntime, tmp_path: Path
) -> None:
    """A sandbox no longer READY, another one replaced by its next attempt, and an image, by its
    last name: containerd removes the tags before it, and a list in between has it without."""
    poller, measured = polling(runtime, tmp_path)
    runtime.hold(WEB._replace(state=PodSandboxState.NOTREADY), JOB._replace(id="s3", attempt=1))
    runtime.hold(OLD._replace(repo_tags=()))
    runtime.sandboxes.pop("s2")
    assert came_true(lambda: len(measured.removals) + len(measured.ended_pods) >= 2)
    runtime.images.clear()
    assert came_true(lambda: len(measured.removals) >= 2)
    poller.stop()
    removals = [(each.kind, each.name) for each in measured.removals]
    assert removals == [("sandbox", "default/job#0"), ("image", "registry.example/old:1")]
    assert [pod.name for pod in measured.ended_pods] == ["default/web"]
    assert measured.faults == []


def test_an_unreachable_runtime_has_removed_nothing(runtime: MemoryRuntime, tmp_path: Path) -> None:
    """The outage is recorded once, and the next list is compared with the last one before it. At
    the start, without a first list, it is an error: no removal could be found."""
    poller, measured = polling(runtime, tmp_path)
    runtime.away = True
    assert came_true(lambda: len(measured.faults) == 1)
    time.sleep(0.1)
    with pytest.raises(RuntimeUnavailable):
        InventoryPoller(runtime, str(tmp_path), Measurements())
    runtime.away = False
    poller.stop()
    assert (measured.removals, measured.ended_pods, len(measured.faults)) == ([], [], 1)
    assert (measured.lists_apart_seconds or 0.0) >= 0.1
