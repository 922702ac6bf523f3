"""Functions of the table, rows and filesystems of a configuration, on a node: each is called in
its row, measured and told like the product's own, and what it leaves is for the next one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.private_mounts import unmount
from eviction.engine.ballast import create_ballast
from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.surface.daemon import NodeStatus
from eviction.surface.metrics import Metrics
from eviction.wording.explain import outcomes_table
from reclaim.functions.ballast import BallastSettings
from reclaim.functions.caches import SIGNATURE
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.program.scripts import script
from tests.sockets.stage import Stage

PRUNE, BALLAST, LOGS = "prune", "ReleaseBallast", "DeleteRotatedLogs"
OLD = (1_700_000_000.0,) * 2


# ---- a function at the head of a row


def a_ballast(small: SmallNode) -> dict[str, Any]:
    """Of 8 MiB."""
    path = str(small.disk / "ballast")
    assert create_ballast(BallastSettings(path, 8 * MIB))[0].problem == ""
    return {"name": BALLAST, "file": path, "size": "8Mi"}


def rotated_logs(small: SmallNode) -> dict[str, Any]:
    """Four of 2 MiB that may go, of two containers that run; the newest of each stays."""
    for name, days in (("web", (1, 3, 6)), ("db", (2, 4, 5))):
        log = small.log(name, small.run(small.run_pod(name)))
        log.with_name("0.log.20261121-120000").unlink()
        for day in days:
            path = log.with_name(f"0.log.202611{day:02}-120000.gz")
            path.write_bytes(os.urandom(2 * MIB))
            os.truncate(path, 1 << 30)  # what is not allocated does not count
            os.utime(path, OLD)
    return {"name": LOGS, "keep": 1}


def node_with(small: SmallNode, above: int, *entries: dict[str, Any], **options: Any) -> Node:
    """The product under pressure until `above` more is free, with these functions before that of
    images."""
    row = [*(entry["name"] for entry in entries), "DeleteUnusedImages"]
    options |= {"reclaimFunctions": [*entries], "reclaimTable": {"nodefs.available": row}}
    return small.node(Signal.NODEFS_AVAILABLE, above, **options)


@pytest.mark.parametrize("dry_run", [False, True])
def test_it_goes_in_its_row_until_the_disk_is_relieved(
    small_node: SmallNode, dry_run: bool
) -> None:
    """As much as is wanted, and no image; a dry run credits what it promises, and removes none."""
    logs, images = rotated_logs(small_node), small_node.add_images(2)
    before = {*small_node.disk.rglob("*")}
    record = relieve(node_with(small_node, 3 * MIB, logs, dry_run=dry_run))
    document = to_json(pass_json(record))
    oldest = ("web/app/0.log.20261101-120000.gz", "db/app/0.log.20261102-120000.gz")
    result = "planned" if dry_run else "removed"
    assert [
        (each["kind"], each["name"], each["reason"], each["result"])
        for each in document["removals"]
    ] == [("rotated_log", f"default/{name}", "rotated", result) for name in oldest]
    told = outcomes_table(record.removals)[1]
    assert "a newer rotated log of its container is kept" in told
    assert set(images) <= small_node.images()
    assert len(before - {*small_node.disk.rglob("*")}) == (0 if dry_run else 2)
    assert document["row"][0] == LOGS
    assert document["kept_by_reason"] == {"current": 2, "newest_rotated": 2, "relieved": 2}
    if dry_run:
        assert record.reason.startswith("would free ~4.0MiB with ")
        assert record.reason.endswith(" available, enough")
    else:
        assert record.result is PassResult.SATISFIED
        assert record.measured.bytes == 4 * MIB
        assert {each.freed.bytes for each in record.removals} == {2 * MIB}


def test_each_function_of_the_configuration_is_called_in_its_row(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A program, rotated logs, a cache, containerd's garbage and ballast make the room, and the rest
    is made by one image; their names and kinds are labels of the metrics from the first scrape
    on."""
    small_node.server.leases.add_content("left-behind", 4 * MIB)
    cached = small_node.disk / "cached"
    cached.write_bytes(b"x" * 4 * MIB)
    hub = small_node.disk / "hub"
    for name, content in (("CACHEDIR.TAG", SIGNATURE), ("models--a/x", b"x" * 2 * MIB)):
        (hub / name).parent.mkdir(parents=True, exist_ok=True)
        (hub / name).write_bytes(content)
    entries = (
        {"name": PRUNE, "exec": [script(tmp_path, f"rm {cached}")], "frees": "nodefs"},
        rotated_logs(small_node),
        {"name": "DeleteFromCaches", "caches": [str(hub)], "minAge": "0s"},
        {"name": "CollectContainerdGarbage"},
        a_ballast(small_node),
    )
    images = small_node.add_images(2)
    node = node_with(small_node, 28 * MIB, *entries)
    assert node.function_problems() == ()
    metrics = Metrics(NodeStatus, functions=node.functions)
    ballast = 'reclaimd_removals_total{kind="ballast",result="removed"} '
    assert f"{ballast}0.0" in metrics.page({}).body.decode()
    record = relieve(node)
    metrics.passed(record)
    assert f"{ballast}1.0" in metrics.page({}).body.decode()
    freed = [each.measured.bytes // MIB for each in record.functions]
    assert [each.operation for each in record.functions] == list(record.row)
    assert (freed, record.result) == ([4, 8, 2, 4, 8, 4], PassResult.SATISFIED)
    assert small_node.images() & set(images) == {images[1]}


# ---- filesystems, rows and functions of the configuration


def test_what_the_configuration_says_is_relieved_by_its_rows_and_told(stage: Stage) -> None:
    """Beside the node's disk there is a filesystem of 64 MiB in `buildcache`. A program is told
    what is missing now; why a function was not called, what a row cannot do, and what cannot be
    called, is said."""
    directory = str(stage.directory / "buildcache")
    mounted_tmpfs(directory, 64 * MIB, 4000)
    try:
        stage.plays()
    finally:
        unmount(directory)
