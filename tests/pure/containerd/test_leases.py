"""What is asked of containerd's leases, and what its answers may be."""

from __future__ import annotations

import pytest

from reclaim.containerd import (
    EXPIRE_LABEL,
    ID_PREFIX,
    LEASES_SERVICE,
    NAMESPACE,
    CannotCollect,
    GarbageCollection,
    examine,
    our_leases,
)
from reclaim.cri import leases_pb2 as pb
from reclaim.cri.status import CallError, Code
from reclaim.services import Metadata, RuntimeVersion
from reclaim.types import Action, RemovalFailed, RuntimeUnavailable, Verdict
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock

GARBAGE = Verdict("content", "containerd-garbage", "content", Action.REMOVE, "unreferenced")


class Containerd(MemoryRuntime):
    """A runtime whose leases service answers what is in `answers`, and writes down what it was asked."""

    def __init__(self, answers: dict[str, bytes | CallError]) -> None:
        super().__init__(SteppedClock(at=100.0))
        self.answers = answers
        self.asked: list[tuple[str, bytes, float]] = []

    def call_service(self, method: str, request: bytes, seconds: float, metadata: Metadata) -> bytes:
        """The answer of this method, an empty message if none is given."""
        assert method.startswith(LEASES_SERVICE)
        assert metadata == NAMESPACE
        name = method.removeprefix(LEASES_SERVICE)
        self._called(name)
        self.asked.append((name, request, seconds))
        answer = self.answers.get(name, b"")
        if isinstance(answer, CallError):
            raise answer
        return answer


def listed(*ids: str) -> bytes:
    """An answer of List."""
    return pb.ListResponse(leases=[pb.Lease(id=each) for each in ids]).SerializeToString()


def test_a_server_that_ignores_the_filter_does_not_make_others_leases_ours() -> None:
    """The ids are compared here once more, from their beginning."""
    runtime = Containerd({"List": listed("pull", f"{ID_PREFIX}1", f"a-{ID_PREFIX}2", "", f"{ID_PREFIX}3")})
    assert our_leases(runtime, 1.0) == (f"{ID_PREFIX}1", f"{ID_PREFIX}3")


def test_an_answer_that_is_no_message_is_no_answer() -> None:
    """A sentence, and no lease is made or deleted."""
    runtime = Containerd({"List": b"\xff\xff"})
    with pytest.raises(RuntimeUnavailable, match="leases cannot be listed: INTERNAL: the answer cannot be read"):
        examine("Collect", runtime)
    assert [name for name, _, _ in runtime.asked] == ["List"]


def test_a_runtime_without_a_name_is_not_containerd() -> None:
    """CRI's Version may leave the name out; nothing else is asked."""

    class Nameless(Containerd):
        def version(self) -> RuntimeVersion:
            """No name."""
            return RuntimeVersion("", "1.0")

    runtime = Nameless({})
    with pytest.raises(CannotCollect, match="Collect is for containerd, but the runtime is one without a name"):
        examine("Collect", runtime)
    assert runtime.asked == []


def test_one_run_is_these_calls_within_one_deadline() -> None:
    """Each takes 10 s here: what is left of the 60 s is the deadline of the next; the last one is synchronous."""
    runtime = Containerd({"List": listed(f"{ID_PREFIX}old")})
    runtime.call_seconds = 10.0
    stage = GarbageCollection("Collect", runtime, runtime.clock, 60.0)
    assert stage.present(GARBAGE)
    assert stage.remove(GARBAGE)
    assert not stage.present(GARBAGE)
    assert [(name, seconds) for name, _, seconds in runtime.asked] == [
        ("List", 60.0),
        ("Delete", 50.0),
        ("Create", 40.0),
        ("Delete", 30.0),
    ]
    first, made, last = (request for _, request, _ in runtime.asked[1:])
    assert pb.DeleteRequest.FromString(first) == pb.DeleteRequest(id=f"{ID_PREFIX}old")
    created, deleted = pb.CreateRequest.FromString(made), pb.DeleteRequest.FromString(last)
    assert (deleted.id, deleted.sync) == (created.id, True)
    assert created.id.startswith(ID_PREFIX)
    assert list(created.labels) == [EXPIRE_LABEL]


def test_a_lease_of_an_earlier_run_that_has_just_expired_is_no_failure() -> None:
    """containerd deleted it between the list and its deletion; our own lease is not deleted as quietly."""
    runtime = Containerd({"List": listed(f"{ID_PREFIX}old"), "Delete": CallError(Code.NOT_FOUND, "lease: not found")})
    stage = GarbageCollection("Collect", runtime, runtime.clock, 60.0)
    with pytest.raises(RemovalFailed, match="garbage collection: NOT_FOUND: lease: not found"):
        stage.remove(GARBAGE)
    assert [name for name, _, _ in runtime.asked] == ["List", "Delete", "Create", "Delete"]
    assert stage.present(GARBAGE)
