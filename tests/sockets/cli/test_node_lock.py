"""One instance a node: who may take the lock, what happens where there is none; and signals."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from eviction.cli.process import LockRefused, NodeHeld, lock_of
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    Daemon,
    reclaimd,
    write_configuration,
)
from tests.rows import rows
from tests.sockets.mounts import tmpfs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Somebody holds a lock on a directory that he can open."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@needs_root
def test_a_local_user_cannot_keep_the_daemon_from_starting(small_node: SmallNode) -> None:
    """He locks every directory that he can open, the kubelet's among them, and
    cannot open that of the lock.
    """
    configuration = small_node.configuration()
    directory = Path(configuration).parent / "lock"
    with Daemon("--config", configuration):
        pass
    setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    opened = subprocess.run([*setpriv, "ls", str(directory)], capture_output=True, check=False)
    assert opened.returncode != 0
    with (
        locked(small_node.root_directory),
        locked(directory.parent),
        Daemon("--config", configuration) as daemon,
    ):
        assert daemon.stop() == 0


def test_the_lock_is_taken_once_and_given_back(tmp_path: Path) -> None:
    """The directory is made with mode 0700, whatever the umask; nothing is in it. A lock on a removed
    one excludes nobody, as systemd removes the directory of a service that ends."""
    directory = tmp_path / "run" / "lock"
    first = lock_of(str(directory))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    held = f"^another instance holds the node \\({directory} is locked\\)$"
    with pytest.raises(NodeHeld, match=held):
        lock_of(str(directory))
    os.close(first)
    again = lock_of(str(directory))
    directory.rmdir()
    new = lock_of(str(directory))
    with pytest.raises(NodeHeld, match=held):
        lock_of(str(directory))
    os.close(again)
    os.close(new)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o777])
def test_a_directory_that_others_could_open_is_replaced(tmp_path: Path, mode: int) -> None:
    """Also while somebody holds a lock on the old one; with something in it, it is none of ours, and
    refused."""
    directory, others = tmp_path / "lock", tmp_path / "others"
    for each in (directory, others):
        each.mkdir()
        each.chmod(mode)
    with locked(directory):
        lock = lock_of(str(directory))
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        with pytest.raises(NodeHeld):
            lock_of(str(directory))
        os.close(lock)
    (others / "precious").touch()
    refused = f"^lockDirectory: {others} is not trusted: others may open it"
    with pytest.raises(LockRefused, match=refused):
        lock_of(str(others))


@needs_root
def test_a_directory_of_another_user_is_refused_with_exit_2(small_node: SmallNode) -> None:
    """One sentence names the field, the directory and the owner; the same where
    he may replace it.
    """
    configuration = small_node.configuration()
    directory = Path(configuration).parent / "lock"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    process = reclaimd("run", "--config", configuration)
    assert (process.returncode, process.stderr) == (
        2,
        (
            f"reclaimd: lockDirectory: {directory} is not trusted: it belongs to uid 65534; allowed"
            " is root's\n"
        ),
    )


def test_without_an_inode_for_the_lock_the_daemon_goes_on(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A warning says so: relief is worth more than exclusion."""
    with tmpfs(tmp_path / "run", 1 << 20, 2) as run:
        (run / "last").touch()
        file = small_node.configuration(lockDirectory=str(run / "reclaimd" / "lock"))
        with Daemon("--config", file) as daemon:
            warning = daemon.wait_for(
                lambda event: event["message"].startswith("the node is not locked")
            )
            assert warning["message"].endswith(f"{run}/reclaimd/lock: No space left on device")


AS_NOBODY = """
import os, sys
import eviction.cli.parser, eviction.cli.run, eviction.cli.status, eviction.records.history
from eviction.__main__ import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main())
"""


@needs_root
@rows("""
    command | code | sentence
    run     | 2    | the container runtime's socket DENIED; nothing could be removed
    status  | 3    | no daemon answers on DENIED
""")
def test_an_ordinary_user_is_told_to_be_root(command: str, code: int, sentence: str) -> None:
    """Whom runtime and daemon refuse: the daemon would run for ever, and remove nothing."""
    with TemporaryDirectory(dir="/tmp") as name, socket.socket(socket.AF_UNIX) as runtime:
        directory = Path(name)
        directory.chmod(0o755)
        runtime.bind(f"{name}/socket")
        os.chmod(f"{name}/socket", 0o600)
        runtime.listen()
        path = f"{name}/reclaimd.yaml"
        write_configuration(
            Path(path),
            rootDirectory=name,
            containerRuntimeEndpoint=f"unix://{name}/socket",
            controlSocket=f"{name}/socket",
        )
        asked = [sys.executable, "-c", AS_NOBODY, command, "--config", path]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == code
    denied = f"{name}/socket: Permission denied"
    assert done.stderr == f"reclaimd: {sentence.replace('DENIED', denied)}; run it as root\n"


LET_THROUGH = """
import os, signal, threading
from eviction.cli.process import on_signals

ended, reloaded, over = threading.Event(), threading.Event(), threading.Event()
assert on_signals(ended.set, reloaded.set) is None
ready = threading.Event()

def lets_them_through():
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.pthread_kill(threading.get_ident(), number)  # as the kernel may choose this thread
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP, signal.SIGTERM, signal.SIGINT})

thread = threading.Thread(target=lets_them_through)
thread.start()
thread.join()
print(ended.wait(60), reloaded.wait(60))
"""


def test_a_signal_that_another_thread_gets_is_not_lost_and_ends_nothing() -> None:
    """SIGTERM, SIGINT and SIGHUP reach the thread that waits for them."""
    command = [sys.executable, "-c", LET_THROUGH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")
