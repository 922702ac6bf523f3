"""What never answers, or only late: files of the configuration, filesystems, a program that is
started, whoever reads the log, a runtime that accepts. Commands end, and the daemon relieves."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.surface.control_client import NotAskedError, ask
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from signals.types import FsLayout, Signal
from tests.faults.fuse import OPEN, STATFS, SilentFile, SilentFilesystem
from tests.faults.meters import Meters, control_heartbeat
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
    PROGRAM,
    Daemon,
    Process,
    came_true,
    started,
    write_configuration,
)
from tests.repository import ROOT
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.passes import satisfied, says
from tests.sockets.program.scripts import QuickClock, Runs

EXIT_SECONDS = 35.0  # as promised, after SIGTERM
SLACK_SECONDS = 20.0  # the machine is shared
Fields = dict[str, Any]


def on(directory: Path, fields: Fields) -> Fields:
    """The same fields, with the directory in the places of `{}`."""
    found: Fields = json.loads(json.dumps(fields).replace("{}", str(directory)))
    return found


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A directory on a filesystem that does not answer. A process that waits for it can be
    killed."""
    directory = tmp_path / "hung"
    directory.mkdir()
    with SilentFilesystem(str(directory), stopped=True):
        yield directory


# ---- commands, all at once: most of each is waiting

COMMANDS: list[Fields] = yaml.safe_load(Path(__file__).with_name("hung.yaml").read_text())
KUBELETS = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def blocks(pid: int, number: signal.Signals) -> bool:
    """Whether the main thread of a process blocks a signal. Source: proc_pid_status(5)."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> number - 1 & 1)


def test_every_command_ends_beside_a_file_that_hangs(
    make_small_node: SmallNodeFactory, tmp_path: Path, hung: Path
) -> None:
    """In its time, and those that need the file say so. SIGTERM ends a start that hangs, too: the
    directory of the lock is the daemon's own, and is not looked at in time."""
    small = make_small_node()
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(KUBELETS)
    running: list[tuple[Fields, Process, Path]] = []
    for number, row in enumerate(COMMANDS):
        file, output = f"{hung}/reclaimd.yaml", tmp_path / f"{number}"
        if "fields" in row:
            fields = {"kubeletConfig": str(kubelet), **on(hung, row["fields"])}
            path = tmp_path / f"{number}.yaml"
            file = str(write_configuration(path, **small.fields(**fields)))
        with output.open("wb") as out:
            streams = (0, out.fileno(), out.fileno())
            process = started(row["command"], "--config", file, streams=streams)
        running.append((row, process, output))
    start = running[0][1]
    assert came_true(lambda: blocks(start.pid, signal.SIGTERM))
    start.send_signal(signal.SIGTERM)
    wrong = []
    for row, process, output in running:
        try:
            code: int | None = process.wait(EXIT_SECONDS + 2 * PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
            process.kill()
        told, expected = output.read_text(), on(hung, row)
        said = expected.get("says", "") in told and expected.get("names", "") in told
        begun = expected.get("begins", "") in told.partition("\n\n")[0]
        whole = told == expected.get("tells", told)
        if code not in row["codes"] or not (said and begun and whole):
            wrong.append(f"{row}: {code}\n{told}")
    assert not wrong, "\n".join(wrong)


# ---- the daemon


PRUNE: Fields = {"name": "prune", "exec": ["{}/program"], "frees": "nodefs", "timeout": "1s"}
BALLAST: Fields = {"name": "ReleaseBallast", "file": "{}/ballast", "size": "1Mi", "frees": "nodefs"}


@pytest.mark.parametrize("in_the_row", [False, True], ids=["no-row", "row"])
def test_the_daemon_relieves_beside_functions_whose_files_hang(
    small_node: SmallNode, hung: Path, in_the_row: bool
) -> None:
    """It starts, says which function cannot do anything, removes images, and ends in time."""
    small_node.add_images(3)
    functions = [PRUNE, BALLAST]
    row = [*(each["name"] for each in functions), "DeleteUnusedImages"]
    given = {"reclaimTable": {"nodefs.available": row}} if in_the_row else {}
    given = on(hung, {"reclaimFunctions": functions, **given})
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB, **given)
    with Daemon("--config", configuration) as daemon:
        for each in functions:
            said = f"{each['name']} cannot do anything"
            daemon.wait_for(says(said))
        daemon.wait_for(satisfied, 90.0)
        assert daemon.stop(EXIT_SECONDS + SLACK_SECONDS) == 0
    assert len(small_node.removed("image")) == 3


