"""Functions of the table, rows and filesystems of a configuration, on a node: each is called in
its row, measured and told like the product's own, and what it leaves is for the next one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.effective import load
from eviction.drill.private_mounts import unmount
from eviction.engine.ballast import create_ballast
from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.surface.daemon import NodeStatus
from eviction.surface.metrics import Metrics
from eviction.types import Threshold
from eviction.wording.configuration_warnings import warnings_on_node
from eviction.wording.explain import outcomes_table
from reclaim.functions.ballast import BallastSettings
from reclaim.functions.caches import SIGNATURE
from signals.types import Signal
from tests.full_disk import available
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.pure.values import value
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.program.scripts import script

CACHE = Signal("buildcache.available")
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
        entry(frees="nodefs", path=script(tmp_path, f"rm {cached}")),
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


# ---- filesystems and rows of the configuration


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MiB of its own."""
    directory = tmp_path / "buildcache"
    mounted_tmpfs(str(directory), 64 * MIB, 4000)
    yield directory
    unmount(str(directory))


def entry(name: str = PRUNE, frees: str = "buildcache", path: str = "/bin/true") -> dict[str, Any]:
    """An entry of `reclaimFunctions`."""
    return {"name": name, "exec": [path], "frees": frees}


def cache_fields(cache: Path) -> dict[str, Any]:
    """A configuration by which 6 MiB are wanted there, and a program removes 8 of 16."""
    for number in range(4):
        (cache / f"{number}").write_bytes(os.urandom(4 * MIB))
    program = script(cache.parent, f"rm {cache}/[01]")
    return {
        "filesystems": [{"name": "buildcache", "path": str(cache)}],
        "reclaimFunctions": [entry(path=program)],
        "reclaimTable": {str(CACHE): [PRUNE]},
        "evictionHard": {str(CACHE): f"{available(cache, inodes=False) + 6 * MIB}e0"},
        "evictionMinimumReclaim": {str(CACHE): "0"},
    }


def test_a_filesystem_of_ones_own_is_relieved_by_its_own_row(
    small_node: SmallNode, cache: Path
) -> None:
    """Two files go, no image, and the node reports no pressure."""
    images = small_node.add_images(2)
    record = relieve(small_node.node(**cache_fields(cache)))
    assert sorted(os.listdir(cache)) == ["2", "3"]
    assert set(images) <= small_node.images()
    assert (record.result, record.decision.conditions) == (PassResult.SATISFIED, frozenset())
    document = to_json(pass_json(record))
    assert document["row"] == [PRUNE]
    (function,) = document["functions"]
    freed = {"bytes": 8 * MIB, "inodes": 2}
    assert (function["name"], function["measured"]) == (PRUNE, freed)
    assert (function["removed"], function["relieved"], function["skipped"]) == (1, True, None)
    assert [one["signal"] for one in document["observations"]][-2:] == [
        str(CACHE),
        "buildcache.inodesFree",
    ]


def test_a_machine_without_a_runtime_is_relieved(cache: Path) -> None:
    """Nobody is asked where images are, and `/var/lib/kubelet` need not be there."""
    machine = {
        "kubeletConfig": "",
        "containerRuntimeEndpoint": "none",
        "rootDirectory": "/does-not-exist",
        "stateFile": "",
    }
    node = Node(load(None, {}, {**machine, **cache_fields(cache)}))
    try:
        assert node.locate() is None
        record = relieve(node)
    finally:
        node.close()
    assert record.result is PassResult.SATISFIED
    assert record.observations.unavailable == ()
    assert set(record.observations.signals) == {CACHE, Signal("buildcache.inodesFree")}


