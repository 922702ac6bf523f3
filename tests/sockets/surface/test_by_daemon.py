"""`reclaim` and `check` are done by a running daemon; if it cannot, by the command itself. It reads its
configuration again when it is told to, by a command or a signal.

The daemon on a small node holds off for an hour, so that every removal was requested. What they
print is compared in `tests/sockets/cli/test_commands.py`, too.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from eviction.cli.parser import command_of
from eviction.cli.run import read_configuration
from eviction.surface.control_client import ask
from eviction.surface.daemon import Daemon as Loop
from eviction.surface.reload import LoadedConfiguration
from eviction.surface.requests import MOST_WAITING
from eviction.surface.systemd import Notifier
from eviction.wording.log import Log
from tests.nodes.faults import Hang
from tests.nodes.small_node import LONGEST_SECONDS, SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
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
        return came_true(lambda: ask(desk.control, "status")["requests_waiting"] == number)

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


# ---- what an operator says keeps it from removing


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


# ---- reload, and SIGHUP

REJECTED = "the configuration was not reloaded, the old one stays in force: "
RELOADED = "the configuration was reloaded"


def test_a_defect_while_reloading_is_logged_and_changes_nothing(small_node: SmallNode) -> None:
    """Arguments that miss what is read from them: one sentence, the old configuration stays, and no
    client is served by the new one."""
    node, stream = small_node.node(), io.StringIO()
    log, before = Log(time.time, stream=stream), node.configuration
    arguments = command_of("run")[0].parse_args(["--config", small_node.configuration()])
    loaded = LoadedConfiguration(partial(read_configuration, arguments), log, Notifier({}, 0))
    loaded.first()
    assert loaded.fingerprint
    loaded.read = partial(read_configuration, argparse.Namespace())
    loaded.reload(Loop(node, log))
    assert f"{REJECTED}AttributeError: " in stream.getvalue()
    assert node.configuration == before
    assert loaded.fingerprint == {}


EARLY = """
import os, signal, sys

class Early:
    def find_spec(self, name, *_):
        if name == "eviction.cli.run":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Early())
from eviction.__main__ import main
sys.exit(main())
"""


def test_a_sighup_during_the_imports_is_remembered(stage: Stage) -> None:
    """A log rotation while the daemon starts: it does not end, and reads its configuration
    again."""
    stage.configure()
    command = [sys.executable, "-c", EARLY, "run", "--config", stage.file]
    options: Any = {"stderr": subprocess.PIPE, "env": ENVIRONMENT, "text": True}
    with subprocess.Popen(command, **options) as daemon:
        assert daemon.stderr is not None
        assert any(RELOADED in line for line in daemon.stderr), "it has ended"
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_SECONDS) == 0
