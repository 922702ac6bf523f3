"""`CollectContainerdGarbage` over a real socket, beside a runtime with content
that is in no list of CRI.
"""

from __future__ import annotations

import os
import time
from datetime import datetime

import grpc
import pytest

from eviction.engine.node import Node
from eviction.records.passes import Pass, PassResult
from reclaim.cri import leases_pb2 as pb
from reclaim.functions.containerd_garbage import (
    EXPIRE_LABEL,
    ID_PREFIX,
    OBJECT_ID,
    GarbageCollection,
    collect_garbage_function,
    examine,
)
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.types import ReclaimError, RemovalFailed, RuntimeUnavailable
from signals.clock import SystemClock
from signals.types import FilesystemRole, Signal
from tests.nodes.dialects import CONTAINERD_2, CRI_O_1_31, Dialect
from tests.nodes.faults import ActThenFail, Delay, Fail, Failpoint, Hang
from tests.nodes.small_node import MIB, SmallNode, outcome_of, relieve, result_of
from tests.sockets.conftest import SmallNodeFactory

NAME = "CollectContainerdGarbage"
K8S = {"containerd-namespace": "k8s.io"}
OTHERS = ("moby", "a-pull")


def node_of(
    small: SmallNode, above: int, deadline_seconds: float = 60.0, **options: object
) -> Node:
    """The product under pressure until `above` more bytes are free, with the function
    at the head of every row.
    """
    function = collect_garbage_function(NAME, deadline_seconds, FilesystemRole.NODEFS)
    return small.node(
        Signal.NODEFS_AVAILABLE,
        above,
        functions=table_of(function, *FUNCTIONS.values()),
        first=NAME,
        **options,
    )


def add_content(small: SmallNode, *names: str, lease: tuple[str, str] | None = None) -> None:
    """4 MiB of content each."""
    for name in names:
        small.server.leases.add_content(name, 4 * MIB, lease)


def failure(record: Pass) -> str:
    """Why the garbage collection failed."""
    outcome = outcome_of(record, OBJECT_ID)
    assert outcome.result == "failed"
    return outcome.error


def test_what_nothing_refers_to_goes_before_an_image(small_node: SmallNode) -> None:
    """6 MiB are wanted, and containerd frees 8 MiB; the record has one
    object, and no lease is left.
    """
    images = small_node.add_images(2)
    add_content(small_node, "a", "b")
    record = relieve(node_of(small_node, 6 * MIB))
    outcome = outcome_of(record, OBJECT_ID)
    assert (outcome.verdict.kind, outcome.verdict.reason, outcome.result) == (
        "content",
        "unreferenced",
        "removed",
    )
    assert 8 * MIB <= outcome.freed.bytes < 9 * MIB
    assert record.result is PassResult.SATISFIED
    assert small_node.server.leases.content == []
    assert set(images) <= small_node.images()
    assert (sorted(small_node.server.leases.labels), small_node.server.leases.collections) == (
        [],
        1,
    )


def test_what_others_hold_by_a_lease_stays(small_node: SmallNode) -> None:
    """It is not enough, and the images go."""
    images = small_node.add_images(2)
    add_content(small_node, "held", lease=OTHERS)
    add_content(small_node, "garbage")
    record = relieve(node_of(small_node, 6 * MIB))
    assert small_node.server.leases.content == ["held"]
    assert sorted(small_node.server.leases.labels) == [OTHERS]
    assert result_of(record, images[0]) == "removed"


def test_a_dry_run_makes_no_lease(small_node: SmallNode) -> None:
    """One planned object that promises nothing, so that the images of the row are planned too."""
    images = small_node.add_images(1)
    add_content(small_node, "a", "b")
    record = relieve(node_of(small_node, 2 * MIB, dry_run=True))
    assert [result_of(record, each) for each in (OBJECT_ID, *images)] == ["planned", "planned"]
    assert small_node.server.leases.content == ["a", "b"]
    assert (
        small_node.failpoints.calls["LeasesCreate"]
        == small_node.failpoints.calls["LeasesDelete"]
        == 0
    )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            Fail(grpc.StatusCode.UNKNOWN, "gc failed"),
            "containerd's garbage collection: UNKNOWN: gc failed",
        ),
        (
            ActThenFail(grpc.StatusCode.NOT_FOUND, "not found"),
            "containerd's garbage collection: NOT_FOUND: not found",
        ),
    ],
)
def test_a_run_that_fails_is_an_error_and_the_next_function_goes_on(
    small_node: SmallNode, fault: Failpoint, words: str
) -> None:
    """containerd says so, whatever it has done."""
    images = small_node.add_images(2)
    small_node.failpoints["LeasesDelete"] = fault
    record = relieve(node_of(small_node, 2 * MIB))
    assert failure(record) == words
    assert result_of(record, images[0]) == "removed"


