"""Rotated logs in the table of a node: they go in their row until the disk is relieved,
whatever the runtime does.
"""

from __future__ import annotations

import os
from pathlib import Path

from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.wording.explain import outcomes_table
from reclaim.functions.rotated_logs import delete_rotated_logs_function
from reclaim.functions.table import FUNCTIONS, table_of
from signals.types import FilesystemRole, Signal
from tests.full_disk import available, full
from tests.nodes.small_node import MIB, SmallNode, relieve

FUNCTION = "DeleteRotatedLogs"
OLD = 1_700_000_000.0


def logging_pod(small: SmallNode, name: str, *days: int) -> Path:
    """A pod that runs, with its current log and rotated ones of 2 MiB; the directory of them."""
    pod = small.run_pod(name)
    directory = small.log(name, small.run(pod)).parent
    for path in directory.iterdir():
        if path.name != "0.log":
            path.unlink()
    for day in days:
        path = directory / f"0.log.202611{day:02}-120000.gz"
        path.write_bytes(os.urandom(2 * MIB))
        os.utime(path, (OLD, OLD))
    return directory


def node_of(
    small: SmallNode, above: int, signal: Signal = Signal.NODEFS_AVAILABLE, **options: object
) -> Node:
    """The product on this node, with rotated logs first in every row, under pressure
    until `above` more is free.
    """
    function = delete_rotated_logs_function(FUNCTION, 1, FilesystemRole.NODEFS)
    return small.node(
        signal,
        above,
        functions=table_of(function, *FUNCTIONS.values()),
        first=FUNCTION,
        **options,
    )


def test_the_oldest_go_until_the_disk_is_relieved(small_node: SmallNode) -> None:
    """3 MiB are wanted of two pods that run: two of four go, and the record says
    which, why, and what came free.
    """
    web, db = logging_pod(small_node, "web", 1, 3, 6), logging_pod(small_node, "db", 2, 4, 5)
    images = small_node.add_images(2)
    record = relieve(node_of(small_node, 3 * MIB))
    assert (len(os.listdir(web)), len(os.listdir(db))) == (3, 3)
    assert set(images) <= small_node.images()
    assert (record.result, record.measured.bytes) == (PassResult.SATISFIED, 4 * MIB)
    document = to_json(pass_json(record))
    assert [
        (each["kind"], each["name"], each["reason"], each["result"])
        for each in document["removals"]
    ] == [
        ("rotated_log", "default/web/app/0.log.20261101-120000.gz", "rotated", "removed"),
        ("rotated_log", "default/db/app/0.log.20261102-120000.gz", "rotated", "removed"),
    ]
    assert [each["freed"]["bytes"] for each in document["removals"]] == [2 * MIB] * 2
    assert document["kept_by_reason"] == {"current": 2, "newest_rotated": 2, "relieved": 2}
    assert "a newer rotated log of its container is kept" in outcomes_table(record.removals)[1]


def test_a_dry_run_removes_none(small_node: SmallNode) -> None:
    """Two are planned."""
    web = logging_pod(small_node, "web", 1, 2, 3)
    record = relieve(node_of(small_node, 3 * MIB, dry_run=True))
    assert [str(outcome.result) for outcome in record.removals] == ["planned", "planned"]
    assert len(os.listdir(web)) == 4


def test_a_full_disk_is_relieved(small_node: SmallNode) -> None:
    """At 0 bytes."""
    web = logging_pod(small_node, "web", 1, 2, 3)
    with full(small_node.disk, inodes=False):
        record = relieve(node_of(small_node, 3 * MIB))
        assert available(small_node.disk, inodes=False) == 4 * MIB
    assert record.result is PassResult.SATISFIED
    assert sorted(os.listdir(web)) == ["0.log", "0.log.20261103-120000.gz"]


def test_a_disk_without_inodes_is_relieved(small_node: SmallNode) -> None:
    """At 0 inodes."""
    logging_pod(small_node, "web", 1, 2, 3)
    with full(small_node.disk, inodes=True):
        record = relieve(node_of(small_node, 2, Signal.NODEFS_INODES_FREE))
        assert available(small_node.disk, inodes=True) == 2
    assert record.result is PassResult.SATISFIED


def test_what_is_not_enough_is_left_to_the_next_function(small_node: SmallNode) -> None:
    """One log of 2 MiB may go, and 4 MiB are wanted: an image goes as well."""
    web = logging_pod(small_node, "web", 1, 2)
    small_node.add_images(1)
    record = relieve(node_of(small_node, 4 * MIB))
    assert [outcome.verdict.kind for outcome in record.removals] == ["rotated_log", "image"]
    assert record.result is PassResult.SATISFIED
    assert len(os.listdir(web)) == 2
