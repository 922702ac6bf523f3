"""`reclaim` and `check` are done by a running daemon; if it cannot, by the command itself.

The daemon on a small node holds off for an hour, so that every removal was requested.
What they print is compared in `tests/sockets/cli/test_commands.py`.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eviction.surface.requests import MOST_WAITING
from signals.types import Signal
from tests.budgets.test_start import REMOVING
from tests.nodes.faults import Hang
from tests.nodes.small_node import LONGEST_SECONDS, MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
)
from tests.sockets.cli.test_commands import located
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as kubelets_answer
from tests.stopped import stopped

HERE = "doing the work here\n"


class Desk:
    """A small node with six old images of 4 MiB, 6 MiB under pressure, and a configuration."""

    def __init__(self, small: SmallNode, directory: Path):
        self.small = small
        self.control = directory / "run" / "control.sock"
        self.images = small.add_images(6)
        self.file = self.configure()

    def configure(self, above: int = 6 * MIB, **fields: Any) -> str:
        """The path of a configuration."""
        own = {"controlSocket": str(self.control), "holdOffAfterStart": "1h"}
        return self.small.configuration(Signal.NODEFS_AVAILABLE, above, **{**own, **fields})

    def reclaim(self, *words: str, config: str = "", process: bool = False) -> Any:
        """`reclaimd reclaim --now`, in this process or in one of its own, which a thread may wait
        for; without the lines about its turn."""
        run = reclaimd if process else reclaimd_here
        done = run("reclaim", "--config", config or self.file, "--now", *words)
        done.stderr = re.sub(r".*; waiting for its turn\n", "", done.stderr)
        return done

    def status(self) -> Any:
        """What the daemon says of itself."""
        return answer(reclaimd_here("status", "--config", self.file, "-o", "json"))

    @contextmanager
    def asks(self, command: str, **request: Any) -> Iterator[Any]:
        """The lines of a bare conversation."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LONGEST_SECONDS)
            client.connect(str(self.control))
            client.sendall(json.dumps({"command": command, **request}).encode() + b"\n")
            with client.makefile("rb") as lines:
                yield lines

    def refusal(self, command: str, **request: Any) -> str:
        """Why it is refused."""
        with self.asks(command, **request) as lines:
            return str(json.loads(lines.readline())["refused"])


@pytest.fixture
def desk(small_node: SmallNode, tmp_path: Path) -> Desk:
    """The node, without a daemon yet."""
    return Desk(small_node, tmp_path)


@pytest.fixture
def daemon(desk: Desk) -> Iterator[Daemon]:
    """A daemon on the node that knows where the images are."""
    with Daemon("--config", desk.file) as running:
        assert came_true(lambda: located(desk.file))
        yield running


def test_the_pass_of_a_request_is_the_daemons(desk: Desk, daemon: Daemon) -> None:
    """That of a dry run is not. `--until` and `--signal` reach it, and `--all` goes to the end of
    the row; readings are of now."""
    asked = ("--dry-run", "--signal", "nodefs.available")
    planned = answer(desk.reclaim(*asked, "-o", "json"))
    assert planned["result"] == "dry_run"
    named = desk.reclaim(*asked, "-o", "name", "--color", "never").stdout.split()
    assert named == [f"image/{each['name']}" for each in planned["removals"]] != []
    assert (daemon.passes, desk.small.removed()) == ([], [])
    mark = desk.small.available() + 14 * MIB
    words = ("--signal", "nodefs.available", "--until", str(mark), "-o", "json")
    record = answer(desk.reclaim(*words))
    assert came_true(lambda: record["id"] in [each["id"] for each in daemon.passes])
    assert [each["id"] for each in record["removals"]] == desk.small.removed() == desk.images[:4]
    desk.small.fill(12 * MIB)
    for alone in ((), ("--standalone",)):
        found = reclaimd_here("check", "--config", desk.file, "--npd", *alone)
        assert (found.returncode, found.stdout[:27]) == (1, "pressure: nodefs.available ")
    assert desk.reclaim("--signal=imagefs.inodesFree", "--all").returncode == 0
    assert set(desk.small.removed()) >= set(desk.images)


