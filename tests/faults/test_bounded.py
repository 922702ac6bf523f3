"""Descriptors, threads and memory of a daemon stay bounded over inotify events,
passes and runtime restarts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from signals.types import Signal
from tests.faults.meters import MIB, Meters, Reading, Report
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.conftest import SmallNodeFactory

GROWTH_BYTES = 4 * MIB
LONGEST_SETTLING_SECONDS = 60.0
# a pass during which the next image arrives would count as fruitless, and back off for a second
ENDING_SECONDS = 0.03
SMALL_BYTES = 256 << 10


def metered(daemon: Daemon, warm: Callable[[], None], long: Callable[[], None]) -> Report:
    """What the daemon holds after `long` compared with after `warm`, which fills its caches."""
    warm()
    with Meters(daemon.process.pid, every_seconds=0.5) as meters:
        long()
        last = lowest(daemon, meters.report.first.threads)
    assert daemon.process.poll() is None
    return replace(meters.report, last=last)


def lowest(daemon: Daemon, threads: int) -> Reading:
    """The first reading with at most `threads` threads; after a minute without one, the
    reading with the fewest. A CRI call, a removal and gRPC's own work each have a
    thread while they last."""
    process = psutil.Process(daemon.process.pid)
    readings: list[Reading] = []

    def read() -> bool:
        with process.oneshot():
            readings.append(
                Reading(process.num_fds(), process.num_threads(), process.memory_info().rss)
            )
        return readings[-1].threads <= threads

    came_true(read, LONGEST_SETTLING_SECONDS)
    return min(readings, key=lambda each: (each.threads, each.descriptors))


def assert_nothing_kept(report: Report) -> None:
    """Descriptors and threads have not increased."""
    assert report.descriptors_more <= 0, str(report)
    assert report.threads_more <= 0, str(report)


def with_a_pod(small: SmallNode) -> SmallNode:
    """Runs a pod, so that only what the load adds is removable."""
    small.run(small.run_pod("web"))
    return small


def soon_removed(small: SmallNode, image: str) -> bool:
    """Waits until the image is among the last eight removals; False if it never is."""
    return came_true(lambda: image in [each.id for each in small.runtime.removals[-8:]])


def almost_under_pressure(small: SmallNode) -> str:
    """A configuration whose threshold the next image crosses."""
    return small.configuration(
        Signal.NODEFS_AVAILABLE, above=-(SMALL_BYTES // 2), pollCeiling="10ms"
    )


def under_events(small: SmallNode, count: int) -> Report:
    """`count` inotify events in a directory that the daemon watches."""
    watched = small.root_directory / "pods"

    def events(number: int) -> None:
        directory = os.open(watched, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for _ in range(number):
                os.mkdir("sign-of-growth", dir_fd=directory)
                os.rmdir("sign-of-growth", dir_fd=directory)
        finally:
            os.close(directory)

    marks = {"nodefs.available": "1Mi"}
    configuration = small.configuration(
        evictionHard=marks, pollCeiling="10ms", assumedFillRate="100Gi"
    )
    with Daemon("--config", configuration, cold=True) as daemon:
        small.wait_for("ListPodSandbox")
        time.sleep(0.5)
        report = metered(daemon, lambda: events(count // 5), lambda: events(count))
        assert daemon.stop() == 0
    return report


def under_passes(small: SmallNode, count: int) -> Report:
    """`count` passes that each remove an image: after each removal another image
    crosses the threshold again.
    """
    serial = 0

    def passes(number: int) -> None:
        nonlocal serial
        for _ in range(number):
            serial += 1
            image = small.add_image(f"registry.example/pass/{serial}:1", SMALL_BYTES)
            assert soon_removed(small, image)
            time.sleep(ENDING_SECONDS)

    with Daemon("--config", almost_under_pressure(small), cold=True) as daemon:
        small.wait_for("ListPodSandbox")
        report = metered(daemon, lambda: passes(max(count // 10, 20)), lambda: passes(count))
        done = len(daemon.passes)
        assert daemon.stop() == 0
    assert done >= count * 0.9, f"{done} passes"
    return report


def under_restarts(small: SmallNode, count: int) -> Report:
    """`count` restarts of the runtime, each followed by pressure that is relieved."""
    serial = 0

    def restarts(number: int) -> None:
        nonlocal serial
        for _ in range(number):
            serial += 1
            small.server.stop()
            small.server.start()
            image = small.add_image(f"registry.example/restart/{serial}:1", SMALL_BYTES)
            assert soon_removed(small, image)

    with Daemon("--config", almost_under_pressure(small), cold=True) as daemon:
        small.wait_for("ListPodSandbox")
        report = metered(daemon, lambda: restarts(max(count // 2, 5)), lambda: restarts(count))
        assert daemon.stop() == 0
    return report


Load = tuple[Callable[[SmallNode, int], Report], int]
LOADS: dict[str, Load] = {
    "inotify events": (under_events, 10_000),
    "passes": (under_passes, 40),
    "restarts of the runtime": (under_restarts, 4),
}
SOAK: dict[str, Load] = {
    "inotify events": (under_events, 1_000_000),
    "passes": (under_passes, 10_000),
    "restarts of the runtime": (under_restarts, 200),
}


@pytest.mark.parametrize("name", LOADS)
def test_what_a_daemon_holds_stays_bounded(make_small_node: SmallNodeFactory, name: str) -> None:
    """A short run of each load adds no descriptor and no thread."""
    load, count = LOADS[name]
    assert_nothing_kept(load(with_a_pod(make_small_node()), count))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SOAK)
def test_what_a_daemon_holds_stays_bounded_for_long(
    make_small_node: SmallNodeFactory, name: str
) -> None:
    """A million events, 10 000 passes, 200 restarts add no descriptor, no
    thread and less than 4 MiB.
    """
    load, count = SOAK[name]
    began = time.monotonic()
    report = load(with_a_pod(make_small_node()), count)
    print(f"{count} {name} in {time.monotonic() - began:.0f} s:\n{report}")
    assert_nothing_kept(report)
    assert report.last.rss_bytes - report.first.rss_bytes <= GROWTH_BYTES, str(report)
