"""`reclaimd reclaim` is done by a running daemon; if the daemon cannot, by the command itself.

The daemon on a small node holds off for an hour, so that every removal was requested.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eviction.surface.requests import MOST_WAITING
from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import LONGEST_SECONDS, MIB, SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
)
from tests.stopped import stopped


class Desk:
    """A small node with six old images, its configuration file, and the daemon's control socket."""

    def __init__(self, small: SmallNode, directory: Path):
        self.small = small
        self.control = directory / "run" / "control.sock"
        self.images = small.add_images(6)
        self.file = self.configure(above=6 * MIB)

    def configure(self, above: int, **fields: Any) -> str:
        """Path of a configuration with pressure until `above` more bytes are free; the
        daemon holds off for an hour.
        """
        return self.small.configuration(
            Signal.NODEFS_AVAILABLE,
            above=above,
            controlSocket=str(self.control),
            holdOffAfterStart="1h",
            **fields,
        )

    def reclaim(
        self, *arguments: str, config: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`reclaimd reclaim` with this configuration, and with `--now`, because the
        machine may just have booted.
        """
        return reclaimd_here("reclaim", "--config", config or self.file, "--now", *arguments)

    def reclaim_process(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same as a process, which can also be waited for on another thread."""
        return reclaimd("reclaim", "--config", self.file, "--now", *arguments)

    def by_daemon(self, daemon: Daemon, record: dict[str, Any]) -> bool:
        """True if the printed pass is one of the daemon's."""
        return came_true(lambda: record["id"] in [each["id"] for each in daemon.passes])


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


@pytest.fixture(scope="module")
def kept_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A node that no test changes."""
    directory = tmp_path_factory.mktemp("kept")
    small = SmallNode(directory)
    yield Desk(small, directory)
    small.close()


@pytest.fixture(scope="module")
def kept_daemon(kept_desk: Desk) -> Iterator[Daemon]:
    """A daemon on it."""
    with Daemon("--config", kept_desk.file) as running:
        assert came_true(lambda: located(kept_desk.file))
        yield running


@pytest.fixture
def unchanged(kept_desk: Desk, kept_daemon: Daemon) -> Iterator[Desk]:
    """A node with a daemon, shared by the tests after which nothing is removed and
    the daemon has made no pass.
    """
    yield kept_desk
    assert kept_desk.small.removed() == []
    assert kept_daemon.passes == []
    assert set(kept_desk.images) < kept_desk.small.images()


def located(file: str) -> bool:
    process = reclaimd_here("status", "--config", file, "-o", "json")
    return process.returncode == 0 and answer(process)["layout"] is not None


def sentences(process: subprocess.CompletedProcess[str]) -> list[str]:
    """What the command said, without the lines about its turn: the daemon may be asking
    the runtime at any moment.
    """
    return [
        line for line in process.stderr.splitlines() if not line.endswith("; waiting for its turn")
    ]


def observed(file: str) -> bool:
    """Whether the daemon answers, and has made its first observation."""
    process = reclaimd_here("status", "--config", file, "-o", "json")
    return process.returncode == 0 and bool(answer(process)["observations"])


def test_the_daemon_runs_the_pass_and_the_command_prints_it(desk: Desk, daemon: Daemon) -> None:
    """The record is the daemon's, with trigger `request`, exit 0; two images of 4 MiB free the 6
    MiB. A dry run before it changes nothing."""
    assert answer(desk.reclaim("--dry-run", "-o", "json"))["result"] == "dry_run"
    process = desk.reclaim_process("-o", "json")
    record = answer(process)
    assert (process.returncode, sentences(process)) == (0, [])
    assert (record["trigger"], record["result"]) == ("request", "satisfied")
    assert desk.by_daemon(daemon, record)
    assert [o["id"] for o in record["removals"]] == desk.small.removed("image")
    assert len(desk.small.removed("image")) == 2, record


def test_a_table_is_printed_as_by_the_command_itself(unchanged: Desk) -> None:
    """The lines for people are the same; only ids, ages and times differ."""
    asked = unchanged.reclaim("--dry-run")
    alone = unchanged.reclaim("--dry-run", "--standalone")
    assert asked.returncode == alone.returncode == 0
    heads = [[line.split()[0] for line in each.stdout.splitlines()] for each in (asked, alone)]
    assert heads[0] == heads[1]
    assert asked.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]


def test_a_dry_run_of_the_daemon_removes_nothing(unchanged: Desk, kept_daemon: Daemon) -> None:
    """The removals are listed and not done; the pass is not among the daemon's passes."""
    record = answer(unchanged.reclaim("--dry-run", "-o", "json"))
    assert record["result"] == "dry_run"
    assert [o["result"] for o in record["removals"]] == ["planned", "planned"]
    assert unchanged.small.removed() == []
    assert kept_daemon.passes == []


def test_until_signal_and_all_reach_the_daemon(desk: Desk, daemon: Daemon) -> None:
    """`--until` sets the mark: 14 MiB more than now, where the configured threshold wants 6. Then
    `--signal imagefs.inodesFree --all` goes to the end of the row: all six images."""
    mark = desk.small.available() + 14 * MIB
    record = answer(
        desk.reclaim("--signal", "nodefs.available", "--until", str(mark), "-o", "json")
    )
    assert desk.by_daemon(daemon, record)
    assert record["result"] == "satisfied"
    assert mark <= desk.small.available() < mark + 4 * MIB
    assert not set(desk.small.removed("image")) >= set(desk.images)
    record = answer(desk.reclaim("--signal=imagefs.inodesFree", "--all", "--output", "json"))
    assert desk.by_daemon(daemon, record)
    assert set(desk.small.removed("image")) >= set(desk.images)


def test_a_request_without_any_configuration_uses_that_of_the_daemon(unchanged: Desk) -> None:
    """A request without files, flags and environment is accepted; one with
    another file is refused.
    """
    with conversation(unchanged.control, {"options": {"dry_run": True}, "told": {}}) as lines:
        assert json.loads(lines.readline())["accepted"] is True
        assert json.loads(lines.readline())["exit_code"] == 0
    other = {"files": [["/elsewhere", 0, 0]], "flags": [], "environment": []}
    with conversation(unchanged.control, {"options": {}, "told": other}) as lines:
        assert "another configuration" in json.loads(lines.readline())["refused"]


def test_with_another_configuration_the_daemon_refuses_and_standalone_never_asks(
    desk: Desk, daemon: Daemon
) -> None:
    """Another file for the same node: the daemon refuses, the command says so and does
    the work itself. With `--standalone` it does the work without a word. Neither pass
    is one of the daemon's."""
    other = desk.configure(above=10 * MIB)
    process = desk.reclaim("-o", "json", config=other)
    assert "the daemon refuses: it runs with another configuration" in process.stderr
    assert process.stderr.count("\n") == 1
    assert answer(process)["result"] == "satisfied"
    assert daemon.passes == []
    assert len(desk.small.removed("image")) == 3, "by the command's configuration"
    desk.small.fill(8 * MIB)  # under pressure again, by the daemon's configuration
    process = desk.reclaim("--standalone", "-o", "json")
    assert (process.stderr, answer(process)["result"]) == ("", "satisfied")
    assert len(desk.small.removed("image")) > 3
    assert daemon.passes == []


def test_a_file_that_changed_since_the_daemon_read_it_is_another_configuration(
    unchanged: Desk, kept_daemon: Daemon
) -> None:
    """Until it is reloaded; then the daemon does the work again."""
    Path(unchanged.file).write_text(Path(unchanged.file).read_text() + "\n")
    process = unchanged.reclaim("--dry-run", "-o", "json")
    assert "another configuration" in process.stderr
    kept_daemon.process.send_signal(signal.SIGHUP)
    kept_daemon.wait_for(lambda event: "was reloaded" in event["message"])
    process = unchanged.reclaim("--dry-run", "-o", "json")
    assert (process.returncode, sentences(process)) == (0, [])


def test_with_flags_of_the_configuration_the_daemon_is_not_asked(unchanged: Desk) -> None:
    """`--eviction-hard` differs from the daemon's configuration: the command
    does the work itself.
    """
    process = unchanged.reclaim("--eviction-hard", "nodefs.available<1Ki", "-o", "json")
    assert (process.returncode, answer(process)["result"]) == (0, "idle")
    assert process.stderr == ""


def test_a_wrong_option_is_exit_2_with_or_without_a_daemon(unchanged: Desk) -> None:
    """The last sentence on stderr is the same, and nothing happens."""
    for wrong in (["--signal", "nodefs"], ["--until", "1Gi"], ["-o", "xml"], ["--sinal", "x"]):
        asked, alone = unchanged.reclaim(*wrong), unchanged.reclaim("--standalone", *wrong)
        assert asked.returncode == alone.returncode == 2, wrong
        assert sentences(asked)[-1] == sentences(alone)[-1], wrong
        assert unchanged.small.removed() == [], wrong


def test_without_a_daemon_the_command_works_without_a_message(desk: Desk) -> None:
    """No socket, and a socket that a dead daemon left behind."""
    process = desk.reclaim_process("-o", "json")
    assert (process.returncode, process.stderr, answer(process)["result"]) == (0, "", "satisfied")
    desk.control.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(desk.control))
    process = desk.reclaim("-o", "json")
    assert (process.returncode, process.stderr, answer(process)["result"]) == (0, "", "idle")


