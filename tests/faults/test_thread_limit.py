"""The thread limit of the tests does what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.thread_limit import ThreadLimit

PROGRAM = """
import sys, threading
for line in sys.stdin:
    try:
        threading.Thread(target=int).start()
    except RuntimeError as error:
        print(error, flush=True)
    else:
        print("started", flush=True)
"""


@pytest.mark.parametrize("times", [1, 3])
def test_no_thread_starts_while_the_limit_forbids_it(times: int) -> None:
    """A running child starts a thread, cannot start another, and can again."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        commands, answers = child.stdin, child.stdout
        assert commands is not None
        assert answers is not None

        def tried() -> str:
            commands.write("\n")
            commands.flush()
            return answers.readline().strip()

        with ThreadLimit(child.pid) as limit:
            assert tried() == "started"
            for _ in range(times):
                limit.forbid()
                assert tried() == "can't start new thread"
                limit.lift()
                assert tried() == "started"
        assert tried() == "started"
        commands.close()
        assert child.wait() == 0


def test_this_process_can_be_limited_too() -> None:
    """For servers that a test runs in its own process."""
    with ThreadLimit() as limit:
        limit.forbid()
        with pytest.raises(OSError, match="temporarily"):
            subprocess.run(["true"], check=True)
    subprocess.run(["true"], check=True)
