"""`reclaimd drill` as a command: as root, in a user namespace, and where no mount is allowed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from eviction.drill.private_mounts import EmbeddedNodeError
from eviction.drill.scenario import read_scenario
from tests.drill.runs import run
from tests.reclaimd_process import ENVIRONMENT, answer, reclaimd
from tests.repository import ROOT
from tests.sockets.cli.test_terminal import Terminal
from tests.sockets.mounts import need_mounts

SCENARIO = yaml.safe_load(Path(__file__).with_name("small.yaml").read_text())


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
        words = (scenario(tmp_path), "-o", "json", "--report", f"{tmp_path}/report")
        done = reclaimd("drill", *words, TMPDIR=temporary)
        assert (done.returncode, os.listdir(temporary)) == (0, []), done.stderr
    printed = answer(done)
    assert printed["held"]
    assert "as root" in printed["filesystem"]
    assert_report(tmp_path / "report", "small", printed)


def test_the_drill_in_a_user_namespace_holds(tmp_path: Path) -> None:
    """Without any capability the filesystem is mounted in a user namespace; where no mount is
    allowed one sentence says why, and nothing is written."""
    words = (scenario(tmp_path), "-o", "json", "--report", f"{tmp_path}/report")
    locked = as_less("locked-down", *words)
    assert locked.returncode == 2, locked.stderr + locked.stdout
    assert re.search("needs filesystems of its own.*user namespace", locked.stderr)
    assert not (tmp_path / "report").exists()
    done = as_less("without-capabilities", *words)
    if done.returncode == 2:
        pytest.skip(f"needs unprivileged user namespaces: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert "in a user namespace" in answer(done)["filesystem"]
    assert_report(tmp_path / "report", "small", answer(done))


def test_a_drill_shows_a_bar_meanwhile_and_more_if_asked(tmp_path: Path) -> None:
    """The bar of a terminal goes with its end; -v 1 adds each pass, object and expectation, -v 2 the
    log."""
    need_mounts()
    path = scenario(tmp_path, pressure={"rate": "8Mi"})  # longer than nothing is shown
    words = ("drill", path, "--report", f"{tmp_path}/report")
    terminal = Terminal()
    code, output = terminal.runs(*words, on="err")
    assert re.search(r"  nodefs.available: █+.?·*│·+ [\d.]+MiB available\r", terminal.shown)
    assert (code, terminal.left()) == (0, [""])
    assert output.startswith("small: A small disk that fills is relieved.\n")
    done = reclaimd(*words, "-v", "2")
    for begins in ("RESULT   KIND", "keep ", "HELD  WHAT"):
        assert f"\n{begins}" in done.stdout
        assert f"\n{begins}" not in output
    assert "Attempting to reclaim" in done.stderr


def test_a_drill_whose_expectations_do_not_hold_exits_with_1(tmp_path: Path) -> None:
    """Each failed check, and no other, shows what was expected and what was measured; the report is
    written anyway. A node that is too small for its images cannot be built."""
    need_mounts()
    goes = ["registry.example/web:1", "registry.example/nothing:1"]  # one stays, one never was
    stays = ["registry.example/old-01:1"]  # it goes
    path = scenario(tmp_path, expect={"goes": goes, "stays": stays, "imagesLeftAtLeast": 6})
    done = reclaimd("drill", path, "-o", "json", "--report", f"{tmp_path}/report")
    printed = answer(done)
    assert (done.returncode, printed["held"]) == (1, False)
    failed = [check for check in printed["checks"] if not check["held"]]
    assert [check["name"] for check in failed] == ["images left", *goes, *stays]
    assert all(check["expected"] and check["seen"] for check in failed)
    assert any(check["held"] for check in printed["checks"])
    assert_report(tmp_path / "report", "small", printed)
    with pytest.raises(EmbeddedNodeError, match="No space left on device"):
        run(read_scenario(scenario(tmp_path, node={"size": "16Mi"})))