def test_a_daemon_that_does_not_answer_is_waited_for_1_s(desk: Desk, daemon: Daemon) -> None:
    """The daemon is stopped (SIGSTOP): the command says so and relieves the node."""
    with stopped(daemon.process.pid):
        began = time.monotonic()
        process = desk.reclaim("-o", "json")
        took = time.monotonic() - began
    assert process.stderr == "reclaimd: the daemon does not answer; doing the work here\n"
    assert answer(process)["result"] == "satisfied"
    assert took >= 1.0


@pytest.mark.parametrize(
    "says",
    [b"220 mail ready\n", b"", b"[]\n", b'{"accepted": true}\n', b'{"exit_code": 0}\n', b"\xff\n"],
)
def test_after_an_invalid_answer_the_command_does_the_work(desk: Desk, says: bytes) -> None:
    """Whatever answers: one sentence, and the node is relieved."""
    desk.control.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(desk.control))
        other.listen(1)

        def talk() -> None:
            client, _ = other.accept()
            with client:
                client.recv(65536)
                client.sendall(says)

        threading.Thread(target=talk, daemon=True).start()
        process = desk.reclaim("-o", "json")
    assert (process.returncode, answer(process)["result"]) == (0, "satisfied")
    assert process.stderr.endswith("doing the work here\n")
    assert process.stderr.count("\n") == 1


