"""Functions of the configuration as the node makes them: what a program is told, what cannot be
called, and the daemon with a table of the user's own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from eviction.engine.ballast import create_ballast
from eviction.engine.effects import Request
from eviction.engine.relief import pressure_of
from eviction.engine.step import new_pass
from eviction.records.passes import PassResult, Trigger
from eviction.types import Threshold
from reclaim.functions.ballast import BallastSettings
from signals.interval import FillRate
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.pure.values import filling, value

TOLD = "told"


def program(directory: Path, text: str, name: str = "prune") -> str:
    """A program of this text; its path."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def tells(tmp_path: Path) -> dict[str, Any]:
    """Fields of a configuration with a program that writes what it is told."""
    path = program(tmp_path, f"env | grep ^RECLAIMD_ | sort > {tmp_path / TOLD}")
    return {
        "reclaimFunctions": [{"name": "prune", "exec": [path], "frees": "nodefs"}],
        "reclaimTable": {"nodefs.available": ["prune"], "nodefs.inodesFree": ["prune"]},
    }


def told(tmp_path: Path) -> dict[str, str]:
    """What it was told, without the prefix."""
    lines = (tmp_path / TOLD).read_text().splitlines()
    return dict(line.removeprefix("RECLAIMD_").split("=", 1) for line in lines)


def test_a_program_is_told_what_is_missing_now(small_node: SmallNode, tmp_path: Path) -> None:
    """Signal, filesystem, what is available, the mark, what is missing with the
    minimum reclaim, and the pass.
    """
    small_node.add_images(3)  # so much may be missing
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        6 * MIB,
        evictionMinimumReclaim={"nodefs.available": "2Mi"},
        **tells(tmp_path),
    )
    record = relieve(node)
    found = told(tmp_path)
    assert found["SIGNAL"] == "nodefs.available"
    assert found["FILESYSTEM"] == str(small_node.disk)
    assert int(found["AVAILABLE"]) + 6 * MIB == int(found["MARK"])
    assert (found["MISSING_BYTES"], found["MISSING_INODES"]) == (str(8 * MIB), "0")
    assert (found["PASS_ID"], found["DRY_RUN"]) == (record.id, "false")


def test_a_program_is_told_of_what_a_fill_writes_meanwhile(small_node: SmallNode) -> None:
    """Of a filesystem that falls by 3 MiB a second, a second's worth more; nothing
    where nothing is missing.
    """
    node = small_node.node(Signal.NODEFS_AVAILABLE, 6 * MIB)
    node.locate()
    observations = node.summary.observe()
    where = observations.signals[Signal.NODEFS_AVAILABLE].filesystem
    assert where is not None
    _, decision = node.look()
    world = node.world._replace(
        fill_rates={(where.device_id, False): filling(FillRate(0, 0.0), 3.0 * MIB)}
    )
    (mark,) = node.configuration.thresholds
    for acted_on, missing in ((mark, 9 * MIB), (Threshold(Signal.NODEFS_AVAILABLE, value("1")), 0)):
        one = replace(decision, acted_on=acted_on, row=("DeleteUnusedImages",))
        _, the = new_pass(world, Trigger.INTERVAL, Request(), decision=one)
        assert abs(pressure_of(the, world).missing_bytes - missing) < 1024


def test_a_program_is_told_of_inodes(small_node: SmallNode, tmp_path: Path) -> None:
    """In inodes, and no bytes are missing."""
    relieve(small_node.node(Signal.NODEFS_INODES_FREE, 100, **tells(tmp_path)))
    found = told(tmp_path)
    assert (found["SIGNAL"], found["MISSING_BYTES"], found["MISSING_INODES"]) == (
        "nodefs.inodesFree",
        "0",
        "100",
    )


def test_a_requested_pass_tells_the_mark_that_was_requested(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """As `reclaimd reclaim --signal S --until V`."""
    node = small_node.node(**tells(tmp_path))
    node.locate()
    until = Threshold(Signal.NODEFS_AVAILABLE, value(str(small_node.available() + 5 * MIB)))
    relieve(node, Request(row=("prune",), until=(until,)))
    assert (told(tmp_path)["SIGNAL"], told(tmp_path)["MISSING_BYTES"]) == (
        "nodefs.available",
        str(5 * MIB),
    )


def test_each_function_of_the_configuration_is_called_in_its_row(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A program, ballast, rotated logs and containerd's garbage make the room; no image goes."""
    ballast = BallastSettings(str(small_node.disk / "ballast"), 4 * MIB)
    create_ballast(ballast)
    small_node.server.leases.add_content("left-behind", 4 * MIB)
    pod = small_node.run_pod("web")
    log = small_node.log("web", small_node.run(pod))
    for hour in range(3):
        rotated = log.with_name(f"0.log.20261121-0{hour}0000")
        rotated.write_bytes(b"x" * 2 * MIB)
        os.utime(rotated, (1.0, 1.0))
    cached = small_node.disk / "cached"
    cached.write_bytes(b"x" * 4 * MIB)
    images = set(small_node.add_images(2))
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        17 * MIB,
        reclaimFunctions=[
            {"name": "prune", "exec": [program(tmp_path, f"rm {cached}")], "frees": "nodefs"},
            {"name": "DeleteRotatedLogs", "keep": 1},
            {"name": "CollectContainerdGarbage"},
            {"name": "ReleaseBallast", "file": ballast.path, "size": "4Mi"},
        ],
        reclaimTable={
            "nodefs.available": [
                *("prune", "DeleteRotatedLogs", "CollectContainerdGarbage", "ReleaseBallast"),
                "DeleteUnusedImages",
            ]
        },
    )
    assert node.function_problems() == ()
    record = relieve(node)
    freed = {function.operation: function.measured.bytes // MIB for function in record.functions}
    assert freed == {
        "prune": 4,
        "DeleteRotatedLogs": 6,
        "CollectContainerdGarbage": 4,
        "ReleaseBallast": 4,
    }
    assert record.result is PassResult.SATISFIED
    assert images <= small_node.images()
    assert log.exists()


def test_what_cannot_be_called_is_told(small_node: SmallNode, tmp_path: Path) -> None:
    """Each by its name with one sentence, for doctor and for the start."""
    path = program(tmp_path, "true")
    Path(path).chmod(0o777)
    (small_node.disk / "ballast").mkdir()
    node = small_node.node(
        reclaimFunctions=[
            {"name": "prune", "exec": [path], "frees": "nodefs"},
            {"name": "gone", "exec": [str(tmp_path / "gone")], "frees": "nodefs"},
            {"name": "ReleaseBallast", "file": str(small_node.disk / "ballast"), "size": "4Mi"},
            {"name": "DeleteRotatedLogs"},
        ],
        podLogsDir=str(tmp_path / "no-logs"),
    )
    found = dict(node.function_problems())
    assert "every user may write it" in found["prune"]
    assert "No such file" in found["gone"]
    assert "ballast" in found["ReleaseBallast"]
    assert set(found) <= {"prune", "gone", "ReleaseBallast", "DeleteRotatedLogs"}
