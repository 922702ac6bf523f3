"""Functions of the table, rows and filesystems of a configuration, on a node: each is called in
its row, measured and told like the product's own, and what it leaves is for the next one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
from eviction.records.passes import Pass, PassResult
from eviction.surface.daemon import NodeStatus
from eviction.surface.metrics import Metrics
from eviction.types import Threshold
from eviction.wording.configuration_warnings import warnings_on_node
from eviction.wording.explain import outcomes_table
from reclaim.function import (
    ReclaimFunction,
)
from reclaim.functions.ballast import BallastSettings, release_ballast_function
from reclaim.functions.rotated_logs import delete_rotated_logs_function
from reclaim.functions.table import FUNCTIONS, table_of
from signals.types import FilesystemRole, Signal
from tests.full_disk import available, full
from tests.nodes.small_node import MIB, SmallNode, outcome_of, relieve, result_of
from tests.pure.values import value
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.program.scripts import script

CACHE = Signal("buildcache.available")
PRUNE = "prune"
NODEFS = FilesystemRole.NODEFS
OLD = (1_700_000_000.0,) * 2


def pressed(small: SmallNode, function: ReclaimFunction, above: int, **options: Any) -> Node:
    """The product under pressure until `above` more is free, with the function at the head of every
    row."""
    signal = options.pop("signal", Signal.NODEFS_AVAILABLE)
    options.update(functions=table_of(function, *FUNCTIONS.values()), first=function.name)
    return small.node(signal, above, **options)


# ---- a function at the head of a row


def a_ballast(small: SmallNode) -> ReclaimFunction:
    """Of 8 MiB."""
    settings = BallastSettings(str(small.disk / "ballast"), 8 * MIB)
    assert create_ballast(settings)[0].problem == ""
    return release_ballast_function("ReleaseBallast", settings, NODEFS)


def rotated_logs(small: SmallNode) -> ReclaimFunction:
    """Four of 2 MiB that may go, of two containers that run; the newest of each stays."""
    for name, days in (("web", (1, 3, 6)), ("db", (2, 4, 5))):
        log = small.log(name, small.run(small.run_pod(name)))
        log.with_name("0.log.20261121-120000").unlink()
        for day in days:
            path = log.with_name(f"0.log.202611{day:02}-120000.gz")
            path.write_bytes(os.urandom(2 * MIB))
            os.utime(path, OLD)
    return delete_rotated_logs_function("DeleteRotatedLogs", 1, NODEFS)


Make = Callable[[SmallNode], ReclaimFunction]
WHAT_GOES: dict[Make, tuple[int, int, int, list[tuple[str, str, str]], str]] = {
    a_ballast: (8, 6, 8, [("ballast", "{disk}/ballast", "set_aside")], "was set aside to be freed"),
    rotated_logs: (
        8,
        3,
        4,
        [
            ("rotated_log", "default/web/app/0.log.20261101-120000.gz", "rotated"),
            ("rotated_log", "default/db/app/0.log.20261102-120000.gz", "rotated"),
        ],
        "a newer rotated log of its container is kept",
    ),
}
"""How many MiB it has, how many are wanted and freed; what goes for them, and how that is said."""


def tree(directory: Path) -> set[Path]:
    """Everything below it."""
    return set(directory.rglob("*"))


def removals(record: Pass) -> list[tuple[str, str, str, str | None]]:
    """Kind, name, reason and result of what the record of a pass has."""
    return [
        (each["kind"], each["name"], each["reason"], each["result"])
        for each in to_json(pass_json(record))["removals"]
    ]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("make", WHAT_GOES)
def test_it_goes_in_its_row_until_the_disk_is_relieved(
    small_node: SmallNode, make: Make, dry_run: bool
) -> None:
    """As much as is wanted, and no image; a dry run credits what it promises, and removes none."""
    _, wanted, freed, objects, sentence = WHAT_GOES[make]
    function, images = make(small_node), small_node.add_images(2)
    before = tree(small_node.disk)
    record = relieve(pressed(small_node, function, wanted * MIB, dry_run=dry_run))
    result = "planned" if dry_run else "removed"
    assert removals(record) == [
        (kind, name.format(disk=small_node.disk), reason, result) for kind, name, reason in objects
    ]
    assert sentence in outcomes_table(record.removals)[1]
    assert set(images) <= small_node.images()
    assert len(before - tree(small_node.disk)) == (0 if dry_run else len(objects))
    if dry_run:
        assert record.reason.startswith(f"would free ~{freed:.1f}MiB with ")
        assert record.reason.endswith(" available, enough")
    else:
        assert record.result is PassResult.SATISFIED
        assert record.measured.bytes == freed * MIB
        assert {outcome.freed.bytes for outcome in record.removals} == {freed * MIB // len(objects)}
        document = to_json(pass_json(record))
        assert document["row"][0] == function.name
        if make is rotated_logs:
            assert document["kept_by_reason"] == {"current": 2, "newest_rotated": 2, "relieved": 2}


@pytest.mark.parametrize("inodes", [False, True], ids=["0 bytes", "0 inodes"])
@pytest.mark.parametrize("make", WHAT_GOES)
def test_a_full_disk_is_relieved(small_node: SmallNode, make: Make, inodes: bool) -> None:
    """Unlinking needs neither a byte nor an inode."""
    _, wanted, freed, objects, _ = WHAT_GOES[make]
    function = make(small_node)
    signal = Signal.NODEFS_INODES_FREE if inodes else Signal.NODEFS_AVAILABLE
    with full(small_node.disk, inodes=inodes):
        above = len(objects) if inodes else wanted * MIB
        record = relieve(pressed(small_node, function, above, signal=signal))
        gained = len(objects) if inodes else freed * MIB
        assert available(small_node.disk, inodes=inodes) == gained
    assert record.result is PassResult.SATISFIED


@pytest.mark.parametrize("make", WHAT_GOES)
def test_what_is_not_enough_is_left_to_the_next_function(small_node: SmallNode, make: Make) -> None:
    """All of it goes, and then one image."""
    function, images = make(small_node), small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    record = relieve(pressed(small_node, function, (WHAT_GOES[make][0] + 2) * MIB))
    assert record.result is PassResult.SATISFIED
    kinds = [kind for kind, *_ in removals(record)]
    assert kinds == [WHAT_GOES[make][3][0][0]] * (len(kinds) - 1) + ["image"]
    assert small_node.images() & set(images) == {images[1]}


def test_what_is_not_the_ballast_is_an_error_and_the_next_function_goes_on(
    small_node: SmallNode,
) -> None:
    """Of the pass, in its record; the file in its place stays."""
    function, (image,) = a_ballast(small_node), small_node.add_images(1)
    os.truncate(small_node.disk / "ballast", MIB)
    record = relieve(pressed(small_node, function, 2 * MIB))
    told = f"is not the ballast: it has {MIB} bytes, and the ballast has {8 * MIB}"
    assert told in record.errors[0]
    assert result_of(record, image) == "removed"
    assert (small_node.disk / "ballast").exists()


def test_while_a_process_holds_it_open_nothing_comes_free_and_the_next_function_goes_on(
    small_node: SmallNode,
) -> None:
    """The measuring says so: it was removed, and freed nothing."""
    function, images = a_ballast(small_node), small_node.add_images(3)
    with open(small_node.disk / "ballast", "rb"):
        record = relieve(pressed(small_node, function, 6 * MIB))
    ballast = outcome_of(record, str(small_node.disk / "ballast"))
    assert (str(ballast.result), ballast.freed.bytes) == ("removed", 0)
    assert [result_of(record, image) for image in images[:2]] == ["removed", "removed"]
    assert record.result is PassResult.SATISFIED


def test_its_name_and_its_kinds_are_labels_of_the_metrics(small_node: SmallNode) -> None:
    """From the first scrape on, as those of the others."""
    node = pressed(small_node, a_ballast(small_node), 2 * MIB)
    metrics = Metrics(NodeStatus, functions=node.functions)
    for removed in ("0.0", "1.0"):
        text = metrics.page({}).body.decode()
        assert f'reclaimd_removals_total{{kind="ballast",result="removed"}} {removed}' in text
        metrics.passed(relieve(node))


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


@pytest.mark.parametrize(("below", "called"), [(7, True), (-1, False)])
def test_a_function_that_waits_is_called_below_its_own_mark(
    small_node: SmallNode, tmp_path: Path, below: int, called: bool
) -> None:
    """That it was not is the reason why a pass did not do more."""
    waits = {"function": PRUNE, "below": f"{small_node.available() + below * MIB}e0"}
    program = script(tmp_path, f"touch {tmp_path}/called")
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        30 * MIB,
        reclaimFunctions=[entry(frees="nodefs", path=program)],
        reclaimTable={"nodefs.available": ["DeleteUnusedImages", waits]},
    )
    record = relieve(node)
    assert ((tmp_path / "called").exists(), record.result) == (called, PassResult.NOT_ENOUGH)
    told = "nodefs.available is not below"
    assert (f"{PRUNE} was not called: {told}" in record.reason) is not called
    skipped = to_json(pass_json(record))["functions"][-1]["skipped"]
    assert str(skipped).startswith(told) is not called


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


def test_each_function_of_the_configuration_is_called_in_its_row(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A program, ballast, rotated logs and containerd's garbage make the room; no image goes."""
    a_ballast(small_node)
    rotated_logs(small_node)
    small_node.server.leases.add_content("left-behind", 4 * MIB)
    cached = small_node.disk / "cached"
    cached.write_bytes(b"x" * 4 * MIB)
    images = set(small_node.add_images(2))
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        23 * MIB,
        reclaimFunctions=[
            entry(frees="nodefs", path=script(tmp_path, f"rm {cached}")),
            {"name": "DeleteRotatedLogs", "keep": 1},
            {"name": "CollectContainerdGarbage"},
            {"name": "ReleaseBallast", "file": str(small_node.disk / "ballast"), "size": "8Mi"},
        ],
        reclaimTable={
            "nodefs.available": [
                *(PRUNE, "DeleteRotatedLogs", "CollectContainerdGarbage", "ReleaseBallast"),
                "DeleteUnusedImages",
            ]
        },
    )
    assert node.function_problems() == ()
    record = relieve(node)
    freed = {function.operation: function.measured.bytes // MIB for function in record.functions}
    assert freed == {
        PRUNE: 4,
        "DeleteRotatedLogs": 8,
        "CollectContainerdGarbage": 4,
        "ReleaseBallast": 8,
    }
    assert record.result is PassResult.SATISFIED
    assert images <= small_node.images()


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