def test_a_daemon_that_has_never_reached_the_runtime_leaves_reclaim_to_the_command(
    desk: Desk,
) -> None:
    """Exit 3 from both while the runtime is away; once it is back the command
    relieves the node itself.
    """
    desk.small.server.stop()
    with Daemon("--config", desk.file):
        assert came_true(lambda: observed(desk.file))
        asked, alone = desk.reclaim(), desk.reclaim("--standalone")
        assert asked.returncode == alone.returncode == 3
        refusal, reason = sentences(asked)
        assert refusal.startswith(
            "reclaimd: the daemon refuses: it does not know where the images are: "
        )
        assert reason.startswith("reclaimd: the container runtime cannot be reached: ")
        desk.small.server.start()
        process = desk.reclaim("-o", "json")
        assert (process.returncode, answer(process)["result"]) == (0, "satisfied")


def test_a_request_during_a_pass_waits_its_turn_and_prints_that(desk: Desk, daemon: Daemon) -> None:
    """The second client is shown what the daemon does; in its turn there is nothing left to do."""
    desk.small.failpoints["RemoveImage"] = Hang()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(desk.reclaim_process, "-o", "json")
        desk.small.wait_for("RemoveImage")
        second = pool.submit(desk.reclaim_process, "-o", "json")
        assert came_true(lambda: waits(desk.file) == 1, every_seconds=0.05)
        time.sleep(1.5)
        assert not second.done()
        desk.small.failpoints.clear()
        records = [answer(first.result()), answer(second.result())]
    assert (
        second.result().stderr
        == "reclaimd: the daemon is relieving on request; waiting for its turn\n"
    )
    assert [record["result"] for record in records] == ["satisfied", "idle"]


def waits(file: str) -> int:
    """How many requests wait."""
    return int(answer(reclaimd_here("status", "--config", file, "-o", "json"))["requests_waiting"])


def test_a_client_that_is_killed_before_its_turn_leaves_no_request(
    desk: Desk, daemon: Daemon
) -> None:
    """Its place is free again, as those of clients that hang up; one client
    too many is refused at once.
    """
    desk.small.failpoints["RemoveImage"] = Hang()
    everything = {"options": {"all": True, "now": True}, "told": {}}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(desk.reclaim_process, "-o", "json")
        desk.small.wait_for("RemoveImage")
        command = [PROGRAM, "reclaim", "--config", desk.file, "--now", "--all"]
        waiting = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with ExitStack() as others:
            for _ in range(MOST_WAITING - 1):
                others.enter_context(conversation(desk.control, everything))
            assert came_true(lambda: waits(desk.file) == MOST_WAITING, every_seconds=0.05)
            with conversation(desk.control, {"options": {}, "told": {}}) as lines:
                assert json.loads(lines.readline()) == {
                    "refused": f"{MOST_WAITING} requests are waiting already"
                }
            waiting.kill()
            waiting.wait()
            assert came_true(lambda: waits(desk.file) == MOST_WAITING - 1)
        assert came_true(lambda: waits(desk.file) == 0)
        desk.small.failpoints.clear()
        assert answer(first.result())["result"] == "satisfied"
    assert len(desk.small.removed("image")) == 2, "none of the others went to the end"


class conversation:  # noqa: N801 # reads as a function in a with statement
    """A bare conversation with the daemon; its lines."""

    def __init__(self, path: Path, request: dict[str, Any]):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(LONGEST_SECONDS)
        self._socket.connect(str(path))
        self._socket.sendall(json.dumps({"command": "reclaim", **request}).encode() + b"\n")
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Any:
        return self._lines

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()
