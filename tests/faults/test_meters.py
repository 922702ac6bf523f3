"""The meters themselves: they count leaks, ignore what is released again, and
time a heartbeat that stops.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from tests.faults.meters import MIB, Meters, longest_gap
from tests.reclaimd_process import came_true

pytestmark = pytest.mark.house("tests/faults/meters.py")

LEAK = """
import os, sys, threading, time
sys.stdin.readline()
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(7)]
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
block = bytearray(b"x") * (64 << 20)
print("leaked", flush=True)
sys.stdin.readline()
"""


def test_what_a_process_leaks_is_counted() -> None:
    """7 descriptors, 3 threads and 64 MiB more in another process are 7, 3 and at
    least 64 MiB in the report.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", LEAK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        time.sleep(0.3)
        with Meters(process.pid, every_seconds=0.01) as meters:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "leaked\n"
        process.stdin.close()
    report = meters.report
    assert (report.descriptors_more, report.threads_more) == (7, 3)
    assert report.peak.rss_bytes - report.first.rss_bytes >= 60 * MIB
    assert not report.ended
    assert "descriptors" in str(report)
    assert "not measured" in str(report)


def test_what_is_released_again_is_a_peak_and_no_leak() -> None:
    """20 descriptors that are closed again show in the peak, not at the end; the meters'
    own thread is not counted.
    """
    with Meters(os.getpid(), every_seconds=0.005) as meters:
        opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        assert came_true(lambda: meters.report.samples >= 5)
        for descriptor in opened:
            os.close(descriptor)
    report = meters.report
    assert (report.descriptors_more, report.threads_more) == (0, 0)
    assert report.peak.descriptors >= report.first.descriptors + 20
    assert report.peak.threads == report.first.threads


def test_a_heartbeat_that_stops_is_timed() -> None:
    """The longest stall is reported: of a heartbeat that is 0.3 s old, and of
    one that does not answer.
    """
    ages, asked = [0.01, 0.3, 0.02, 0.0], threading.Event()

    def age() -> float:
        if len(ages) == 1:
            asked.set()
        return ages.pop(0) if len(ages) > 1 else ages[0]

    with Meters(os.getpid(), age, every_seconds=0.005) as meters:
        assert asked.wait(60)
    assert meters.report.longest_stall_seconds == 0.3
    began = time.monotonic()
    with Meters(os.getpid(), lambda: None, every_seconds=0.01) as meters:
        assert came_true(lambda: (meters.report.longest_stall_seconds or 0.0) >= 0.1)
    stall = meters.report.longest_stall_seconds
    assert stall is not None
    assert stall <= time.monotonic() - began
    assert f"{stall:.3f} s" in str(meters.report)


def test_a_process_that_ended_is_marked_as_ended() -> None:
    """The last reading is from before the end, and the report says that the process has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Meters(process.pid, every_seconds=0.01) as meters:
        process.communicate(b"\n")
    assert meters.report.ended
    assert meters.report.first.rss_bytes > 0
    assert "has ended" in str(meters.report)


def test_the_longest_gap_of_a_log_counts_its_ends_too() -> None:
    """Events at 1, 2 and 5 s between 0 and 6 s: the gap is 3 s; without
    events it is the whole time.
    """
    assert longest_gap([2.0, 1.0, 5.0], 0.0, 6.0) == 3.0
    assert longest_gap([], 0.0, 6.0) == 6.0
    assert longest_gap([1.0], 0.0, 6.0) == 5.0


def test_a_thread_that_is_still_alive_at_the_end_counts() -> None:
    """A thread of this process that has not ended by the end counts."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    with Meters(os.getpid()) as meters:
        thread.start()
    release.set()
    thread.join()
    assert meters.report.threads_more == 1
