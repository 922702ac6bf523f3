"""What a drill starts as root while somebody stands in a directory in which a
stranger may write.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eviction.drill.runtime.private_mounts import EmbeddedNodeError, unmount
from tests.drill.loop_drill import mount_loop
from tests.sockets.mounts import need_mounts

MIB = 1 << 20


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a line is left by whatever a stranger has put where the
    drill is started.
    """
    ran, directory = tmp_path / "ran", tmp_path / "shared"
    directory.mkdir()
    for name in ("mkfs.ext4", "mount"):
        (directory / name).write_text(f"#!/bin/sh\necho {name} >>{ran}\nexit 1\n")
        (directory / name).chmod(0o755)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    return ran


def test_a_filesystem_is_made_by_no_program_of_the_current_directory(
    tmp_path: Path, strangers: Path
) -> None:
    """Also where PATH has an empty or a relative entry.

    On a machine that has no loop device it fails, later.
    """
    need_mounts()
    (tmp_path / "disk").mkdir()
    try:
        mount_loop(str(tmp_path / "disk"), "ext4", 16 * MIB, 1000)
    except EmbeddedNodeError as error:
        print(error)
    else:
        unmount(str(tmp_path / "disk"))
    assert not strangers.exists(), strangers.read_text()
