"""`reclaimd drill` as a command: as root, in a user namespace, and where no mount is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from eviction.drill.report.document import report_of
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.scenario import read_scenario
from eviction.records.json_shapes import to_json
from tests.drill.runs import run
from tests.reclaimd_process import ENVIRONMENT, answer, reclaimd, reclaimd_here
from tests.repository import ROOT
from tests.sockets.mounts import need_mounts

SCENARIO: dict[str, Any] = {
    "name": "small",
    "why": "A small disk that fills is relieved.",
    "node": {
        "size": "48Mi",
        "inodes": 2000,
        "images": [
            {"name": "registry.k8s.io/pause", "size": "64Ki", "age": "720h"},
            {"name": "registry.example/web", "size": "4Mi", "files": 10},
            {"name": "registry.example/old", "count": 4, "size": "6Mi", "age": "2h"},
        ],
        "pods": [
            {"name": "web", "image": "registry.example/web:1", "state": "running"},
            {"name": "crashed", "image": "registry.example/web:1", "state": "crashed"},
        ],
        "evictionHard": {"nodefs.available": "10%"},
    },
    "pressure": {"grows": "bytes", "rate": "40Mi", "amount": "14Mi"},
    "expect": {
        "relievedWithin": "5s",
        "goes": ["registry.example/old-01:1"],
        "stays": ["registry.example/web:1", "default/web/app#0", "default/crashed/app#1"],
        "imagesLeftAtLeast": 3,
    },
}


def scenario(directory: Path, **changes: Any) -> str:
    """A file of the small scenario; `changes` replace entries of its parts
    (`expect={"stays": …}`).
    """
    document = {**SCENARIO, **changes}
    for part in ("node", "pressure", "expect"):
        document[part] = {**SCENARIO[part], **changes.get(part, {})}
    path = directory / "scenario.yaml"
    path.write_text(json.dumps(document))
    return str(path)


def as_less(way: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`reclaimd drill` by a process without capabilities, or one that may not
    even have a user namespace.
    """
    return subprocess.run(
        [sys.executable, "-m", "tests.sockets.drill_child", way, *arguments],
        cwd=str(ROOT),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
    )


def assert_report(directory: Path, name: str, printed: dict[str, Any]) -> None:
    """The JSON file is what was printed; what else is in the directory is well-formed."""
    assert json.loads((directory / f"drill-{name}.json").read_text()) == printed
    for path in directory.glob("*.xml"):
        ElementTree.fromstring(path.read_text())  # noqa: S314 # our own file
    assert {"scenario", "held", "checks", "passes", "timeline"} <= set(printed)
    assert printed["timeline"], "the run was sampled"
    points = [point["seconds"] for point in printed["timeline"]]
    assert points == sorted(points)
    removals = [outcome for record in printed["passes"] for outcome in record["removals"]]
    assert any(outcome["result"] == "removed" for outcome in removals)


def test_the_drill_as_root_holds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """A tmpfs, a fill, relief, everything held, and a report; exit 0. Neither the mount nor its
    directory is left, no socket, only the report."""
    need_mounts()
    with TemporaryDirectory() as temporary:  # short, for the name of the runtime's socket
        arguments = (scenario(tmp_path), "-o", "json", "--report", str(tmp_path / "report"))
        process = reclaimd("drill", *arguments, TMPDIR=temporary)
        assert process.returncode == 0, process.stderr
        assert os.listdir(temporary) == []
    printed = answer(process)
    assert printed["held"]
    assert "as root" in printed["filesystem"]
    assert_report(tmp_path / "report", "small", printed)


def test_the_drill_in_a_user_namespace_holds(tmp_path: Path) -> None:
    """Without any capability the filesystem is mounted in a user namespace, and
    everything else is the same.
    """
    process = as_less(
        "without-capabilities",
        scenario(tmp_path),
        "-o",
        "json",
        "--report",
        str(tmp_path / "report"),
    )
    if process.returncode == 2:
        pytest.skip(f"needs unprivileged user namespaces: {process.stderr}")
    assert process.returncode == 0, process.stderr
    printed = answer(process)
    assert "in a user namespace" in printed["filesystem"]
    assert_report(tmp_path / "report", "small", printed)


def test_the_drill_where_no_mount_is_allowed_is_refused(tmp_path: Path) -> None:
    """One sentence says why, and nothing is written."""
    process = as_less("locked-down", scenario(tmp_path), "--report", str(tmp_path / "report"))
    assert process.returncode == 2, process.stderr + process.stdout
    assert "needs filesystems of its own" in process.stderr
    assert "user namespace" in process.stderr, "and why"
    assert not (tmp_path / "report").exists()


def test_a_drill_tells_its_story_in_a_few_lines(tmp_path: Path) -> None:
    """What fills, what was crossed, what went and stayed, and the verdict, the files, the next
    step; -v 1 adds each pass, object and expectation, -v 2 the log."""
    need_mounts()
    path = scenario(tmp_path)

    def lines(*more: str) -> tuple[list[str], str]:
        process = reclaimd("drill", path, "--report", str(tmp_path / "report"), *more)
        assert process.returncode == 0, process.stderr
        return process.stdout.splitlines(), process.stderr

    shown, errors = lines()
    head, *rows, written, following = shown
    assert errors == ""
    assert head == "small: A small disk that fills is relieved."
    words = [row.split()[0] for row in rows]
    assert words[:4] == ["node", "filled", "crossed", "row"]
    assert words[-2:] == ["relief", "ok"]
    assert {"removed", "kept"} <= set(words)
    assert len(shown) <= 15
    assert written.startswith("report: ")
    assert f"drill {path} -v 1" in following, "as a command that can be copied"
    shown, errors = lines("-v", "1")
    assert errors == ""
    assert any(line.startswith("RESULT   KIND") for line in shown)
    assert any(line.startswith("keep ") for line in shown)
    assert any(line.startswith("HELD  WHAT") for line in shown)
    assert [line.split()[0] for line in shown[-3:]] == ["relief", "ok", "report:"]
    assert "Attempting to reclaim" in lines("-v", "2")[1]


