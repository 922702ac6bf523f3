"""What containerd's image store tells, and what is known of both clocks when a runtime started."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from reclaim.containerd import LIST_IMAGES, brought_at, clocks_at_start
from reclaim.cri import image_store_pb2 as pb
from reclaim.cri.status import CallError, Code
from reclaim.services import Metadata
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock, image_id

ANSWER = pb.ListImagesResponse(
    images=[pb.Image(name=image_id(1), created_at=pb.Timestamp(seconds=5, nanos=500_000_000))]
)


class Store(MemoryRuntime):
    """A runtime whose image store gives this answer."""

    def __init__(self, answer: bytes | CallError):
        super().__init__(SteppedClock())
        self._answer = answer

    def call_service(self, method: str, request: bytes, seconds: float, metadata: Metadata) -> bytes:
        """The answer, within the time that is left to it, in CRI's namespace."""
        assert (method, dict(metadata)) == (LIST_IMAGES, {"containerd-namespace": "k8s.io"})
        assert pb.ListImagesRequest.FromString(request).filters == ['name~="^sha256:"']
        assert seconds <= 2.0
        if isinstance(self._answer, CallError):
            raise self._answer
        return self._answer


def test_the_image_store_tells_since_when_it_has_each_image() -> None:
    """To a part of a second, by id."""
    assert brought_at(Store(ANSWER.SerializeToString())) == {image_id(1): 5.5}


@pytest.mark.parametrize(
    "answer", [b"\xff", CallError(Code.UNIMPLEMENTED, "unknown service"), CallError(Code.DEADLINE_EXCEEDED, "late")]
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
