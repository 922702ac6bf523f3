"""`CollectContainerdGarbage` over a real socket, beside a runtime with content
that is in no list of CRI.
"""

from __future__ import annotations

import time
from datetime import datetime

import grpc
import pytest

from eviction.engine.node import Node
from reclaim.cri import leases_pb2 as pb
from reclaim.functions.containerd_garbage import (
    EXPIRE_LABEL,
    ID_PREFIX,
    OBJECT_ID,
    collect_garbage_function,
    examine,
)
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.types import ReclaimError, RuntimeUnavailable
from signals.types import FilesystemRole, Signal
from tests.nodes.dialects import CONTAINERD_2, CRI_O_1_31, Dialect
from tests.nodes.faults import Delay, Fail
from tests.nodes.small_node import MIB, SmallNode, outcome_of, relieve, result_of
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.passes import fault

NAME = "CollectContainerdGarbage"
Code = grpc.StatusCode
OTHERS = ("moby", "a-pull")


def node_of(
    small: SmallNode, above: int, deadline_seconds: float = 60.0, **options: object
) -> Node:
    """The product under pressure until `above` more MiB are free, with the function
    at the head of every row.
    """
    function = collect_garbage_function(NAME, deadline_seconds, FilesystemRole.NODEFS)
    table = table_of(function, *FUNCTIONS.values())
    return small.node(Signal.NODEFS_AVAILABLE, above * MIB, functions=table, first=NAME, **options)


def add_content(small: SmallNode, *names: str, lease: tuple[str, str] | None = None) -> None:
    """4 MiB of content each."""
    for name in names:
        small.server.leases.add_content(name, 4 * MIB, lease)


def test_what_others_hold_by_a_lease_stays(small_node: SmallNode) -> None:
    """What nothing refers to goes, although containerd takes longer than a removal may; no lease of
    ours is left. It is not enough, and an image goes. A dry run before makes no lease, and promises
    nothing."""
    images = small_node.add_images(2)
    add_content(small_node, "held", lease=OTHERS)
    add_content(small_node, "garbage")
    dry = relieve(node_of(small_node, 6, dry_run=True))
    assert [result_of(dry, each) for each in (OBJECT_ID, *images)] == ["planned"] * 3
    assert small_node.failpoints.calls["LeasesCreate"] == 0
    small_node.failpoints["LeasesDelete"] = Delay(3.5)
    record = relieve(node_of(small_node, 6, removalPatience="3s"))
    assert small_node.server.leases.content == ["held"]
    assert sorted(small_node.server.leases.labels) == [OTHERS]
    assert [result_of(record, each) for each in (OBJECT_ID, images[0])] == ["removed"] * 2


@rows("""
    what                 | method       | fails                           | words
    it fails             | LeasesDelete | Fail UNKNOWN gc failed          | UNKNOWN: gc failed
    whatever it has done | LeasesDelete | ActThenFail NOT_FOUND not found | NOT_FOUND: not found
    no lease is made     | LeasesCreate | Hang                            | not answered within 0.3 s; one that has begun goes on
    it does not end      | LeasesDelete | Hang                            | not answered within 0.3 s; one that has begun goes on
""")
def test_a_run_that_fails_is_an_error_and_the_next_function_goes_on(
    small_node: SmallNode, method: str, fails: str, words: str
) -> None:
    """Each call of a run has a deadline, here of 0.3 s."""
    images = small_node.add_images(2)
    seconds = 0.3 if fails == "Hang" else 60.0
    node = node_of(small_node, 2, deadline_seconds=seconds, read_deadline_seconds=60.0)
    small_node.failpoints[method] = fault(fails)
    with small_node.relieving(node) as going:
        record = going.result(60)
    outcome = outcome_of(record, OBJECT_ID)
    assert (outcome.result, outcome.error) == (
        "failed",
        f"containerd's garbage collection: {words}",
    )
    assert result_of(record, images[0]) == "removed"


def test_a_lease_that_cannot_be_deleted_expires_within_a_minute(
    make_small_node: SmallNodeFactory,
) -> None:
    """The next garbage collection after that deletes it."""
    wall = [time.time()]
    small = make_small_node(wall_clock=lambda: wall[0])
    small.failpoints["LeasesDelete"] = Fail(Code.UNAVAILABLE, "gone")
    relieve(node_of(small, 2))
    leases = small.server.leases
    (lease,) = leases.list({"containerd-namespace": "k8s.io"}, pb.ListRequest()).leases
    assert lease.id.startswith(ID_PREFIX)
    assert 0 <= datetime.fromisoformat(lease.labels[EXPIRE_LABEL]).timestamp() - wall[0] < 600
    for seconds, left in ((0, 1), (660, 0)):
        wall[0] += seconds
        leases.collect_garbage()
        assert len(leases.labels) == left


@pytest.mark.parametrize(
    ("dialect", "sentence"),
    [
        (CRI_O_1_31, "CollectContainerdGarbage is for containerd, but the runtime is cri-o"),
        (
            CONTAINERD_2,
            "CollectContainerdGarbage needs containerd's leases service, but containerd 2.3.4 does not serve it here",
        ),
    ],
)
def test_where_there_is_no_such_garbage_collection_a_sentence_says_so(
    make_small_node: SmallNodeFactory, dialect: Dialect, sentence: str
) -> None:
    """At the start, and in a pass, where the next function goes on."""
    small = make_small_node(dialect=dialect)
    small.failpoints["LeasesList"] = Fail(Code.UNIMPLEMENTED)
    images = small.add_images(2)
    node = node_of(small, 2)
    with pytest.raises(ReclaimError) as refused:
        examine(NAME, node.client)
    assert str(refused.value) == sentence
    record = relieve(node)
    assert record.errors == (sentence,)
    assert result_of(record, images[0]) == "removed"


def test_a_runtime_that_does_not_say_is_no_answer(small_node: SmallNode) -> None:
    """The question makes no lease; its leases cannot be read, or it is away."""
    client = small_node.node().client
    examine(NAME, client)
    assert (small_node.server.leases.labels, small_node.server.leases.collections) == ({}, 0)
    small_node.failpoints["LeasesList"] = Fail(Code.INTERNAL, "database closed")
    unreadable = "leases cannot be listed: INTERNAL: database closed"
    with pytest.raises(RuntimeUnavailable, match=unreadable):
        examine(NAME, client)
    small_node.server.stop()
    with pytest.raises(RuntimeUnavailable, match="Version failed with UNAVAILABLE"):
        examine(NAME, client)
    small_node.server.start()
