"""`reclaimd drill` as a command: lists, checks, several scenarios, and that
it leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.scenario import library, scenario_of
from tests.drill.documents import document
from tests.drill.runs import run
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, reclaimd, reclaimd_here
from tests.sockets.mounts import need_mounts

CROWD = [
    {
        "name": "job",
        "count": 100,
        "image": "registry.example/web:1",
        "state": "running",
        "writes": "0",
    }
]


def written(directory: Path, name: str, **changes: object) -> str:
    """A file of the small scenario."""
    path = directory / f"{name}.yaml"
    path.write_text(json.dumps(document(name=name, **changes)))
    return str(path)


def test_the_list_gives_every_scenario_its_reason() -> None:
    """One line for each: the name and the reason."""
    lines = reclaimd_here("drill", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(library())
    assert all(line.endswith(".") for line in lines)


def test_a_file_is_checked_without_being_run(tmp_path: Path) -> None:
    """Exit 0 and its name for a good one; no report is written."""
    process = reclaimd_here(
        "drill", "--check", written(tmp_path, "small"), "--report", str(tmp_path / "report")
    )
    assert process.returncode == 0
    assert "small is valid" in process.stdout
    assert not (tmp_path / "report").exists()


def test_a_bad_file_is_refused_by_the_check(tmp_path: Path) -> None:
    """Exit 2, and one sentence that names the file and the field."""
    path = written(tmp_path, "small", pressure={"rate": "fast"})
    process = reclaimd("drill", "--check", path)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.count("\n") == 1
    assert path in process.stderr
    assert "pressure.0.rate" in process.stderr


def test_several_scenarios_are_run_one_after_the_other(tmp_path: Path) -> None:
    """Each has its reports.

    Exit 1 if one of them does not hold; the last line counts those that held.
    """
    need_mounts()
    files = [
        written(tmp_path, "good"),
        written(tmp_path, "bad", expect={"goes": ["image registry.example/web:1"]}),
    ]
    process = reclaimd("drill", *files, "--report", str(tmp_path / "report"))
    assert process.returncode == 1, process.stderr
    assert "1 of 2 scenarios held" in process.stdout
    names = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert names == [
        f"drill-{name}.{kind}" for name in ("bad", "good") for kind in ("html", "json", "xml")
    ]
    reports = {name: tmp_path / "report" / f"drill-{name}.xml" for name in ("good", "bad")}
    suites = {
        name: ElementTree.parse(path).getroot()  # noqa: S314 # our own files
        for name, path in reports.items()
    }
    assert {name: suite.get("failures") for name, suite in suites.items()} == {
        "good": "0",
        "bad": "1",
    }


def test_json_output_takes_one_scenario(tmp_path: Path) -> None:
    """-o json with two scenarios is refused before anything runs."""
    process = reclaimd_here("drill", written(tmp_path, "a"), written(tmp_path, "b"), "-o", "json")
    assert process.returncode == 2
    assert "one scenario" in process.stderr


def test_options_of_a_real_node_are_refused_on_the_embedded_one(tmp_path: Path) -> None:
    """Thresholds on the command line are refused before anything runs: the scenario has its own."""
    process = reclaimd_here(
        "drill",
        written(tmp_path, "a"),
        "--eviction-hard",
        "nodefs.available<1Gi",
        "--runtime",
        "/a.sock",
    )
    assert process.returncode == 2
    assert process.stdout == ""
    assert (
        "--container-runtime-endpoint, --eviction-hard: not allowed on the embedded node"
        in process.stderr
    )
    process = reclaimd_here("drill", written(tmp_path, "a"), "--for", "0s")
    assert (process.returncode, process.stdout) == (2, "")
    assert "--for: not allowed on the embedded node" in process.stderr


def test_an_observation_alone_takes_no_scenario_and_no_bad_time() -> None:
    """--observe without --fill refuses a scenario, and wrong durations."""
    assert (
        "only together with --fill" in reclaimd_here("drill", "pressured-node", "--observe").stderr
    )
    for option in ("--for", "--quiet"):
        for text in ("soon", "-1s"):
            process = reclaimd_here("drill", "--observe", f"{option}={text}")
            assert process.returncode == 2
            assert process.stderr.startswith(f"reclaimd drill: argument {option}: ")


def test_a_drill_that_is_stopped_removes_its_node(tmp_path: Path) -> None:
    """SIGTERM in the middle of a fill: the process ends, and nothing is left of it."""
    need_mounts()
    path = written(tmp_path, "long", pressure={"rate": "1Mi"})
    with TemporaryDirectory() as temporary:
        process = subprocess.Popen(
            [PROGRAM, "drill", path, "--report", str(tmp_path / "report")],
            env={**ENVIRONMENT, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout:
            built = any(line.startswith("filled ") for line in process.stdout)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60.0) == 130
        assert built
        assert os.listdir(temporary) == []


def test_a_node_that_cannot_be_built_is_an_error(tmp_path: Path) -> None:
    """Too small for what its pods have written: exit 1 and a sentence."""
    need_mounts()
    path = written(tmp_path, "small", node={"size": "30Mi"})
    process = reclaimd("drill", path, "--report", str(tmp_path / "report"))
    assert process.returncode == 1
    assert "does not fit" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_node_too_small_for_its_pods_is_an_error() -> None:
    """The same where the inodes are not enough for the pods."""
    need_mounts()
    with pytest.raises(EmbeddedNodeError, match="No space left on device"):
        run(scenario_of(document(name="small", node={"inodes": 100, "pods": CROWD}), "small.yaml"))
