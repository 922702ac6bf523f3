"""What went from one list to the next, seen by asking alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eviction.drill.measurement.inventory import ListWatch, take_inventory
from eviction.drill.measurement.measurements import NamedObject
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


def watching(made: MemoryRuntime, logs: Path) -> ListWatch:
    """A watch that asks as often as under pressure."""
    watch = ListWatch(made, str(logs), lambda: True)
    watch.start(time.monotonic())
    return watch


def test_everything_that_is_listed_has_its_name(tmp_path: Path) -> None:
    """Objects of the runtime, the directories of logs, and the pods whose sandbox is READY."""
    (tmp_path / "default_web_uid").mkdir()
    found = take_inventory(runtime(), str(tmp_path))
    assert found.named == {
        NamedObject("sandbox", "default/web#0"),
        NamedObject("sandbox", "default/job#0"),
        NamedObject("image", "registry.example/old:1"),
        NamedObject("log", "default_web_uid"),
    }
    assert found.ready_pods == {"uid-web": "default/web", "uid-job": "default/job"}


def test_what_goes_is_seen_once_and_a_pod_ends_with_its_last_ready_sandbox(tmp_path: Path) -> None:
    """An image gone, a sandbox no longer READY, and another one replaced by its next attempt."""
    made = runtime()
    watch = watching(made, tmp_path)
    made.hold(WEB._replace(state=PodSandboxState.NOTREADY), JOB._replace(id="s3", attempt=1))
    made.sandboxes.pop("s2")
    made.images.clear()
    assert came_true(lambda: watch.news >= 3)
    watch.stop()
    assert sorted((each.kind, each.name) for each in watch.removals) == [
        ("image", "registry.example/old:1"),
        ("sandbox", "default/job#0"),
    ]
    assert [pod.name for pod in watch.ended_pods] == ["default/web"]
    assert watch.strikes == []


def test_an_image_that_loses_its_names_first_goes_by_the_one_that_it_had(tmp_path: Path) -> None:
    """containerd takes the tags away before the image; who asks in between sees an image without a name."""
    made = runtime()
    watch = watching(made, tmp_path)
    made.hold(OLD._replace(repo_tags=()))
    time.sleep(0.1)  # it was listed so, several times
    made.images.clear()
    watch.stop()
    assert [(each.kind, each.name) for each in watch.removals] == [("image", "registry.example/old:1")]


def test_a_runtime_that_is_away_has_removed_nothing(tmp_path: Path) -> None:
    """Its absence is told once, and what it lists afterwards is compared with what was there before."""
    made = runtime()
    watch = watching(made, tmp_path)
    made.away = True
    assert came_true(lambda: len(watch.strikes) == 1)
    time.sleep(0.1)
    made.away = False
    watch.stop()
    assert watch.removals == []
    assert watch.ended_pods == []
    assert len(watch.strikes) == 1
    assert watch.apart_seconds >= 0.1


def test_a_runtime_that_is_away_at_the_start_cannot_be_watched(tmp_path: Path) -> None:
    """Without a first list nothing could be seen to go."""
    made = runtime()
    made.away = True
    with pytest.raises(RuntimeUnavailable):
        ListWatch(made, str(tmp_path), lambda: True)
