"""What a daemon holds stays bounded: events of inotify, passes and restarts of the runtime leave nothing behind."""

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
ENDING_SECONDS = 0.03  # a pass that sees the next image come would call itself fruitless, and wait a second
SMALL_BYTES = 256 << 10


def metered(daemon: Daemon, warm: Callable[[], None], long: Callable[[], None]) -> Report:
    """What the daemon holds after `long` beyond what it held after `warm`, which fills its caches."""
    warm()
    with Meters(daemon.process.pid, every_seconds=0.5) as meters:
        long()
        last = lowest(daemon, meters.report.first.threads)
    assert daemon.process.poll() is None
    return replace(meters.report, last=last)


def lowest(daemon: Daemon, threads: int) -> Reading:
    """What the daemon holds in a moment in which it has not more threads than that; in the best one of a while where
    there is none. A question to the runtime, a removal and gRPC's own work have threads while they last."""
    process = psutil.Process(daemon.process.pid)
    readings: list[Reading] = []

    def read() -> bool:
        with process.oneshot():
            readings.append(Reading(process.num_fds(), process.num_threads(), process.memory_info().rss))
        return readings[-1].threads <= threads

    came_true(read, LONGEST_SETTLING_SECONDS)
    return min(readings, key=lambda each: (each.threads, each.descriptors))


def assert_nothing_kept(report: Report) -> None:
    """No descriptor and no thread more."""
    assert report.descriptors_more <= 0, str(report)
    assert report.threads_more <= 0, str(report)


def lived_in(small: SmallNode) -> SmallNode:
    """With a pod, so that only what a burden brings may go."""
    small.run(small.run_pod("web"))
    return small


def soon_gone(small: SmallNode, image: str) -> bool:
    """Whether the image is reclaimed; of many removals only the last ones are looked through."""
    return came_true(lambda: image in [each.id for each in small.runtime.removals[-8:]])


def pressed(small: SmallNode) -> str:
    """A configuration whose mark the next image crosses."""
    return small.configuration(Signal.NODEFS_AVAILABLE, above=-(SMALL_BYTES // 2), pollCeiling="10ms")


def under_events(small: SmallNode, count: int) -> Report:
    """So many events in a directory that the daemon watches."""
    watched = small.root_directory / "pods"

    def events(number: int) -> None:
        directory = os.open(watched, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for _ in range(number):
                os.mkdir("sign-of-growth", dir_fd=directory)
                os.rmdir("sign-of-growth", dir_fd=directory)
        finally:
            os.close(directory)

    with Daemon(
        "--config", small.configuration(evictionHard={"nodefs.available": "1Mi"}, pollCeiling="10ms")
    ) as daemon:
        small.wait_for("ListPodSandbox")
        time.sleep(0.5)
        report = metered(daemon, lambda: events(count // 5), lambda: events(count))
        assert daemon.stop() == 0
    return report


def under_passes(small: SmallNode, count: int) -> Report:
    """So many passes that each remove an image: whenever it has gone, another one crosses the mark again."""
    serial = 0

    def passes(number: int) -> None:
        nonlocal serial
        for _ in range(number):
            serial += 1
            image = small.add_image(f"registry.example/pass/{serial}:1", SMALL_BYTES)
            assert soon_gone(small, image)
            time.sleep(ENDING_SECONDS)

    with Daemon("--config", pressed(small)) as daemon:
        small.wait_for("ListPodSandbox")
        report = metered(daemon, lambda: passes(max(count // 10, 40)), lambda: passes(count))
        done = len(daemon.passes)
        assert daemon.stop() == 0
    assert done >= count * 0.9, f"{done} passes"
    return report


def under_restarts(small: SmallNode, count: int) -> Report:
    """So many restarts of the runtime, each under pressure that is relieved after it."""
    serial = 0

    def restarts(number: int) -> None:
        nonlocal serial
        for _ in range(number):
            serial += 1
            small.server.restart()
            image = small.add_image(f"registry.example/restart/{serial}:1", SMALL_BYTES)
            assert soon_gone(small, image)

    with Daemon("--config", pressed(small)) as daemon:
        small.wait_for("ListPodSandbox")
        report = metered(daemon, lambda: restarts(max(count // 2, 5)), lambda: restarts(count))
        assert daemon.stop() == 0
    return report


Burden = tuple[Callable[[SmallNode, int], Report], int]
BURDENS: dict[str, Burden] = {
    "inotify events": (under_events, 10_000),
    "passes": (under_passes, 40),
    "restarts of the runtime": (under_restarts, 4),
}
SOAK: dict[str, Burden] = {
    "inotify events": (under_events, 1_000_000),
    "passes": (under_passes, 10_000),
    "restarts of the runtime": (under_restarts, 200),
}


@pytest.mark.parametrize("name", BURDENS)
def test_what_a_daemon_holds_stays_bounded(make_small_node: SmallNodeFactory, name: str) -> None:
    """A short while of each burden: no descriptor and no thread more."""
    burden, count = BURDENS[name]
    assert_nothing_kept(burden(lived_in(make_small_node()), count))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SOAK)
def test_what_a_daemon_holds_stays_bounded_for_long(make_small_node: SmallNodeFactory, name: str) -> None:
    """A million events, 10 000 passes, 200 restarts: no 4 MiB more either."""
    burden, count = SOAK[name]
    began = time.monotonic()
    report = burden(lived_in(make_small_node()), count)
    print(f"{count} {name} in {time.monotonic() - began:.0f} s:\n{report}")
    assert_nothing_kept(report)
    assert report.last.rss_bytes - report.first.rss_bytes <= GROWTH_BYTES, str(report)