@pytest.mark.parametrize(
    "text", ["/var/lib/\0/config.yaml", "/var/lib/\ud800/config.yaml"], ids=["NUL", "surrogate"]
)
def test_a_reload_of_what_the_kernel_does_not_take_is_refused_and_sigterm_works(
    small_node: SmallNode, text: str
) -> None:
    """One sentence names the field; the old configuration stays, a later reload
    works, and so does SIGTERM.
    """
    file = Path(small_node.configuration())
    good = file.read_text()
    with Daemon("--config", str(file)) as daemon:
        file.write_text(json.dumps({**json.loads(good), "kubeletConfig": text}))
        daemon.process.send_signal(signal.SIGHUP)
        refused = daemon.wait_for(says("not reloaded"))
        assert "kubeletConfig: must hold no " in refused["message"]
        file.write_text(good)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(says("the configuration was reloaded"))
        assert daemon.stop() == 0


def test_sigterm_works_while_a_reload_hangs(small_node: SmallNode, tmp_path: Path) -> None:
    """The drop-ins are on a filesystem that does not answer any more."""
    drop_ins = tmp_path / "drop-ins"
    drop_ins.mkdir()
    with SilentFilesystem(str(drop_ins)) as filesystem:
        daemon = Daemon("--config", small_node.configuration(), "--config-dir", str(drop_ins))
        with daemon:
            filesystem.stopped = True
            daemon.process.send_signal(signal.SIGHUP)
            with pytest.raises(AssertionError, match="no such event"):
                daemon.wait_for(says("reloaded"), 1.0)
            assert daemon.stop() == 0
            assert daemon.logged("stopped")


# ---- a filesystem

PROBE_LIMIT_SECONDS = 2.0  # how long one observation waits for a filesystem, once


def daemon_of(small: SmallNode, control: str) -> Daemon:
    """A daemon with two filesystems."""
    marks = {"nodefs.available": "20Mi", "imagefs.available": "1Mi"}
    file = small.configuration(evictionHard=marks, pollCeiling="200ms", controlSocket=control)
    return Daemon("--config", file)


def sees_imagefs(control: str) -> bool:
    """Whether the daemon has a fresh reading of the image filesystem."""
    try:
        observed = ask(control, "status")["observations"]
    except NotAskedError:  # the socket is created after the first line of the log
        return False
    return any(each["signal"] == "imagefs.available" and not each["stale"] for each in observed)


