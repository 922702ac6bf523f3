"""`reclaimd drill` as a command in a user namespace, where no mount is allowed, and on a terminal.

As root, and what does not hold: a story beside.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reclaimd_process import ENVIRONMENT, answer, reclaimd
from tests.repository import ROOT
from tests.sockets.cli.test_terminal import Terminal
from tests.sockets.mounts import need_mounts

SMALL = Path(__file__).with_name("small.yaml")


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


def test_the_drill_in_a_user_namespace_holds(tmp_path: Path) -> None:
    """Without any capability the filesystem is mounted in a user namespace; where no mount is
    allowed one sentence says why, and nothing is written."""
    words = (str(SMALL), "-o", "json", "--report", f"{tmp_path}/report")
    locked = as_less("locked-down", *words)
    assert locked.returncode == 2, locked.stderr + locked.stdout
    assert re.search("needs filesystems of its own.*user namespace", locked.stderr)
    assert not (tmp_path / "report").exists()
    done = as_less("without-capabilities", *words)
    if done.returncode == 2:
        pytest.skip(f"needs unprivileged user namespaces: {done.stderr}")
    assert done.returncode == 0, done.stderr
    printed = answer(done)
    assert "in a user namespace" in printed["filesystem"]
    assert json.loads((tmp_path / "report" / "drill-small.json").read_text()) == printed


def test_a_drill_shows_a_bar_meanwhile_and_more_if_asked(tmp_path: Path) -> None:
    """The bar of a terminal goes with its end; -v 1 adds each pass, object and expectation, -v 2 the
    log."""
    need_mounts()
    slow = tmp_path / "small.yaml"  # longer than nothing is shown
    slow.write_text(SMALL.read_text().replace("rate: 40Mi", "rate: 8Mi"))
    words = ("drill", str(slow), "--report", f"{tmp_path}/report")
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