def test_why_a_function_that_waits_was_not_called_is_told(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Below its own mark it would have been: a reason why the pass did not do more."""
    waits = {"function": PRUNE, "below": f"{small_node.available() - MIB}e0"}
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        30 * MIB,
        reclaimFunctions=[entry(frees="nodefs", path=script(tmp_path, f"touch {tmp_path}/called"))],
        reclaimTable={"nodefs.available": ["DeleteUnusedImages", waits]},
    )
    record = relieve(node)
    assert ((tmp_path / "called").exists(), record.result) == (False, PassResult.NOT_ENOUGH)
    told = "nodefs.available is not below"
    assert f"{PRUNE} was not called: {told}" in record.reason
    skipped = to_json(pass_json(record))["functions"][-1]["skipped"]
    assert str(skipped).startswith(told)


def test_rows_that_cannot_relieve_their_signal_are_told(small_node: SmallNode, cache: Path) -> None:
    """A function that frees elsewhere, and a row whose signal has no threshold;
    what is right is not told.
    """
    node = small_node.node(
        filesystems=[{"name": "buildcache", "path": str(cache)}],
        reclaimFunctions=[entry(), entry("elsewhere", "nodefs"), {"name": "DeleteRotatedLogs"}],
        reclaimTable={
            str(CACHE): [PRUNE, "elsewhere", "DeleteUnusedImages"],
            "buildcache.inodesFree": [PRUNE],
            "nodefs.available": ["DeleteRotatedLogs", "DeleteUnusedImages"],
        },
        evictionHard={str(CACHE): "1Mi", "nodefs.available": "1Mi"},
    )
    node.locate()
    found = list(warnings_on_node(node.configuration, node.summary.observe()))
    assert [sentence.partition(":")[0] for sentence in found] == [
        "elsewhere frees nothing where buildcache.available is short",
        "DeleteUnusedImages frees nothing where buildcache.available is short",
        "nothing calls the row of buildcache.inodesFree",
    ]


# ---- functions as the configuration makes them


def test_a_program_is_told_what_is_missing_now(small_node: SmallNode, tmp_path: Path) -> None:
    """Under pressure with the minimum reclaim, of inodes, and of a pass that was requested as by
    `reclaimd reclaim --signal S --until V`."""
    small_node.add_images(3)  # so much may be missing
    path = script(tmp_path, f"env | grep ^RECLAIMD_ > {tmp_path}/told")

    until = Threshold(Signal.NODEFS_AVAILABLE, value(str(small_node.available() + 5 * MIB)))
    requested = Request(row=(PRUNE,), until=(until,))
    for signal, above, request, *missing in (
        (Signal.NODEFS_AVAILABLE, 6 * MIB, None, 8 * MIB, 0),
        (Signal.NODEFS_INODES_FREE, 100, None, 0, 100),
        (None, 5 * MIB, requested, 5 * MIB, 0),
    ):
        node = small_node.node(
            signal,
            above,
            evictionMinimumReclaim={"nodefs.available": "2Mi"},
            reclaimFunctions=[entry(frees="nodefs", path=path)],
            reclaimTable={"nodefs.available": [PRUNE], "nodefs.inodesFree": [PRUNE]},
        )
        record = relieve(node, request)
        lines = (tmp_path / "told").read_text().splitlines()
        told = dict(line.removeprefix("RECLAIMD_").split("=", 1) for line in lines)
        assert (told["PASS_ID"], told["DRY_RUN"]) == (record.id, "false")
        assert told["FILESYSTEM"] == str(small_node.disk)
        assert told["SIGNAL"] == str(signal or Signal.NODEFS_AVAILABLE)
        assert int(told["AVAILABLE"]) + above == int(told["MARK"])
        assert [int(told["MISSING_BYTES"]), int(told["MISSING_INODES"])] == missing


def test_what_cannot_be_called_is_told(small_node: SmallNode, tmp_path: Path) -> None:
    """Each by its name with one sentence, for doctor and for the start."""
    (small_node.disk / "ballast").mkdir()
    path = script(tmp_path, "true", mode=0o777)
    node = small_node.node(
        reclaimFunctions=[
            entry(frees="nodefs", path=path),
            entry("gone", "nodefs", str(tmp_path / "gone")),
            {"name": "ReleaseBallast", "file": str(small_node.disk / "ballast"), "size": "4Mi"},
            {"name": "DeleteRotatedLogs"},
        ],
        podLogsDir=str(tmp_path / "no-logs"),
    )
    found = dict(node.function_problems())
    assert "every user may write it" in found[PRUNE]
    assert "No such file" in found["gone"]
    assert "ballast" in found["ReleaseBallast"]
    assert set(found) <= {PRUNE, "gone", "ReleaseBallast", "DeleteRotatedLogs"}