def test_another_configuration_is_refused_and_standalone_never_asks(
    desk: Desk, daemon: Daemon
) -> None:
    """The command says so and does the work itself, also by a file that has changed until it is
    reloaded; without any configuration that of the daemon is used. Flags of the configuration,
    and `--standalone`: without a word."""
    with desk.asks("reclaim", options={"dry_run": True}, told={}) as lines:
        assert json.loads(lines.readline())["accepted"] is True
        assert json.loads(lines.readline())["exit_code"] == 0
    other = {"files": [["/elsewhere", 0, 0]], "flags": [], "environment": []}
    for command in ("reclaim", "check"):
        assert "another configuration" in desk.refusal(command, options={}, told=other)
        assert "contains the options" in desk.refusal(command, told={})
    assert "is none of table, json, yaml, name" in desk.refusal(
        "check", options={"output": "xml"}, told={}
    )
    assert "not an option of check" in desk.refusal("check", options={"all": True}, told={})
    refused = f"reclaimd: the daemon refuses: it runs with another configuration{{}}; {HERE}".format
    older = ", or with an older version of the same files"
    differs = desk.configure()
    assert desk.reclaim("--dry-run", config=differs).stderr == refused(older)
    check = reclaimd_here("check", "--config", differs, "--npd")
    assert (check.returncode, check.stderr) == (1, refused(older))
    Path(desk.file).write_text(Path(desk.file).read_text() + "\n")
    assert desk.reclaim("--dry-run").stderr == refused(older)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda event: "was reloaded" in event["message"])
    assert desk.reclaim("--dry-run").stderr == ""
    idle = desk.reclaim("--eviction-hard", "nodefs.available<1Ki", "-o", "json")
    assert (idle.stderr, answer(idle)["result"]) == ("", "idle")
    alone = desk.reclaim("--standalone", "-o", "json")
    assert (alone.stderr, answer(alone)["result"]) == ("", "satisfied")
    assert daemon.passes == []


def test_a_wrong_option_is_exit_2_with_or_without_a_daemon(desk: Desk, daemon: Daemon) -> None:
    """The last sentence on stderr is the same, and nothing happens."""
    wrong = ("--signal nodefs", "--until 1Gi", "-o xml", "--sinal x", "--room 12 --on imagefs")
    for words in map(str.split, wrong):
        asked, alone = desk.reclaim(*words), desk.reclaim("--standalone", *words)
        assert asked.returncode == alone.returncode == 2
        assert asked.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert desk.small.removed() == []


def test_without_a_daemon_the_command_works_without_a_message(desk: Desk) -> None:
    """No socket, and a socket that a dead daemon left behind."""
    for result in ("satisfied", "idle"):
        done = desk.reclaim("-o", "json", process=result == "satisfied")
        assert (done.returncode, done.stderr, answer(done)["result"]) == (0, "", result)
        if result == "satisfied":
            desk.control.parent.mkdir()
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(desk.control))


def test_a_daemon_that_does_not_answer_is_not_waited_for(desk: Desk, daemon: Daemon) -> None:
    """It is stopped (SIGSTOP): the commands say so and do the work."""
    said = f"reclaimd: the daemon does not answer; {HERE}"
    with stopped(daemon.process.pid):
        check = reclaimd_here("check", "--config", desk.file, "--npd")
        assert (check.returncode, check.stderr) == (1, said)
        reclaim = desk.reclaim("-o", "json")
    assert (reclaim.stderr, answer(reclaim)["result"]) == (said, "satisfied")


@pytest.mark.parametrize(
    "says",
    [b"220 mail ready\n", b"", b"[]\n", b'{"accepted": true}\n', b'{"exit_code": 0}\n', b"\xff\n"],
)
def test_after_an_invalid_answer_the_command_does_the_work(desk: Desk, says: bytes) -> None:
    """Whatever answers: one sentence, and the node is relieved."""
    desk.control.parent.mkdir()
    with socket.create_server(str(desk.control), family=socket.AF_UNIX) as other:

        def talk() -> None:
            client, _ = other.accept()
            with client:
                client.recv(65536)
                client.sendall(says)

        threading.Thread(target=talk, daemon=True).start()
        done = desk.reclaim("-o", "json")
    assert (done.returncode, answer(done)["result"]) == (0, "satisfied")
    assert re.fullmatch(f".*; {HERE}", done.stderr)


def test_a_daemon_that_has_never_reached_the_runtime_leaves_it_to_the_command(desk: Desk) -> None:
    """The answers are the same while the runtime is away; once it is back the command does the work
    itself."""
    refused = "reclaimd: the daemon refuses: it does not know where the images are: "
    desk.small.server.stop()
    with Daemon("--config", desk.file):
        assert came_true(lambda: bool(desk.status()["observations"]))
        for command, code in (("reclaim", 3), ("check", 1)):
            words = (command, "--config", desk.file)
            asked, alone = reclaimd_here(*words), reclaimd_here(*words, "--standalone")
            assert asked.returncode == alone.returncode == code
            first, *rest = asked.stderr.splitlines(keepends=True)
            assert first.startswith(refused)
            assert "".join(rest) == alone.stderr
        desk.small.server.start()
        assert "layout: single" in reclaimd_here("check", "--config", desk.file).stdout
        assert answer(desk.reclaim("-o", "json"))["result"] == "satisfied"