def test_a_drill_of_inodes_holds(tmp_path: Path) -> None:
    """Empty files use up the inodes, and removing the image of many small files frees them."""
    images = [
        *SCENARIO["node"]["images"][:2],
        {"name": "registry.example/old", "count": 3, "size": "1Mi", "files": 300},
    ]
    path = scenario(
        tmp_path,
        node={"images": images, "evictionHard": {"nodefs.inodesFree": "20%"}},
        pressure={"grows": "inodes", "rate": "2000", "amount": "800"},
        expect={"imagesLeftAtLeast": 2},
    )
    result = run(read_scenario(path))
    assert result.held, result.checks
    acted_on = [each["acted_on"] for each in to_json(report_of(result))["passes"]]
    assert {threshold["signal"] for threshold in acted_on if threshold is not None} == {
        "nodefs.inodesFree"
    }


def test_a_drill_whose_expectations_do_not_hold_exits_with_1(tmp_path: Path) -> None:
    """Each failed check, and no other, shows what was expected and what was measured; the
    report is written anyway.
    """
    # the one stays, the other never was
    goes = ["registry.example/web:1", "registry.example/nothing:1"]
    stays = ["registry.example/old-01:1"]  # it goes
    # fewer are left
    path = scenario(tmp_path, expect={"goes": goes, "stays": stays, "imagesLeftAtLeast": 6})
    process = reclaimd("drill", path, "-o", "json", "--report", str(tmp_path / "report"))
    assert process.returncode == 1
    printed = answer(process)
    assert printed["held"] is False
    failed = [check for check in printed["checks"] if not check["held"]]
    assert [check["name"] for check in failed] == ["images left", *goes, *stays]
    assert all(check["expected"] and check["seen"] for check in failed)
    assert any(check["held"] for check in printed["checks"])
    assert_report(tmp_path / "report", "small", printed)


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown field": ({"speed": "fast"}, ["speed", "pressure"]),
    "an unknown field of the node": ({"node": {"disk": "1Gi"}}, ["node.disk"]),
    "an unknown signal": (
        {"node": {"evictionHard": {"rootfs.available": "5%"}}},
        ["rootfs.available", "nodefs.available"],
    ),
    "a value that is none": (
        {"node": {"evictionHard": {"nodefs.available": "lots"}}},
        ["nodefs.available", "lots"],
    ),
    "an image that is missing": (
        {
            "node": {
                "pods": [{"name": "web", "image": "registry.example/absent:1", "state": "running"}]
            }
        },
        ["web", "registry.example/absent:1"],
    ),
    "an unknown state": (
        {
            "node": {
                "pods": [{"name": "web", "image": "registry.example/web:1", "state": "sleeping"}]
            }
        },
        ["state", "sleeping", "running"],
    ),
    "a size that is none": ({"node": {"size": "big"}}, ["big", "500Mi"]),
    "too few inodes": ({"node": {"inodes": 10}}, ["node.inodes", "100"]),
    "an unknown pressure": ({"pressure": {"grows": "hopes"}}, ["pressure.0.grows", "hopes"]),
    "a time that is none": ({"expect": {"relievedWithin": "soon"}}, ["soon", "30s"]),
    "a name with a slash": ({"name": "../../etc/x"}, ["name"]),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_scenario_that_is_wrong_is_refused_in_one_sentence(tmp_path: Path, refused: str) -> None:
    """Exit 2; the file, the field and what is allowed are named; nothing was run or written."""
    changes, texts = REFUSED[refused]
    path = scenario(tmp_path, **changes)
    process = reclaimd_here("drill", path, "--report", str(tmp_path / "report"))
    assert process.returncode == 2, process.stdout
    assert process.stdout == ""
    assert process.stderr.count("\n") == 1
    for text in [path, *texts]:
        assert text in process.stderr
    assert not (tmp_path / "report").exists()


def test_a_missing_scenario_file_is_refused(tmp_path: Path) -> None:
    """One sentence with its name."""
    process = reclaimd("drill", str(tmp_path / "absent.yaml"))
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1
    assert "absent.yaml" in process.stderr


def test_a_node_that_is_too_small_for_its_images_is_an_error(tmp_path: Path) -> None:
    """The node cannot be built, and a sentence names what does not fit."""
    need_mounts()
    with pytest.raises(EmbeddedNodeError, match="No space left on device"):
        run(read_scenario(scenario(tmp_path, node={"size": "16Mi"})))


def test_the_list_names_every_built_in_scenario() -> None:
    """Each with its reason; every one of them can be read."""
    process = reclaimd_here("drill", "--list")
    assert process.returncode == 0
    assert any(
        line.startswith("pressured-node") and len(line.split()) > 5
        for line in process.stdout.splitlines()
    )
