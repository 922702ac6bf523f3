"""Private mounts: who may have them, their limits, and that nothing is left behind. Each test
in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.repository import ROOT

NOBODY = 65534
MIB = 1 << 20


@pytest.fixture
def directory() -> Iterator[str]:
    """An empty directory that every user may enter, which pytest's own are not."""
    path = tempfile.mkdtemp(prefix="reclaimd-test-")
    os.chmod(path, 0o777)  # noqa: S103 - the child may run as another user, and the directory is removed after the test
    yield path
    shutil.rmtree(path)


def command(function: str, directory: str, user: int | None = None) -> list[str]:
    """If the tests do not run as root, `user` is ignored."""
    as_user = [str(user)] if user is not None and os.geteuid() == 0 else []
    return [sys.executable, "-m", "tests.sockets.namespace_child", function, directory, *as_user]


def run_child(function: str, directory: str, user: int | None = None) -> dict[str, Any]:
    """What the child printed.

    With `user` it ran as that user and group, without other groups and capabilities.
    """
    done = subprocess.run(
        command(function, directory, user),
        cwd=str(ROOT),
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "no private mounts:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def need_root() -> None:
    """Skips the test without root and CAP_SYS_ADMIN."""
    with open("/proc/self/status", encoding="ascii") as status:
        (effective,) = (line.split()[1] for line in status if line.startswith("CapEff"))
    if os.geteuid() != 0 or not int(effective, 16) & 1 << 21:
        pytest.skip("needs root and CAP_SYS_ADMIN")


TAKEN = {"bytes": MIB, "inodes": 16, "made": 15, "inodes_free": 0}


@pytest.mark.parametrize(
    ("function", "user", "found"),
    [
        ("enter", None, {"how": "as root", "reason": "", "user": 0}),
        ("enter", NOBODY, {"how": "in a user namespace", "reason": "", "user": 0}),
        ("mount", None, TAKEN),
        ("mount", NOBODY, TAKEN),
        ("unmounted_outside", None, {"before": True, "seen_outside": False, "after": False}),
    ],
)
def test_who_may_mount_what(
    directory: str, function: str, user: int | None, found: dict[str, Any]
) -> None:
    """With CAP_SYS_ADMIN one unshare is enough; without any capability a user namespace. 16 inodes
    are 15 directories and the root. What the node unmounts is not held until the drill ends."""
    if user is None:
        need_root()
    answer = run_child(function, directory, user)
    if function == "enter" and answer["reason"]:
        pytest.skip(f"needs unprivileged user namespaces: {answer['reason']}")
    assert answer == found


@pytest.mark.parametrize(
    ("function", "user", "field", "words"),
    [
        ("locked_down", NOBODY, "reason", "may not create a user namespace"),
        ("enter_beside_a_thread", None, "reason", "before the first thread starts; 2 are running"),
        ("mount_wrongly", None, "error", "made: {}/absent: No such file or directory"),
    ],
)
def test_what_is_not_possible_has_a_reason(
    directory: str, function: str, user: int | None, field: str, words: str
) -> None:
    """Neither way is allowed; only one of several threads would move; a directory is not there."""
    answer = run_child(function, directory, user)
    assert not answer.get("how")
    assert words.format(directory) in answer[field]


def test_below_directories_of_the_machines_root_a_socket_is_trusted_in_a_user_namespace(
    directory: str,
) -> None:
    """There nobody knows that root, who appears as the overflow user.

    Who may write a directory counts all the same.
    """
    need_root()
    found = run_child("trust", directory, 12345)
    assert (found["owner of /"], found["private"]) == (NOBODY, None)
    assert "every user may write its directory" in found["open"]


def test_kill_9_leaves_nothing_behind(directory: str) -> None:
    """No other process sees the mount, and after SIGKILL the directory is empty as before."""
    with subprocess.Popen(
        command("mount_and_wait", directory),
        cwd=str(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        output = child.stdout.readline()
        if not output:
            pytest.skip("needs private mounts")
        assert json.loads(output) == {"files": ["file"]}
        assert os.listdir(directory) == []
        child.kill()
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        assert directory not in mounts.read()
    os.rmdir(directory)  # would fail if the directory were still a mount point
    os.mkdir(directory)


@pytest.mark.parametrize("user", [None, NOBODY], ids=["self", "nobody"])
def test_a_full_node_can_remove_objects(directory: str, user: int | None) -> None:
    """At 0 inodes and at 0 bytes free RemoveContainer and RemoveImage work, and
    statvfs shows what they freed.
    """
    results = run_child("full", directory, user)
    assert results["no inodes"]["inodes_free"] == 0
    assert "No space left on device" in results["created at 0 inodes"]
    assert results["container removed"]["inodes_free"] == results["started"]["inodes_free"] + 1
    assert results["written"] == results["started"]["bytes_free"]
    assert results["no bytes"]["bytes_free"] == 0
    assert "No space left on device" in results["pulled at 0 bytes"]
    assert results["no bytes after a failed pull"] == results["no bytes"]
    assert results["image removed under its container"]["bytes_free"] == 0
    assert results["all removed"]["bytes_free"] == results["started"]["bytes_free"] + 2 * MIB
    assert results["all removed"]["inodes_free"] == results["started"]["inodes_free"] + 1 + 5
