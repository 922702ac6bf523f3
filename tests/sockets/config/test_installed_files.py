"""`reclaimd install --systemd` and `reclaimd uninstall` of the wheel, below another root: what they
place, tell, keep, refuse and remove, and what somebody who may write there makes of it.

At /, with a service: `test_install.py`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from eviction.cli.below_root import NotTrustedError, proven
from tests.distributions import environment_of
from tests.repository import ROOT
from tests.sockets.config.transcripts import assert_told, stories_in

pytestmark = pytest.mark.house(
    "config/systemd",
    "eviction/cli/below_root.py",
    "eviction/cli/install.py",
    "eviction/cli/uninstall.py",
    "eviction/shipped.py",
    "pyproject.toml",
    "reclaim/trust.py",
)

NAMES = {
    "UNITS": str(ROOT / "config" / "systemd"),
    "RECORD": "usr/local/share/reclaimd/installed-files",
    "FORMER": "etc/systemd/system/reclaimd-xfs.socket",  # of an earlier version
    "MAN": "usr/local/share/man/man1",
    "LC_ALL": "C",
}


@pytest.mark.parametrize(("name", "number"), stories_in("installed.txt", "untrusted.txt"))
def test_what_is_placed_and_removed_below_another_root(
    wheel: Path, tmp_path: Path, name: str, number: int
) -> None:
    """Each story in a root of its own, with the program in /opt/reclaimd."""
    root, program = tmp_path / "root", tmp_path / "tools" / "reclaimd"
    environment_of(wheel, root / "opt" / "reclaimd")
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec opt/reclaimd/bin/reclaimd "$@" --root "$PWD"\n')
    program.chmod(0o755)
    variables = {**os.environ, **NAMES, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def run(line: str) -> tuple[int, str]:
        command = ["sh", "-uc", f"exec 2>&1\n{line}"]
        process = subprocess.run(
            command, cwd=root, env=variables, stdout=subprocess.PIPE, text=True, umask=0o022
        )
        return process.returncode, process.stdout

    assert_told(name, number, run, {str(root): "ROOT", str(ROOT): "REPOSITORY"})


def test_no_directory_is_made_where_somebody_else_may_write(tmp_path: Path) -> None:
    """Nor is one taken that somebody has made first."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(tmp_path, 12345, 0)
    with pytest.raises(NotTrustedError, match="belongs to uid 12345"):
        proven(str(tmp_path / "new"), make=True)
    assert os.listdir(tmp_path) == []
