"""What is asked of containerd's leases, and what its answers may be."""

from __future__ import annotations

import pytest

from reclaim.cri import leases_pb2 as pb
from reclaim.cri.status import CallError, Code
from reclaim.functions.containerd_garbage import (
    EXPIRE_LABEL,
    ID_PREFIX,
    LEASES_SERVICE,
    GarbageCollection,
    examine,
)
from reclaim.services import RuntimeVersion
from reclaim.types import Action, ReclaimError, RemovalFailed, Verdict
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock

GARBAGE = Verdict("content", "containerd-garbage", "content", Action.REMOVE, "unreferenced")


class Containerd(MemoryRuntime):
    """A runtime whose leases service answers what is in `answers`, and
    writes down what it was asked.
    """

    def __init__(self, answers: dict[str, bytes | CallError]) -> None:
        super().__init__(SteppedClock(at=100.0))
        self.answers = answers
        self.asked: list[tuple[str, bytes, float]] = []

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answer of this method, an empty message if none is given."""
        assert method.startswith(LEASES_SERVICE)
        name = method.removeprefix(LEASES_SERVICE)
        self._called(name)
        self.asked.append((name, request, seconds))
        answer = self.answers.get(name, b"")
        if isinstance(answer, CallError):
            raise answer
        return answer


def test_a_runtime_without_a_name_is_not_containerd() -> None:
    """CRI's Version may leave the name out; nothing else is asked."""

    class Nameless(Containerd):
        def version(self) -> RuntimeVersion:
            """No name."""
            return RuntimeVersion("", "1.0")

    runtime = Nameless({})
    with pytest.raises(
        ReclaimError, match="Collect is for containerd, but the runtime is one without a name"
    ):
        examine("Collect", runtime)
    assert runtime.asked == []


def test_one_run_is_these_calls_within_one_deadline() -> None:
    """Each takes 10 s here: what is left of the 60 s is the deadline of the next;
    the last one is synchronous.
    """
    runtime = Containerd({})
    runtime.call_seconds = 10.0
    stage = GarbageCollection("Collect", runtime, runtime.clock, deadline_seconds=60.0)
    assert stage.present(GARBAGE)
    assert stage.remove(GARBAGE)
    assert not stage.present(GARBAGE)
    assert [(name, seconds) for name, _, seconds in runtime.asked] == [
        ("Create", 60.0),
        ("Delete", 50.0),
    ]
    (_, made, _), (_, last, _) = runtime.asked
    created, deleted = pb.CreateRequest.FromString(made), pb.DeleteRequest.FromString(last)
    assert (deleted.id, deleted.sync) == (created.id, True)
    assert created.id.startswith(ID_PREFIX)
    assert list(created.labels) == [EXPIRE_LABEL]


def test_a_lease_that_is_not_there_to_be_deleted_is_a_failure() -> None:
    """Then no run has ended."""
    runtime = Containerd({"Delete": CallError(Code.NOT_FOUND, "lease: not found")})
    stage = GarbageCollection("Collect", runtime, runtime.clock, deadline_seconds=60.0)
    with pytest.raises(RemovalFailed, match="garbage collection: NOT_FOUND: lease: not found"):
        stage.remove(GARBAGE)
    assert stage.present(GARBAGE)
