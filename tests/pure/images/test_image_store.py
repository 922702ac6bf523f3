"""What containerd's image store tells, and what is known of both clocks when a runtime started."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from reclaim.cri import stores_pb2 as pb
from reclaim.cri.status import CallError, Code, Message
from reclaim.functions.containerd_garbage import (
    LIST_CONTENT,
    LIST_IMAGES,
    LIST_SNAPSHOTS,
    SNAPSHOT_USAGE,
    HeldLayers,
    brought_at,
    clocks_at_start,
)
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock, image_id

ONE, TWO, APP, OTHER = image_id(1), image_id(2), "registry.test/app:1", "registry.test/other:1"

ANSWER = pb.Images(
    each=[pb.Image(name=image_id(1), created_at=pb.Timestamp(seconds=5, nanos=500_000_000))]
)


class Store(MemoryRuntime):
    """A runtime whose image store gives this answer."""

    def __init__(self, answer: bytes | CallError):
        super().__init__(SteppedClock())
        self._answer = answer

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answer, within the time that is left to it, in CRI's namespace."""
        assert method == LIST_IMAGES
        assert pb.ImagesRequest.FromString(request).filters == ['name~="^sha256:"']
        assert seconds <= 2.0
        if isinstance(self._answer, CallError):
            raise self._answer
        return self._answer


def test_the_image_store_tells_since_when_it_has_each_image() -> None:
    """To a part of a second, by id."""
    assert brought_at(Store(ANSWER.SerializeToString())) == {image_id(1): 5.5}


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        CallError(Code.UNIMPLEMENTED, "unknown service"),
        CallError(Code.DEADLINE_EXCEEDED, "late"),
    ],
)
def test_what_is_no_image_store_tells_nothing(answer: bytes | CallError) -> None:
    """Another runtime, or one that does not answer: its images count as new."""
    assert brought_at(Store(answer)) == {}


def test_a_socket_tells_when_its_process_started(tmp_path: Path) -> None:
    """This one, which has run since before it made the socket."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        os.utime(path, (1000.0, 1000.0))
        found = clocks_at_start(path)
    assert found is not None
    seconds_ago, wall = found
    assert wall == 1000.0
    assert 0 < seconds_ago < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_socket_that_nobody_serves_tells_nothing(tmp_path: Path) -> None:
    """Nor does one that is not there."""
    path = str(tmp_path / "s")
    assert clocks_at_start(path) is None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        assert clocks_at_start(path) is None


# ---- what images hold


class Content(MemoryRuntime):
    """A containerd with two images on one base, a container of one of them, and a third record,
    which CRI does not list. `late`: which call is not answered in time."""

    def __init__(self, late: str = "") -> None:
        super().__init__(SteppedClock())
        self.late = late
        self.asked: list[str] = []

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answers of a containerd, as the lists that it streams are joined."""
        self.asked.append(method)
        if method == self.late or seconds <= 0:
            raise CallError(Code.DEADLINE_EXCEEDED, "late")
        return self._answer(method, request).SerializeToString()

    def _answer(self, method: str, request: bytes) -> Message:
        if method == LIST_IMAGES:
            targets = {
                ONE: "m1",
                APP: "m1",
                "registry.test/app@m1": "m1",
                TWO: "index",
                OTHER: "m4",
            }
            return pb.Images(
                each=[
                    pb.Image(name=name, target=pb.Descriptor(digest=to))
                    for name, to in targets.items()
                ]
            )
        if method == LIST_CONTENT:
            info = pb.Content
            config, first, second = (
                f"containerd.io/gc.ref.content{end}" for end in (".config", ".l.0", ".l.1")
            )
            unpacked = "containerd.io/gc.ref.snapshot.overlayfs"
            return pb.Contents(
                each=[
                    info(id="index", size=1, labels={"containerd.io/gc.ref.content.m.0": "m2"}),
                    info(id="m1", size=2, labels={config: ONE, first: "base.gz", second: "one.gz"}),
                    info(
                        id="m2",
                        size=3,
                        labels={config: TWO, first: "base.gz", second: "discarded.gz"},
                    ),
                    info(
                        id="m4",
                        size=4,
                        labels={first: "four.gz", "containerd.io/distribution.source.x": "y"},
                    ),
                    info(id=ONE, size=5, labels={unpacked: "one"}),
                    info(id=TWO, size=6, labels={f"{unpacked}/again": "two"}),
                    info(id="base.gz", size=100),
                    info(id="one.gz", size=10),
                    info(id="four.gz", size=40),
                ]
            )
        if method == LIST_SNAPSHOTS:
            assert pb.SnapshotRequest.FromString(request).snapshotter == "overlayfs"
            committed = {"base": "", "one": "base", "two": "base", "three": "base"}
            listed = [(name, parent, pb.COMMITTED) for name, parent in committed.items()]
            listed.append(("container", "one", pb.ACTIVE))
            return pb.Snapshots(
                each=[
                    pb.Snapshot(id=name, target=parent, kind=kind) for name, parent, kind in listed
                ]
            )
        assert method == SNAPSHOT_USAGE
        sizes = {"base": 300, "one": 30, "two": 20, "three": 70}
        return pb.Usage(size=sizes[pb.SnapshotRequest.FromString(request).key])


def test_an_image_holds_what_the_collector_would_reach_from_it() -> None:
    """Manifest, configuration, layers as they came and unpacked. What other records hold is held;
    what containers use is left to CRI, as an image may go once they have gone."""
    layers = HeldLayers(Content()).read(lambda: 1.0)
    assert layers is not None
    shared = {"content base.gz": 100, "snapshots/overlayfs base": 300}
    one = {
        "content m1": 2,
        f"content {ONE}": 5,
        "content one.gz": 10,
        "snapshots/overlayfs one": 30,
    }
    two = {"content index": 1, "content m2": 3, f"content {TWO}": 6, "snapshots/overlayfs two": 20}
    assert layers.of_images == {ONE: {**one, **shared}, TWO: {**two, **shared}}
    assert layers.held == {"content m4", "content four.gz"}


def test_the_size_of_a_snapshot_is_asked_once() -> None:
    """What is committed never changes, so a second reading takes three calls."""
    runtime = Content()
    held = HeldLayers(runtime)
    first, asked = held.read(lambda: 1.0), len(runtime.asked)
    assert held.read(lambda: 1.0) == first
    assert runtime.asked[asked:] == [LIST_IMAGES, LIST_CONTENT, LIST_SNAPSHOTS]


def test_what_was_told_before_the_time_was_over_is_not_asked_again() -> None:
    """Two sizes at a time: nothing is known until all are."""
    runtime = Content()
    held = HeldLayers(runtime)
    rounds = [held.read(iter([1.0] * 5 + [0.0]).__next__) for _ in range(2)]
    assert [each is None for each in rounds] == [True, False]
    assert runtime.asked.count(SNAPSHOT_USAGE) == 5  # one of them came too late


@pytest.mark.parametrize("late", [LIST_IMAGES, LIST_CONTENT, LIST_SNAPSHOTS, SNAPSHOT_USAGE])
def test_a_list_that_does_not_come_tells_nothing(late: str) -> None:
    """A partial list would make shared layers look unshared."""
    assert HeldLayers(Content(late)).read(lambda: 1.0) is None
