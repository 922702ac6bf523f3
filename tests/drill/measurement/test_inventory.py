"""Removals found by comparing one list of the runtime with the next."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eviction.drill.measurement.measurements import Episode, Measurements
from eviction.drill.measurement.observer import InventoryPoller, take_inventory
from reclaim.types import Image, PodSandbox, PodSandboxState, RuntimeUnavailable
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock
from tests.reclaimd_process import came_true

WEB = PodSandbox("s1", PodSandboxState.READY, 1, "uid-web", "web", "default")
JOB = PodSandbox("s2", PodSandboxState.READY, 2, "uid-job", "job", "default")
OLD = Image("sha256:1", ("registry.example/old:1",))


def runtime() -> MemoryRuntime:
    """Two pods and an image."""
    made = MemoryRuntime(SteppedClock())
    made.hold(WEB, JOB, OLD)
    return made


def started_poller(made: MemoryRuntime, logs: Path) -> tuple[InventoryPoller, Measurements]:
    """A started poller, at the interval used under pressure, and what it fills."""
    measured = Measurements(episodes=[Episode(0.0)])
    poller = InventoryPoller(made, str(logs), measured)
    poller.start(time.monotonic())
    return poller, measured


def test_everything_that_is_listed_has_its_name(tmp_path: Path) -> None:
    """Objects of the runtime, the directories of logs, and the pods whose sandbox is READY."""
    (tmp_path / "default_web_uid").mkdir()
    objects, ready_pods = take_inventory(runtime(), str(tmp_path))
    assert objects == {
        ("sandbox", "s1"): "default/web#0",
        ("sandbox", "s2"): "default/job#0",
        ("image", "sha256:1"): "registry.example/old:1",
        ("log", "default_web_uid"): "default_web_uid",
    }
    assert ready_pods == {"uid-web": "default/web", "uid-job": "default/job"}


def test_a_removal_is_recorded_once_and_a_pod_ends_with_its_last_ready_sandbox(
    tmp_path: Path,
) -> None:
    """An image removed, a sandbox no longer READY, and another one replaced by its next attempt."""
    made = runtime()
    poller, measured = started_poller(made, tmp_path)
    made.hold(WEB._replace(state=PodSandboxState.NOTREADY), JOB._replace(id="s3", attempt=1))
    made.sandboxes.pop("s2")
    made.images.clear()
    assert came_true(lambda: len(measured.removals) + len(measured.ended_pods) >= 3)
    poller.stop()
    assert sorted((each.kind, each.name) for each in measured.removals) == [
        ("image", "registry.example/old:1"),
        ("sandbox", "default/job#0"),
    ]
    assert [pod.name for pod in measured.ended_pods] == ["default/web"]
    assert measured.faults == []


def test_an_image_that_loses_its_names_first_is_recorded_by_its_last_name(tmp_path: Path) -> None:
    """containerd removes the tags before the image; a list in between has an
    image without a name.
    """
    made = runtime()
    poller, measured = started_poller(made, tmp_path)
    made.hold(OLD._replace(repo_tags=()))
    time.sleep(0.1)  # it was listed so, several times
    made.images.clear()
    poller.stop()
    assert [(each.kind, each.name) for each in measured.removals] == [
        ("image", "registry.example/old:1")
    ]


def test_an_unreachable_runtime_has_removed_nothing(tmp_path: Path) -> None:
    """The outage is recorded once, and the next list is compared with the last one before it."""
    made = runtime()
    poller, measured = started_poller(made, tmp_path)
    made.away = True
    assert came_true(lambda: len(measured.faults) == 1)
    time.sleep(0.1)
    made.away = False
    poller.stop()
    assert measured.removals == []
    assert measured.ended_pods == []
    assert len(measured.faults) == 1
    assert (measured.lists_apart_seconds or 0.0) >= 0.1


def test_logs_that_cannot_be_listed_are_not_gone(tmp_path: Path) -> None:
    """Only a directory that does not exist has no logs."""
    (tmp_path / "file").touch()
    assert take_inventory(runtime(), str(tmp_path / "absent"))[0]
    with pytest.raises(RuntimeUnavailable, match="file: Not a directory"):
        take_inventory(runtime(), str(tmp_path / "file"))


def test_a_runtime_that_is_unreachable_at_the_start_is_an_error(tmp_path: Path) -> None:
    """Without a first list no removal could be found."""
    made = runtime()
    made.away = True
    with pytest.raises(RuntimeUnavailable):
        InventoryPoller(made, str(tmp_path), Measurements())
