"""`reclaimd drill` as a command: checks, several scenarios, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.drill.documents import document
from tests.drill.test_report import tree
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, reclaimd, reclaimd_here
from tests.rows import rows
from tests.sockets.mounts import need_mounts

WEB = "registry.example/web:1"


def written(directory: Path, name: str, **changes: object) -> str:
    """A file of the small scenario."""
    path = directory / f"{name}.yaml"
    path.write_text(json.dumps(document(name=name, **changes)))
    return str(path)


def test_a_file_is_checked_without_being_run(tmp_path: Path) -> None:
    """Exit 0 and its name for a good one; exit 2 and one sentence with file and field for a bad
    one. No report is written."""
    report = ("--report", str(tmp_path / "report"))
    process = reclaimd_here("drill", "--check", written(tmp_path, "small"), *report)
    assert process.returncode == 0
    assert "small is valid" in process.stdout
    path = written(tmp_path, "bad", pressure={"rate": "fast"})
    process = reclaimd("drill", "--check", path, *report)
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (2, "", 1)
    assert path in process.stderr
    assert "pressure.0.rate" in process.stderr
    assert not (tmp_path / "report").exists()


def test_several_scenarios_are_run_one_after_the_other(tmp_path: Path) -> None:
    """Each has its reports. Exit 1 if one of them does not hold; the last line counts those that
    held."""
    need_mounts()
    files = [
        written(tmp_path, "good"),
        written(tmp_path, "bad", expect={"goes": [f"image {WEB}"]}),
    ]
    report = tmp_path / "report"
    process = reclaimd("drill", *files, "--report", str(report))
    assert process.returncode == 1, process.stderr
    assert "1 of 2 scenarios held" in process.stdout
    made = {f"drill-{name}.{kind}" for name in ("bad", "good") for kind in ("html", "json", "xml")}
    assert {path.name for path in report.iterdir()} == made
    failures = [
        tree((report / f"drill-{n}.xml").read_text()).get("failures") for n in ("good", "bad")
    ]
    assert failures == ["0", "1"]


@rows("""
words                                                      | said
{a} {a} -o json                                            | one scenario
{a} --eviction-hard nodefs.available<1Gi --runtime /a.sock | runtime-endpoint, --eviction-hard: not
{a} --for 0s                                               | --for: not allowed on the embedded
pressured-node --observe                                   | only together with --fill
--observe --for=soon                                       | reclaimd drill: argument --for:
--observe --for=-1s                                        | reclaimd drill: argument --for:
--observe --quiet=soon                                     | reclaimd drill: argument --quiet:
--observe --quiet=-1s                                      | reclaimd drill: argument --quiet:
""")
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: str, said: str) -> None:
    """Before anything runs."""
    file = written(tmp_path, "a")
    process = reclaimd_here("drill", *words.replace("{a}", file).split())
    assert (process.returncode, process.stdout) == (2, "")
    assert said in process.stderr


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
