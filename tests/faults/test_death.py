"""SIGKILL in the middle of a reclaim leaves nothing to repair; of many daemons started at
once exactly one runs on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eviction.surface.control_client import ask
from signals.types import Signal
from tests.faults.pass_check import PopulatedNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.sockets.mounts import need_mounts

KILLS, KILLS_OF_SOAK = 6, 200
LONGEST_STEP_SECONDS = 0.005  # between two calls to the runtime
STARTS = 50
STARVED_PASSES = 5
WHOLE_ROW = ("--signal", "nodefs.available", "--all", "--now", "-o", "json")
EXIT_SECONDS = 5.0  # of processor time; 0.3 s on an idle machine


def has_asked(node: PopulatedNode, process: subprocess.Popen[bytes], times: int) -> bool:
    """True once the runtime has been called more than `times` times, or the process has ended."""
    return node.failpoints.calls.total() > times or process.poll() is not None


def undisturbed_pass(
    configuration: str, run: Callable[..., subprocess.CompletedProcess[str]] = reclaimd_here
) -> Any:
    """The record of one undisturbed pass, in this process or as one of its own.

    On a machine so busy that the reading of an object was too old for its removal the pass gives up
    with an error; then it is repeated.
    """
    record: Any = {}
    for _ in range(STARVED_PASSES):
        process = run("reclaim", "--config", configuration, *WHOLE_ROW)
        # 1: space that comes late is not there yet
        assert process.returncode in (0, 1), process.stderr
        record = answer(process)
        if not any("fresher than" in (each["error"] or "") for each in record["removals"]):
            break
    return record


def killed_at_random(directory: Path, kills: int, seed: int) -> list[int]:
    """Runs `kills` reclaims, each killed right after a random one of its calls to the runtime, and
    each followed by a whole one. Returns how many objects each had removed when it was killed."""
    need_mounts()
    chance = random.Random(seed)  # noqa: S311 # a repeatable sequence, no secret
    node = PopulatedNode(directory)
    removed_before_kill: list[int] = []
    try:
        node.populate()
        asked = node.failpoints.calls.total()
        undisturbed_pass(node.configuration(Signal.NODEFS_AVAILABLE, above=1), reclaimd)
        calls = node.failpoints.calls.total() - asked
        for _ in range(kills):
            removable = node.populate()
            configuration = node.configuration(Signal.NODEFS_AVAILABLE, above=1)
            already, asked = len(node.removed()), node.failpoints.calls.total()
            process = subprocess.Popen(
                [PROGRAM, "reclaim", "--config", configuration, *WHOLE_ROW],
                env=ENVIRONMENT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            last = asked + chance.randrange(calls)
            assert came_true(partial(has_asked, node, process, last), 20.0, every_seconds=0.0005)
            time.sleep(chance.uniform(0.0, LONGEST_STEP_SECONDS))
            process.kill()
            process.wait(60.0)
            removed_before_kill.append(len(node.removed()) - already)
            assert node.protected <= node.present(), node.protected - node.present()

            record = undisturbed_pass(configuration)
            left = removable & node.leftovers()
            reported = [
                each for each in (*record["removals"], *record["kept"]) if each["id"] in left
            ]
            assert not left, [
                (each["kind"], each["result"], each["reason"], each["error"]) for each in reported
            ]
            assert {each["result"] for each in record["removals"]} <= {"removed", "already_gone"}
            assert node.protected <= node.present()
    finally:
        node.close()
    return removed_before_kill


def test_a_reclaim_that_is_killed_leaves_nothing_to_repair(tmp_path: Path) -> None:
    """Six kills at random moments: the next start converges in one pass, and removes
    nothing that must be kept.
    """
    gone = killed_at_random(tmp_path / "node", KILLS, seed=7)
    assert len(gone) == KILLS


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_hundred_reclaims_that_are_killed_leave_nothing_to_repair(tmp_path: Path) -> None:
    """200 kills with a new seed each time, which is printed."""
    seed = time.time_ns()
    print(f"seed {seed}")
    gone = killed_at_random(tmp_path / "node", KILLS_OF_SOAK, seed)
    middle = sum(0 < each < max(gone) for each in gone)
    print(
        f"{KILLS_OF_SOAK} kills: {gone.count(0)} before the first removal, {middle} in the middle;"
        " each converged"
    )
    assert middle > KILLS_OF_SOAK // 10, "the kills were in the middle of it"


@dataclass(slots=True)
class Start:
    """One of many daemons started at once. `cpu_seconds`: the processor time it used, None while it
    runs. `stderr`: all that it printed there."""

    process: subprocess.Popen[str]
    cpu_seconds: float | None = None
    stderr: str = ""

    def follow(self) -> None:
        """Reads standard error to its end, then waits for the process."""
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.stderr += line
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime


def started_at_once(configuration: str, count: int) -> list[Start]:
    """Starts `count` daemons, each followed by a thread."""
    starts = [
        Start(
            subprocess.Popen(
                [PROGRAM, "run", "--config", configuration],
                env=ENVIRONMENT,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        for _ in range(count)
    ]
    for start in starts:
        threading.Thread(target=start.follow, daemon=True).start()
    return starts


def idle_configuration(tmp_path: Path) -> tuple[str, str]:
    """A configuration without pressure and without a runtime, and its control socket."""
    (tmp_path / "kubelet").mkdir()
    control = str(tmp_path / "control.sock")
    path = write_configuration(
        tmp_path / "reclaimd.yaml",
        rootDirectory=str(tmp_path / "kubelet"),
        containerRuntimeEndpoint=f"unix://{tmp_path}/none.sock",
        controlSocket=control,
        evictionHard={"nodefs.available": "1Ki"},
    )
    return str(path), control


def one_of_many_lives(tmp_path: Path, count: int) -> float:
    """Starts `count` daemons at once: exactly one runs on, the others exit with 75 and one
    sentence. Returns the most processor time that one of those took, in seconds."""
    configuration, control = idle_configuration(tmp_path)
    starts = started_at_once(configuration, count)
    try:
        assert came_true(
            lambda: sum(start.cpu_seconds is not None for start in starts) == count - 1, 120.0
        )
        (alive,) = (start for start in starts if start.cpu_seconds is None)
        left = [start for start in starts if start is not alive]
        for start in left:
            assert start.process.returncode == 75, start.stderr
            assert "another instance holds the node" in start.stderr
            assert start.stderr.count("\n") == 1
        assert ask(control, "status")["heartbeat_age_seconds"] < 60
        alive.process.send_signal(signal.SIGTERM)
        assert came_true(lambda: alive.cpu_seconds is not None)
        assert alive.process.returncode == 0, alive.stderr
        return max(start.cpu_seconds or 0.0 for start in left)
    finally:
        for start in starts:
            if start.cpu_seconds is None:
                start.process.kill()


def test_of_four_starts_at_once_exactly_one_lives(tmp_path: Path) -> None:
    """Each of the others exits within 5 s of processor time, Python's own start included."""
    assert one_of_many_lives(tmp_path, 4) < EXIT_SECONDS


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_of_fifty_starts_at_once_exactly_one_lives(tmp_path: Path) -> None:
    """49 exit with 75."""
    most = one_of_many_lives(tmp_path, STARTS)
    print(
        f"{STARTS} starts at once: one runs on, the others exit with 75 after at most {most:.2f} s"
        " of processor time"
    )
    assert most < EXIT_SECONDS


def test_the_first_instance_is_undisturbed_by_a_second_one(tmp_path: Path) -> None:
    """The first logs nothing about the second, answers its control socket,
    and exits with 0 on SIGTERM.
    """
    configuration, control = idle_configuration(tmp_path)
    with Daemon("--config", configuration) as first:
        assert came_true(lambda: "cannot be asked" in str(first.events))
        logged = len(first.events)
        assert reclaimd("run", "--config", configuration).returncode == 75
        assert len(first.events) == logged
        assert ask(control, "status")["conditions"] == []
        assert first.stop() == 0
