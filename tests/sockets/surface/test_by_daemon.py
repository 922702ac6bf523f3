"""`reclaim` and `check` are done by a running daemon; if it cannot, by the command itself.

The daemon on a small node holds off for an hour, so that every removal was requested. What they
print is compared in `tests/sockets/cli/test_commands.py`, too.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from eviction.surface.requests import MOST_WAITING
from tests.nodes.faults import Hang
from tests.nodes.small_node import LONGEST_SECONDS
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
)
from tests.sockets.stage import Stage


@pytest.fixture
def desk(stage: Stage) -> Stage:
    """Six old images of 4 MiB, and 6 MiB under pressure."""
    stage.does("images 6")
    stage.does("node {above: 6Mi, holdOffAfterStart: 1h}")
    return stage


@pytest.mark.parametrize(
    "says",
    [b"220 mail ready\n", b"", b"[]\n", b'{"accepted": true}\n', b'{"exit_code": 0}\n', b"\xff\n"],
)
def test_after_an_invalid_answer_the_command_does_the_work(desk: Stage, says: bytes) -> None:
    """Whatever answers: one sentence, and the node is relieved."""
    (desk.directory / "run").mkdir()
    with socket.create_server(desk.control, family=socket.AF_UNIX) as other:

        def talk() -> None:
            client, _ = other.accept()
            with client:
                client.recv(65536)
                client.sendall(says)

        threading.Thread(target=talk, daemon=True).start()
        done = reclaimd_here("reclaim", "--config", desk.file, "--now", "-o", "json")
    assert (done.returncode, answer(done)["result"]) == (0, "satisfied")
    assert re.fullmatch(".*; doing the work here\n", done.stderr)


def test_requests_wait_their_turn_and_leave_with_their_clients(desk: Stage) -> None:
    """The second is shown what the daemon does, and in its turn there is nothing left to do. A
    client that is killed or hangs up leaves no request; one too many is refused at once."""
    desk.does("daemon starts")
    desk.small.failpoints["RemoveImage"] = Hang()
    words = ("reclaim", "--config", desk.file, "--now")

    def client(stack: ExitStack, **options: Any) -> Any:
        asks = stack.enter_context(socket.socket(socket.AF_UNIX))
        asks.settimeout(LONGEST_SECONDS)
        asks.connect(desk.control)
        request = {"command": "reclaim", "options": options, "told": {}}
        asks.sendall(json.dumps(request).encode() + b"\n")
        return asks

    def waiting(number: int) -> bool:
        status = ("status", "--config", desk.file, "-o", "json")
        return came_true(lambda: answer(reclaimd_here(*status))["requests_waiting"] == number)

    with ThreadPoolExecutor(2) as pool, ExitStack() as others:
        first = pool.submit(reclaimd, *words, "-o", "json")
        desk.small.wait_for("RemoveImage")
        second = pool.submit(reclaimd, *words, "-o", "json")
        assert waiting(1)
        killed = subprocess.Popen([PROGRAM, *words, "--all"], env=ENVIRONMENT)
        for _ in range(MOST_WAITING - 2):
            client(others, all=True, now=True)
        assert waiting(MOST_WAITING)
        many = f"{MOST_WAITING} requests are waiting already"
        assert json.loads(client(others).recv(4096)) == {"refused": many}
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


PEAK = """
import sys
from eviction.cli.main import main
main(sys.argv[1:])
peak = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')]
print(*peak, file=sys.stderr)
"""


@pytest.mark.parametrize(("words", "most_mib"), [([], 32), (["--standalone"], 45)])
def test_a_check_needs_little_memory(desk: Stage, words: list[str], most_mib: int) -> None:
    """A node-problem-detector asks every few seconds: at its peak 11 MiB on Python 3.11, and 39
    where it observes itself."""
    desk.does("daemon starts")
    command = [sys.executable, "-c", PEAK, "check", "--config", desk.file, *words]
    options: Any = {"env": ENVIRONMENT, "capture_output": True, "text": True, "check": True}
    assert int(subprocess.run(command, **options).stderr) <= most_mib * 1024


# ---- what an operator says keeps it from removing


@pytest.mark.regression
def test_a_file_that_may_be_a_pause_holds_until_it_can_be_read_or_is_ended(stage: Stage) -> None:
    """Neither the daemon nor a command removes anything, and each says why."""
    stage.plays()


def test_a_pause_stops_the_pass_that_runs(stage: Stage) -> None:
    """Once the client has its answer only what had been sent ends."""
    stage.plays()


def test_a_reload_stops_the_pass_that_runs(stage: Stage) -> None:
    """A dry run, images that are kept, or no mark: in force while the pass still waits for what it
    has sent; what the pass had planned stays."""
    stage.plays()
