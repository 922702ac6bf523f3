"""What XFS allocated ahead goes first: a pass beside a helper that gives back, or does not.

The disk is no XFS here. Its summary says that it is, and another implementation of the helper's protocol deletes a file
that stands for what was allocated ahead. A real XFS is in `tests/real_node/test_xfs.py`.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from reclaim.xfs.client import DEADLINE_SECONDS, ReleaseResult
from reclaim.xfs.release import SHORTEST_PAUSE_SECONDS

from eviction.drill.runtime.failpoints import Delay
from eviction.node.node import Node
from eviction.record import PassResult, Trigger
from eviction.reporting.explain import pass_lines
from eviction.reporting.pass_record import pass_json
from eviction.reporting.status import NodeStatus
from eviction.telemetry.metrics import Metrics
from reclaim.types import Result
from signals.summary import NodeSummary
from signals.types import FilesystemIdentity, Signal, SignalObservations
from tests.nodes.small_node import EVERYTHING, MIB, SmallNode, relieve
from tests.nodes.xfs_helper import OtherHelper

FUNCTION = "ReleaseSpeculativePreallocation"
ROW = [FUNCTION, "DeleteAllUnusedContainers", "DeleteUnusedImages"]


class XfsSummary(NodeSummary):
    """A summary of filesystems that it calls XFS, mounted where their paths are."""

    def observe(self) -> SignalObservations:
        """What is there, as if it were XFS."""

        def as_xfs(identity: FilesystemIdentity) -> FilesystemIdentity:
            return replace(identity, type="xfs", mount_point=identity.path)

        seen = super().observe()
        return replace(
            seen,
            filesystems={role: (as_xfs(where), stats) for role, (where, stats) in seen.filesystems.items()},
            signals={
                signal: replace(one, filesystem=None if one.filesystem is None else as_xfs(one.filesystem))
                for signal, one in seen.signals.items()
            },
        )


class Ahead:
    """Space on a small node that counts as used, until it is given back: the first of `amounts` (bytes) at once, each
    further one at the first request after one more object was removed."""

    def __init__(self, small: SmallNode, socket: str, *amounts: int):
        self._small = small
        small.run(small.run_pod("web"))  # the image of the node's own application is in use
        self._files = [small.disk / f"ahead-{number}" for number in range(len(amounts))]
        for file, amount in zip(self._files, amounts, strict=True):
            file.write_bytes(os.urandom(amount))
        self.socket = socket
        self._given = 0

    def give_back(self, request: bytes) -> bytes:
        """The reply of a helper."""
        assert request == b"release " + os.fsencode(self._small.root_directory)
        if self._files and len(self._small.runtime.removals) >= self._given:
            self._files.pop(0).unlink()
            self._given += 1
        return b"ok"

    def node(self, above: int, **options: object) -> Node:
        """The product, under pressure until `above` more bytes are free."""
        return self._small.node(
            Signal.NODEFS_AVAILABLE,
            above,
            **{"summarize": XfsSummary, "xfsHelperSocket": self.socket, "xfs_helper_seconds": 30.0, **options},
        )


@pytest.fixture
def socket_path() -> Iterator[str]:
    """A path that leaves room for a name."""
    with TemporaryDirectory() as short:
        yield str(Path(short) / "s")


def test_it_relieves_alone_where_that_is_enough_and_nothing_is_asked_of_the_runtime(
    small_node: SmallNode, socket_path: str
) -> None:
    """6 MiB are wanted and 8 MiB were allocated ahead: no list, no removal, and the record has the measured bytes."""
    images = small_node.add_images(2)
    ahead = Ahead(small_node, socket_path, 8 * MIB)
    with OtherHelper(socket_path, ahead.give_back) as helper:
        node = ahead.node(6 * MIB)
        calls: list[str] = []
        node.locate()
        observations, decision = node.responder.synchronize()
        node.on_call = lambda call, *_: calls.append(call)
        record = node.responder.reclaim(observations, decision, Trigger.INTERVAL)
    assert len(helper.requests) == 1
    assert calls == []
    assert set(images) <= small_node.images()
    assert (record.result, len(record.removals)) == (PassResult.SATISFIED, 0)
    assert record.measured_bytes == 8 * MIB
    document = pass_json(record)
    assert document["row"] == ROW
    where = [str(small_node.root_directory)]
    assert document["released"] == {"bytes": 8 * MIB, "inodes": 1, "calls": 1, "mount_points": where, "skipped": None}
    assert record.reason.startswith("XFS gave back 8.0MiB that it had allocated ahead of files that grow, on ")
    assert "removed 0 objects, freed 8.0MiB and 1 inode; no threshold is met any more" in record.reason
    metrics = Metrics(lambda: NodeStatus(None, frozenset(), (), 0.0, 0.0, 0.0, xfs_releases=node.preallocation.counts))
    metrics.count_pass(record)
    text = metrics.page().body.decode()
    assert f'reclaimd_reclaimed_bytes_total{{kind="measured",operation="{FUNCTION}"}}' in text
    assert f'reclaimd_reclaim_duration_seconds_count{{operation="{FUNCTION}"}} 1.0' in text
    assert 'reclaimd_xfs_releases_total{result="released"} 1.0' in text


def test_only_what_is_still_missing_is_removed_and_no_object_counts_what_xfs_gave(
    small_node: SmallNode, socket_path: str
) -> None:
    """10 MiB are wanted, 7 were allocated ahead: one image of three goes, and what it freed is its own."""
    images = small_node.add_images(3)
    ahead = Ahead(small_node, socket_path, 7 * MIB)
    with OtherHelper(socket_path, ahead.give_back):
        record = relieve(ahead.node(10 * MIB))
    assert [outcome.verdict.id for outcome in record.removals] == images[:1]
    assert record.result is PassResult.SATISFIED
    assert 4 * MIB <= record.removals[0].freed_bytes < 5 * MIB
    assert record.released is not None
    assert record.released.bytes == 7 * MIB
    assert record.measured_bytes == 7 * MIB + record.removals[0].freed_bytes


def test_it_is_called_again_between_removals_and_that_is_nobodys_gain(small_node: SmallNode, socket_path: str) -> None:
    """30 MiB are wanted; 4 MiB come back first, and 20 MiB after a removal: fewer images go than without it, and what a
    removal freed is measured without them."""
    small_node.add_images(8)
    small_node.failpoints["RemoveImage"] = Delay(2 * SHORTEST_PAUSE_SECONDS)
    ahead = Ahead(small_node, socket_path, 4 * MIB, 20 * MIB)
    with OtherHelper(socket_path, ahead.give_back) as helper:
        record = relieve(ahead.node(30 * MIB))
    assert record.result is PassResult.SATISFIED
    assert len(helper.requests) >= 2
    removed = [outcome for outcome in record.removals if outcome.result is Result.REMOVED]
    assert 1 <= len(removed) < 7, "26 MiB would be seven images"
    assert all(4 * MIB <= outcome.freed_bytes < 5 * MIB for outcome in removed)
    assert record.released is not None
    assert record.released.bytes == 24 * MIB
    assert record.measured_bytes == 24 * MIB + sum(outcome.freed_bytes for outcome in removed)


def refusing(answer: bytes) -> Callable[[bytes], bytes]:
    return lambda _: answer


@pytest.mark.parametrize(
    ("answer", "result", "words"),
    [
        (b"EPERM", ReleaseResult.NOT_PERMITTED, "lacks CAP_SYS_ADMIN"),
        (b"ENOTTY", ReleaseResult.NOT_SUPPORTED, "has no XFS_IOC_FREE_EOFBLOCKS"),
        (b"not-listed", ReleaseResult.NOT_LISTED, "not among the mount points that its command line names"),
        (b"not-xfs", ReleaseResult.NOT_XFS, "another filesystem than XFS"),
        (b"not-a-mount-point", ReleaseResult.NOT_A_MOUNT_POINT, "no mount point"),
        (b"EIO", ReleaseResult.FAILED, "'EIO'"),
        (b"\x1b[31m" + b"\xff" * 5000, ReleaseResult.FAILED, r"\\xff"),
    ],
)
def test_whatever_the_helper_answers_relief_goes_on_and_says_why_it_was_left_out(
    small_node: SmallNode, socket_path: str, answer: bytes, result: ReleaseResult, words: str
) -> None:
    """Each answer has a sentence of its own, is counted once, and costs nothing else; it is no error of the pass."""
    images = small_node.add_images(2)
    with OtherHelper(socket_path, refusing(answer)) as helper:
        node = Ahead(small_node, socket_path).node(2 * MIB)
        record = relieve(node)
    assert [outcome.verdict.id for outcome in record.removals] == images[:1]
    assert (record.result, record.errors, len(helper.requests)) == (PassResult.SATISFIED, (), 1)
    assert record.released is not None
    assert words in record.released.skipped
    assert record.released.calls == 0
    assert any(line.startswith(f"{FUNCTION} was skipped: ") for line in pass_lines(record))
    assert {name: count for name, count in node.preallocation.counts.items() if count} == {result: 1}


def test_without_a_helper_relief_goes_on_and_says_so(small_node: SmallNode, socket_path: str) -> None:
    """Nothing listens; then a socket that nobody serves any more."""
    small_node.add_images(2)
    record = relieve(Ahead(small_node, socket_path).node(2 * MIB))
    assert record.result is PassResult.SATISFIED
    assert record.released is not None
    assert record.released.skipped == f"no XFS helper answers at {socket_path}: No such file or directory"


def test_a_helper_that_hangs_holds_up_relief_for_a_moment_and_then_is_left_out(
    small_node: SmallNode, socket_path: str
) -> None:
    """One request in a pass, given up after 100 ms; a pass right after it does not ask at all."""
    small_node.add_images(3)
    with OtherHelper(socket_path, lambda _: None) as helper:
        node = Ahead(small_node, socket_path).node(6 * MIB, xfs_helper_seconds=DEADLINE_SECONDS)
        node.prepare()
        began = time.monotonic()
        record = relieve(node)
        took = time.monotonic() - began
        assert (len(helper.requests), len(record.removals)) == (1, 2)
        relieve(node)
        assert len(helper.requests) <= 1 + int(time.monotonic() - began)
    assert record.result is PassResult.SATISFIED
    assert took < 30.0
    assert record.released is not None
    assert record.released.skipped == f"the XFS helper at {socket_path} did not answer within 100 ms"
    assert node.preallocation.counts[ReleaseResult.LATE] >= 1


def test_a_late_answer_is_never_that_of_another_request(small_node: SmallNode, socket_path: str) -> None:
    """The first answer comes when nobody waits for it; after the pause the helper is asked over a new connection."""

    def late(_: bytes) -> bytes:
        time.sleep(0.5)
        return b"EPERM"

    with OtherHelper(socket_path, late) as helper:
        client = Ahead(small_node, socket_path).node(2 * MIB, xfs_helper_seconds=0.05).xfs_helper
        assert client.release("/a").result is ReleaseResult.LATE
        assert client.release("/b").result is ReleaseResult.LATE
    client = Ahead(small_node, socket_path).node(2 * MIB).xfs_helper
    with OtherHelper(socket_path, refusing(b"ok")):
        assert client.release("/c").result is ReleaseResult.RELEASED
    assert helper.requests == [b"release /a", b"release /b"]


def test_a_helper_that_was_started_anew_is_found_again_within_one_request(
    small_node: SmallNode, socket_path: str
) -> None:
    """The old connection has ended; nothing is lost."""
    client = Ahead(small_node, socket_path).node(2 * MIB).xfs_helper
    with OtherHelper(socket_path, refusing(b"ok")):
        client.connect()
        assert client.release("/a").result is ReleaseResult.RELEASED
    with OtherHelper(socket_path, refusing(b"ok")):
        assert client.release("/b").result is ReleaseResult.RELEASED
    assert client.release("/c").result is ReleaseResult.NO_HELPER


def test_a_dry_run_calls_nothing_and_says_that_it_would_be_called_first(
    small_node: SmallNode, socket_path: str
) -> None:
    """Then what it cannot know of stays out of the reckoning: images are planned as without it."""
    small_node.add_images(2)
    ahead = Ahead(small_node, socket_path, 8 * MIB)
    with OtherHelper(socket_path, ahead.give_back) as helper:
        record = relieve(ahead.node(2 * MIB, dry_run=True))
    assert helper.requests == []
    assert record.result is PassResult.DRY_RUN
    where = f"on {small_node.root_directory}"
    assert record.reason.startswith(
        f"would first have XFS give back what it allocated ahead of files that grow, {where}; would remove 1 object"
    )
    assert record.released is not None
    assert (record.released.calls, record.released.skipped) == (0, "")


def test_with_an_empty_field_no_row_names_it(small_node: SmallNode) -> None:
    """`xfsHelperSocket: ""`: the rows are the kubelet's."""
    small_node.add_images(2)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, 2 * MIB, summarize=XfsSummary))
    assert (list(record.row), record.released, record.result) == (ROW[1:], None, PassResult.SATISFIED)


def test_a_call_needs_no_new_descriptor(small_node: SmallNode, socket_path: str) -> None:
    """The connection is there since the start."""
    client = Ahead(small_node, socket_path).node(2 * MIB).xfs_helper
    with OtherHelper(socket_path, refusing(b"ok")):
        client.connect()
        assert client.release("/a").result is ReleaseResult.RELEASED
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))  # poll(2) wants 1
        try:
            answer = client.release("/b")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert answer.result is ReleaseResult.RELEASED


def test_a_request_for_every_function_says_that_it_is_switched_off(small_node: SmallNode) -> None:
    """The row of a request may name it although the configuration has no socket."""
    small_node.add_images(1)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, MIB, summarize=XfsSummary), EVERYTHING)
    assert record.released is not None
    assert (record.released.calls, record.released.skipped) == (0, "xfsHelperSocket is empty")
    assert record.reason.startswith("removed ")
