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


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with open("/proc/self/status", encoding="ascii") as status:
        capabilities = int(
            next(line for line in status if line.startswith("CapEff")).split()[1], 16
        )
    if not capabilities & 1 << 21:
        pytest.skip("needs CAP_SYS_ADMIN")


@pytest.mark.usefixtures("root")
def test_root_enters_without_a_user_namespace(directory: str) -> None:
    """With CAP_SYS_ADMIN one unshare is enough, and the user of the process does not change."""
    assert run_child("enter", directory) == {"how": "as root", "reason": "", "user": 0}


def test_a_user_without_rights_enters_through_a_user_namespace(directory: str) -> None:
    """Without any capability the process becomes user 0 in a user namespace of its own."""
    entered = run_child("enter", directory, NOBODY)
    if entered["reason"]:
        pytest.skip(f"needs unprivileged user namespaces: {entered['reason']}")
    assert entered == {"how": "in a user namespace", "reason": "", "user": 0}


def test_where_neither_way_is_allowed_the_result_gives_the_reason(directory: str) -> None:
    """Without capability and user namespaces."""
    entered = run_child("locked_down", directory, NOBODY)
    assert entered["how"] == ""
    assert "may not create a user namespace" in entered["reason"]


def test_a_process_with_several_threads_is_refused(directory: str) -> None:
    """Only the calling thread would move; the reason names the number of threads."""
    entered = run_child("enter_beside_a_thread", directory)
    assert entered["reason"].endswith("before the first thread starts; 2 are running")


@pytest.mark.parametrize("user", [None, NOBODY], ids=["self", "nobody"])
def test_the_limits_of_a_mount_are_real(directory: str, user: int | None) -> None:
    """A tmpfs with 16 inodes takes 15 directories besides its own, and not one more."""
    assert run_child("mount", directory, user) == {
        "bytes": MIB,
        "inodes": 16,
        "made": 15,
        "inodes_free": 0,
    }


def test_an_impossible_mount_is_refused(directory: str) -> None:
    """A missing directory."""
    assert run_child("mount_wrongly", directory)["error"] == (
        f"a filesystem cannot be made: {directory}/absent: No such file or directory"
    )


@pytest.mark.regression
def test_what_the_node_unmounts_is_not_held(directory: str) -> None:
    """A private copy of each mount would keep its device in use until the drill ends."""
    found = run_child("unmounted_outside", directory)
    assert found == {"before": True, "seen_outside": False, "after": False}


@pytest.mark.usefixtures("root")
def test_below_directories_of_the_machines_root_a_socket_is_trusted_in_a_user_namespace(
    directory: str,
) -> None:
    """There nobody knows that root, who appears as the overflow user.

    Who may write a directory counts all the same.
    """
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