def test_a_daemon_goes_on_beside_a_silent_filesystem_and_frees_its_node_within_2_s(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """Its image filesystem stops answering, while the other one fills: it logs both, its loop is
    blocked for the limit of one probe, and neither threads nor descriptors accumulate; a watch that
    is never answered holds neither the loop nor the end. The kernel
    keeps a process whose request was read and never answered, even after SIGKILL: it logs "stopped"
    at SIGTERM, another instance can start on the node, and its process exits with 0 once the
    filesystem is aborted."""
    small, control = make_small_node(FsLayout.DEDICATED_IMAGEFS), str(tmp_path / "control.sock")
    limit = PROBE_LIMIT_SECONDS + SLACK_SECONDS
    with (
        SilentFilesystem(str(small.images_root)) as filesystem,
        daemon_of(small, control) as daemon,
        ExitStack() as first,
    ):
        first.callback(filesystem.abort)  # else the daemon would not end
        assert came_true(lambda: sees_imagefs(control))
        with Meters(daemon.process.pid, control_heartbeat(control)) as meters:
            filesystem.swallows = True
            daemon.wait_for(says("did not answer statvfs"))
            small.fill(small.available() - 10 * MIB)
            daemon.wait_for(says("ReclaimPressure: nodefs.available"))
            time.sleep(6.0)  # until the watch of the images hangs, too
        assert not sees_imagefs(control), "a reading that fails is stale"
        stall = meters.report.longest_stall_seconds
        assert stall is not None
        assert stall <= limit, str(meters.report)
        # a worker that asks the runtime, a client of the control socket
        more = (meters.report.threads_more, meters.report.descriptors_more)
        assert max(more) <= 2, str(meters.report)
        assert filesystem.requests[STATFS] > 0
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for(lambda event: event["message"] == "stopped", limit)
        assert daemon.process.poll() is None, "the kernel waits for an answer to its thread"
        successor = daemon_of(small, control)
        with successor:  # entering fails unless it logs its start
            filesystem.abort()
            assert daemon.stop() == 0
            assert successor.stop() == 0


# ---- a program that is started

# Debian 12's is 3.11.2, which keeps itself locked while a program is started
SYSTEMS_PYTHON = "/usr/bin/python3"
LOCKED = tuple(f"Python 3.11.{patch}" for patch in range(4))
BEATS = 20
BEATING = """
import sys, threading, time
from reclaim.function import ReclaimContext
from reclaim.program.function import Program, ProgramStage
from signals.clock import SystemClock
path, sys.executable = sys.argv[1:]
program = Program("prune", (path,), 60.0, lambda *_: None)
stage = ProgramStage(program, ReclaimContext(*[None] * 5, SystemClock(), None, None, threading.Event()))
threading.Thread(target=lambda: stage.remove(None), daemon=True).start()
while True:
    time.sleep(0.02)
    print("alive", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[SilentFile]:
    """A program that runs and ends, and then one on a filesystem that answers whoever looks at it,
    and nobody who starts it."""
    directory = tmp_path / "mount"
    directory.mkdir()
    with SilentFile(directory) as filesystem:
        assert Runs().run(filesystem.path) == ""
        filesystem.requests.clear()
        filesystem.swallows = True
        yield filesystem


def test_the_daemon_goes_on_and_ends_while_a_program_hangs_in_its_start(
    small_node: SmallNode, program: SilentFile
) -> None:
    """Nobody who looks at the file is held up, only its start."""
    small_node.add_images(3)
    row = {"nodefs.available": [PRUNE["name"], "DeleteUnusedImages"]}
    given: Fields = {
        "reclaimFunctions": [{**PRUNE, "exec": [program.path]}],
        "reclaimTable": row,
    }
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB, **given)
    with Daemon("--config", configuration) as daemon:
        assert came_true(lambda: program.requests[OPEN] > 0)
        daemon.wait_for(satisfied, 90.0)
        daemon.process.send_signal(signal.SIGTERM)
        limit = EXIT_SECONDS + SLACK_SECONDS
        daemon.wait_for(lambda event: event["message"] == "stopped", limit)
        program.abort()
        assert daemon.stop() == 0


@pytest.mark.parametrize("stopped", [False, True], ids=["timeout", "stop"])
def test_a_start_that_hangs_ends_with_its_time(program: SilentFile, stopped: bool) -> None:
    """Also at a stop. The kernel keeps its process, so that it is not started again; nothing else
    waits for it."""
    runs, told = Runs(clock=QuickClock()), list[str]()
    hanging = runs.program(program.path, timeout=PATIENCE_SECONDS if stopped else 1.0)
    for _ in range(2):
        thread = threading.Thread(
            target=lambda: told.append(runs.run_program(hanging)), daemon=True
        )
        thread.start()
        if stopped:
            assert came_true(lambda: program.requests[OPEN] > 0)
            runs.stopping.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    cause = "was ended because reclaimd was told to stop" if stopped else "had not ended after 1 s"
    first, second = told
    assert f"{cause}; it hangs in the kernel as process " in first
    assert "does not end" in second
    program.abort()
    assert came_true(lambda: "does not end" not in runs.run_program(hanging))


def interpreters() -> list[str]:
    """This one, and the system's where it is one that keeps itself locked."""
    asked = subprocess.run([SYSTEMS_PYTHON, "-V"], capture_output=True, text=True, check=False)
    return [sys.executable, *([SYSTEMS_PYTHON] if asked.stdout.strip() in LOCKED else [])]


@pytest.mark.parametrize("supervisor_hangs", [False, True], ids=["program", "supervisor"])
@pytest.mark.parametrize("interpreter", interpreters())
def test_the_interpreter_goes_on_while_a_program_is_started(
    program: SilentFile, interpreter: str, supervisor_hangs: bool
) -> None:
    """Another thread of the same process goes on, on every Python, also if it is the
    supervisor that does not start.
    """
    beginning = (program.path, interpreter)
    if supervisor_hangs:
        beginning = (os.path.realpath("/bin/true"), program.path)
    beating = subprocess.Popen(
        [interpreter, "-c", BEATING, *beginning],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"},
    )
    try:
        assert came_true(lambda: program.requests[OPEN] > 0)
        assert beating.stdout is not None
        for _ in range(BEATS):  # the first one reads all that was there before
            assert select.select([beating.stdout], [], [], PATIENCE_SECONDS)[0], "it stands still"
            os.read(beating.stdout.fileno(), 1 << 16)
    finally:
        program.abort()
        beating.kill()
        beating.communicate()


# ---- output that nobody reads


@contextmanager
def full_pipe() -> Iterator[int]:
    """The writing end of a pipe that holds all that it can, and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("output", ["2>&3 >&3", "2>&-", ">&- 2>&-", "2>/dev/full", "2> >(true)"])
def test_a_daemon_without_a_log_relieves_and_ends(small_node: SmallNode, output: str) -> None:
    """From its start on not a byte of it can be written, as nobody reads it; standard error is
    closed, on a full disk, or its reader has gone. It removes, and SIGTERM ends it."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    with full_pipe() as unread:
        words = f'exec "$0" run --config "$1" {output} {unread}>&-'.replace("&3", f"&{unread}")
        process = subprocess.Popen(
            ["bash", "-c", words, PROGRAM, file],
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
            pass_fds=[unread],
        )
        try:
            assert came_true(lambda: len(small_node.removed("image")) >= 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            process.wait()


def test_a_hook_whose_words_are_not_read_relieves(small_node: SmallNode, tmp_path: Path) -> None:
    """`reclaim` has something to say before it removes, as its records cannot
    be read; nobody reads it.
    """
    small_node.add_images(3)
    records = tmp_path / "images.json"
    records.write_text("garbage")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, stateFile=str(records))
    command = [PROGRAM, "reclaim", "--standalone", "--now", "--config", file]
    with full_pipe() as unread:
        process = subprocess.Popen(
            command, stderr=unread, stdout=subprocess.DEVNULL, env=ENVIRONMENT
        )
        try:
            assert process.wait(PATIENCE_SECONDS) == 0
            assert small_node.removed("image")
        finally:
            process.kill()


# ---- a runtime that is slow to accept

STALL_SECONDS = 0.6


def test_a_runtime_that_took_longer_than_100_ms_to_accept_was_unreachable(tmp_path: Path) -> None:
    """containerd stalled for a moment on a full btrfs, and `reclaimd reclaim` exited with 3: grpc's
    shortest back-off also limits how long a new connection may take. Now a connection has 5 s."""
    front = str(tmp_path / "front.sock")
    with socket.socket(socket.AF_UNIX) as server, ThreadPoolExecutor(1) as pool:
        server.bind(front)
        server.listen(64)
        client = CriClient(f"unix://{front}")
        asked = pool.submit(client.image_fs_info)
        with pytest.raises(TimeoutError):
            asked.result(STALL_SECONDS)
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(65536), "it greets"
            assert not select.select([accepted], [], [], 0.0)[0], "and has not left"
            client.close()
        assert isinstance(asked.exception(), RuntimeUnavailable)