def test_a_lease_that_cannot_be_deleted_expires_within_a_minute(
    make_small_node: SmallNodeFactory,
) -> None:
    """The next garbage collection after that deletes it."""
    wall = [time.time()]
    small = make_small_node(wall_clock=lambda: wall[0])
    small.failpoints["LeasesDelete"] = Fail(grpc.StatusCode.UNAVAILABLE, "gone")
    relieve(node_of(small, 2 * MIB))
    ((_, lease_id),) = sorted(small.server.leases.labels)
    (lease,) = small.server.leases.list(K8S, pb.ListRequest()).leases
    assert lease_id == lease.id
    assert lease.id.startswith(ID_PREFIX)
    assert 0 <= datetime.fromisoformat(lease.labels[EXPIRE_LABEL]).timestamp() - wall[0] < 600
    small.server.leases.collect_garbage()
    assert sorted(small.server.leases.labels) == [("k8s.io", lease_id)]
    wall[0] += 660
    small.server.leases.collect_garbage()
    assert sorted(small.server.leases.labels) == []


@pytest.mark.parametrize("method", ["LeasesCreate", "LeasesDelete"])
def test_a_run_that_does_not_end_has_a_deadline(small_node: SmallNode, method: str) -> None:
    """Whichever of the calls hangs: the images of the row go."""
    images = small_node.add_images(2)
    node = node_of(small_node, 2 * MIB, deadline_seconds=0.3, read_deadline_seconds=60.0)
    node.locate()
    small_node.failpoints[method] = Hang()
    with small_node.relieving(node) as going:
        record = going.result(60)
    assert (
        failure(record)
        == "containerd's garbage collection: not answered within 0.3 s; one that has begun goes on"
    )
    assert result_of(record, images[0]) == "removed"


def test_a_long_run_is_waited_for_although_removals_are_not(small_node: SmallNode) -> None:
    """Removals are parked after a second here; containerd takes longer, and
    frees what is wanted.
    """
    images = small_node.add_images(1)
    add_content(small_node, "a")
    small_node.failpoints["LeasesDelete"] = Delay(1.5)
    record = relieve(node_of(small_node, 2 * MIB, removalPatience="1s"))
    assert result_of(record, OBJECT_ID) == "removed"
    assert (record.result, small_node.images() & set(images)) == (PassResult.SATISFIED, set(images))


@pytest.mark.parametrize(
    ("dialect", "sentence"),
    [
        (CRI_O_1_31, "CollectContainerdGarbage is for containerd, but the runtime is cri-o"),
        (
            CONTAINERD_2,
            (
                "CollectContainerdGarbage needs containerd's leases service, but containerd 2.3.4"
                " does not serve it here"
            ),
        ),
    ],
)
def test_where_there_is_no_such_garbage_collection_a_sentence_says_so(
    make_small_node: SmallNodeFactory, dialect: Dialect, sentence: str
) -> None:
    """At the start, and in a pass, where the next function goes on."""
    small = make_small_node(dialect=dialect)
    small.failpoints["LeasesList"] = Fail(grpc.StatusCode.UNIMPLEMENTED)
    images = small.add_images(2)
    node = node_of(small, 2 * MIB)
    with pytest.raises(ReclaimError) as refused:
        examine(NAME, node.client)
    assert str(refused.value) == sentence
    record = relieve(node)
    assert record.errors == (sentence,)
    assert result_of(record, images[0]) == "removed"


def test_a_socket_that_changes_hands_is_not_asked_for_a_run(small_node: SmallNode) -> None:
    """Every user may connect to it since the plan."""
    stage = GarbageCollection(NAME, small_node.node().client, SystemClock(), deadline_seconds=60.0)
    (verdict,) = stage.plan().remove
    os.chmod(small_node.server.socket_path, 0o666)  # noqa: S103 # what is to be refused
    with pytest.raises(RemovalFailed, match="is not trusted"):
        stage.remove(verdict)
    assert stage.present(verdict)
    assert small_node.failpoints.calls["LeasesList"] == 1


def test_beside_containerd_there_is_no_problem_and_nothing_is_changed(
    small_node: SmallNode,
) -> None:
    """The question makes no lease."""
    examine(NAME, small_node.node().client)
    assert (sorted(small_node.server.leases.labels), small_node.server.leases.collections) == (
        [],
        0,
    )


def test_a_runtime_that_does_not_say_is_no_answer(small_node: SmallNode) -> None:
    """It is away, or its leases cannot be read."""
    client = small_node.node().client
    small_node.failpoints["LeasesList"] = Fail(grpc.StatusCode.INTERNAL, "database closed")
    with pytest.raises(
        RuntimeUnavailable, match="leases cannot be listed: INTERNAL: database closed"
    ):
        examine(NAME, client)
    small_node.server.stop()
    with pytest.raises(RuntimeUnavailable, match="Version failed with UNAVAILABLE"):
        examine(NAME, client)
    small_node.server.start()
