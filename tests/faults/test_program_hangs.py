"""A program whose execve hangs: its run ends in its time, and the interpreter goes on meanwhile."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.silent_file import OPEN, SilentFile
from tests.faults.silent_filesystem import Silence
from tests.reclaimd_process import came_true
from tests.repository import ROOT
from tests.sockets.program.scripts import Runs

PATIENCE_SECONDS = 60.0
# Debian 12's is 3.11.2, which keeps itself locked while a program is started
SYSTEMS_PYTHON = "/usr/bin/python3"
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
    """A program on a filesystem that answers whoever looks at it, and nobody who starts it."""
    directory = tmp_path / "mount"
    directory.mkdir()
    with SilentFile(directory) as filesystem:
        yield filesystem


def test_the_fixture_is_a_program_until_it_falls_silent(program: SilentFile) -> None:
    """It runs and ends."""
    assert Runs().run(program.path) == ""


@pytest.mark.regression
@pytest.mark.parametrize("stopped", [False, True], ids=["timeout", "stop"])
def test_a_start_that_hangs_ends_with_its_time(program: SilentFile, stopped: bool) -> None:
    """Also at a stop.

    The kernel keeps its process, so that it is not started again; nothing else waits for it.
    """
    program.fall_silent(Silence.SWALLOWED)
    runs, told = Runs(), list[str]()
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
    told = subprocess.run(
        [SYSTEMS_PYTHON, "-V"], capture_output=True, text=True, check=False
    ).stdout
    locked = told.strip() in ("Python 3.11.0", "Python 3.11.1", "Python 3.11.2", "Python 3.11.3")
    return [sys.executable, *([SYSTEMS_PYTHON] if locked else [])]


@pytest.mark.regression
@pytest.mark.parametrize("supervisor_hangs", [False, True], ids=["program", "supervisor"])
@pytest.mark.parametrize("interpreter", interpreters())
def test_the_interpreter_goes_on_while_a_program_is_started(
    program: SilentFile, interpreter: str, supervisor_hangs: bool
) -> None:
    """Another thread of the same process goes on, on every Python, also if it is the
    supervisor that does not start.
    """
    program.fall_silent(Silence.SWALLOWED)
    started = (
        (os.path.realpath("/bin/true"), program.path)
        if supervisor_hangs
        else (program.path, interpreter)
    )
    beating = subprocess.Popen(
        [interpreter, "-c", BEATING, *started],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"},
    )
    try:
        assert came_true(lambda: program.requests[OPEN] > 0)
        assert beating.stdout is not None
        seen = b""
        while seen.count(b"\n") < 10 * BEATS:  # the first of them may have been there before
            assert select.select([beating.stdout], [], [], PATIENCE_SECONDS)[0], "it stands still"
            seen += os.read(beating.stdout.fileno(), BEATS)
    finally:
        program.abort()
        beating.kill()
        beating.communicate()