def test_requests_wait_their_turn_and_leave_with_their_clients(desk: Desk, daemon: Daemon) -> None:
    """The second is shown what the daemon does, and in its turn there is nothing left to do. A
    client that is killed or hangs up leaves no request; one too many is refused at once."""
    desk.small.failpoints["RemoveImage"] = Hang()
    everything = {"options": {"all": True, "now": True}, "told": {}}

    def waiting(number: int) -> bool:
        return came_true(lambda: desk.status()["requests_waiting"] == number, every_seconds=0.05)

    with ThreadPoolExecutor(2) as pool, ExitStack() as others:
        first = pool.submit(desk.reclaim, "-o", "json", process=True)
        desk.small.wait_for("RemoveImage")
        second = pool.submit(reclaimd, "reclaim", "--config", desk.file, "--now", "-o", "json")
        assert waiting(1)
        command = [PROGRAM, "reclaim", "--config", desk.file, "--now", "--all"]
        streams: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        killed = subprocess.Popen(command, env=ENVIRONMENT, **streams)
        for _ in range(MOST_WAITING - 2):
            others.enter_context(desk.asks("reclaim", **everything))
        assert waiting(MOST_WAITING)
        many = f"{MOST_WAITING} requests are waiting already"
        assert desk.refusal("reclaim", options={}, told={}) == many
        killed.kill()
        killed.wait()
        assert waiting(MOST_WAITING - 1)
        others.close()
        assert waiting(1)
        assert not second.done()
        desk.small.failpoints.clear()
        results = [answer(each.result())["result"] for each in (first, second)]
    turn = "reclaimd: the daemon is relieving on request; waiting for its turn\n"
    assert (results, second.result().stderr) == (["satisfied", "idle"], turn)
    assert len(desk.small.removed()) == 2, "none of the others went to the end"


# ---- how much it costs


def imports(file: str, *words: str) -> tuple[set[str], float]:
    """The modules that a check has loaded at its end, and the MiB that it needed at its peak."""
    program = (
        "import sys\nfrom eviction.cli.main import main\nmain(sys.argv[1:])\npeak = [line.split()[1]"
        " for line in open('/proc/self/status') if line.startswith('VmHWM')]\n"
        "print(*peak, *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "check", "--config", file, *words]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    peak, *modules = done.stderr.split()
    return set(modules), int(peak) / 1024


def test_a_check_imports_little_and_needs_little_memory(desk: Desk, daemon: Daemon) -> None:
    """A node-problem-detector asks every few seconds: at most 32 MiB at its peak (11 on Python
    3.11), and 45 where it observes itself (39), without the modules that remove."""
    costly = {"google", "pydantic", "argparse", "eviction.engine.view"}
    loaded, peak = imports(desk.file)
    assert (costly & loaded, peak <= 32) == (set(), True)
    for output in ("table", "json"):
        loaded, peak = imports(desk.file, "--standalone", "-o", output)
        assert costly <= loaded, "so the ones above were really missing"
        assert (REMOVING & loaded, peak <= 45) == (set(), True)


# ---- without the kubelet, a runtime that answers, or leave


@pytest.mark.regression
@pytest.mark.parametrize("by_daemon", [True, False])
def test_a_kubelet_that_does_not_answer_is_said_in_one_line(desk: Desk, by_daemon: bool) -> None:
    """Whoever does the work; the pass goes on. One that answers, or that nobody configured, is not
    mentioned."""
    url = f"http://127.0.0.1:{free_port()}"
    file = desk.configure(kubeletEndpoint=url)
    with ExitStack() as stack:
        if by_daemon:
            stack.enter_context(Daemon("--config", file))
            assert came_true(lambda: located(file))
        done = desk.reclaim("-o", "json", config=file)
    why = "the states of pods are from the kubelet's directories"
    assert re.fullmatch(
        f"reclaimd: {why}: the kubelet at {url} refuses connections.*\n", done.stderr
    )
    assert (done.returncode, answer(done)["result"]) == (0, "satisfied")
    if not by_daemon:
        with KubeletServer(kubelets_answer(pod_list())) as kubelet:
            for fields in ({"kubeletEndpoint": kubelet.url}, {}):
                done = desk.reclaim(config=desk.configure(MIB, **fields))
                assert (done.returncode, done.stderr) == (0, "")
            assert kubelet.requests


def test_room_that_is_there_needs_neither_a_runtime_nor_leave(desk: Desk) -> None:
    """nodefs is read without a runtime; other room is exit 3 without one, or with one that hangs,
    and 6 in a pause. Nothing is guessed, nothing removed."""
    little, much = ("--on", "nodefs", "--room", "1Mi"), ("--on", "imagefs", "--room", "60Mi")
    desk.small.failpoints["ListContainers"] = Hang()
    assert desk.reclaim("--standalone", *much, process=True).returncode == 3
    desk.small.failpoints.clear()
    with Daemon("--config", desk.file):
        assert came_true(lambda: located(desk.file))
        assert reclaimd_here("pause", "--config", desk.file).returncode == 0
        codes = [
            reclaimd_here("reclaim", "--config", desk.file, *words).returncode
            for words in (little, much)
        ]
    desk.small.server.stop()
    away = [desk.reclaim(*words) for words in (little, much)]
    assert codes + [each.returncode for each in away] == [0, 6, 0, 3]
    assert "the container runtime cannot be reached" in away[1].stderr
    assert desk.small.removed() == []
