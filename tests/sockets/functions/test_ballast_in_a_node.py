"""The ballast in the table of a node: it is released in its row, measured, and relieves a
disk without a free byte.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from eviction.engine.ballast import create_ballast
from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.wording.explain import outcomes_table
from reclaim.functions.ballast import BallastRefused, BallastSettings, release_ballast_function
from reclaim.functions.table import FUNCTIONS, table_of
from signals.types import FilesystemRole, Signal
from tests.full_disk import available, full
from tests.nodes.small_node import MIB, SmallNode, outcome_of, relieve, result_of

RELEASE = "ReleaseBallast"
SIZE = 8 * MIB


@pytest.fixture
def settings(small_node: SmallNode) -> BallastSettings:
    """A ballast of 8 MiB on the node's disk."""
    made = BallastSettings(str(small_node.disk / "ballast"), SIZE)
    assert create_ballast(made)[0].problem == ""
    return made


def node_of(
    small: SmallNode,
    settings: BallastSettings,
    above: int,
    signal: Signal = Signal.NODEFS_AVAILABLE,
    **options: object,
) -> Node:
    """The product on this node, with the ballast first in every row, under pressure
    until `above` more is free.
    """
    function = release_ballast_function(RELEASE, settings, FilesystemRole.NODEFS)
    return small.node(
        signal,
        above,
        functions=table_of(function, *FUNCTIONS.values()),
        first=RELEASE,
        **options,
    )


def test_it_is_released_and_measured_and_nothing_else_goes(
    small_node: SmallNode, settings: BallastSettings
) -> None:
    """6 MiB are wanted: the ballast goes, the images stay, and the record has what came free."""
    images = small_node.add_images(2)
    record = relieve(node_of(small_node, settings, 6 * MIB))
    assert not os.path.lexists(settings.path)
    assert set(images) <= small_node.images()
    assert (record.result, record.measured.bytes) == (PassResult.SATISFIED, SIZE)
    (removal,) = to_json(pass_json(record))["removals"]
    assert {key: removal[key] for key in ("kind", "id", "reason", "result", "size")} == {
        "kind": "ballast",
        "id": settings.path,
        "reason": "set_aside",
        "result": "removed",
        "size": SIZE,
    }
    assert removal["freed"]["bytes"] == SIZE
    assert outcomes_table(record.removals)[1].endswith("was set aside to be freed under pressure")


def test_a_dry_run_credits_it_and_leaves_it(
    small_node: SmallNode, settings: BallastSettings
) -> None:
    """It is planned, and its bytes are enough."""
    small_node.add_images(2)
    record = relieve(node_of(small_node, settings, 6 * MIB, dry_run=True))
    assert [outcome.verdict.id for outcome in record.removals] == [settings.path]
    assert result_of(record, settings.path) == "planned"
    assert os.path.lexists(settings.path)


@pytest.mark.parametrize("inodes", [False, True], ids=["0 bytes", "0 inodes"])
def test_a_disk_without_a_free_byte_or_inode_is_relieved(
    small_node: SmallNode, settings: BallastSettings, inodes: bool
) -> None:
    """Unlinking needs neither."""
    signal = Signal.NODEFS_INODES_FREE if inodes else Signal.NODEFS_AVAILABLE
    with full(small_node.disk, inodes=inodes):
        assert available(small_node.disk, inodes=inodes) == 0
        record = relieve(node_of(small_node, settings, 1 if inodes else 6 * MIB, signal))
        assert available(small_node.disk, inodes=inodes) == (1 if inodes else SIZE)
    assert (record.result, result_of(record, settings.path)) == (PassResult.SATISFIED, "removed")


def test_while_a_process_holds_it_open_nothing_comes_free_and_the_next_function_goes_on(
    small_node: SmallNode, settings: BallastSettings
) -> None:
    """The measuring says so: it was removed, and freed nothing."""
    images = small_node.add_images(3)
    with ExitStack() as stack:
        stack.enter_context(open(settings.path, "rb"))
        record = relieve(node_of(small_node, settings, 6 * MIB))
    ballast = outcome_of(record, settings.path)
    assert (str(ballast.result), ballast.freed.bytes) == ("removed", 0)
    assert [result_of(record, image) for image in images[:2]] == ["removed", "removed"]
    assert record.result is PassResult.SATISFIED


def test_what_is_not_the_ballast_is_an_error_of_the_pass_and_the_next_function_goes_on(
    small_node: SmallNode, settings: BallastSettings
) -> None:
    """Another file was put in its place."""
    (image,) = small_node.add_images(1)
    os.truncate(settings.path, MIB)
    record = relieve(node_of(small_node, settings, 2 * MIB))
    assert f"is not the ballast: it has {MIB} bytes, and the ballast has {SIZE}" in record.errors[0]
    assert result_of(record, image) == "removed"
    assert os.path.lexists(settings.path)


def test_what_others_take_meanwhile_must_leave_the_mark(small_node: SmallNode) -> None:
    """There was room for it twice over above 16 MiB when it was begun, and now it is
    less: nothing of it is left.
    """
    settings = BallastSettings(str(small_node.disk / "ballast"), SIZE)
    there: list[str] = []

    def allocate(descriptor: int, offset: int, size_bytes: int) -> None:
        os.posix_fallocate(descriptor, offset, size_bytes)
        small_node.fill(small_node.available() - 15 * MIB)
        there.extend(os.listdir(small_node.disk))

    with pytest.raises(BallastRefused, match="others took the space meanwhile"):
        create_ballast(settings, 16 * MIB, allocate=allocate)
    assert os.listdir(small_node.disk) == there
