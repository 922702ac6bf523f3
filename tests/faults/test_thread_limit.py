"""The thread limit of the tests does what it says."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tests.thread_limit import ThreadLimit, no_thread_starts

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


def test_no_thread_of_this_process_starts_for_a_while() -> None:
    """It fails as it does at the limit; then they start again."""
    ran = threading.Event()
    thread = threading.Thread(target=ran.set)
    with no_thread_starts(), pytest.raises(RuntimeError, match="can't start new thread"):
        threading.Thread(target=ran.set).start()
    assert not ran.is_set()
    thread.start()
    thread.join()
    assert ran.is_set()
