"""A containerd that stands still, dies, and dies again: the heart of the daemon beats on, and work goes on soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.meters import Meters, Report, control_heartbeat
from tests.nodes.real_node import RealNode
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, came_true

MIB = 1 << 20
BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most where nothing else runs
HEARTBEAT_SECONDS = 20.0  # a look is due every 0.5 s
KILLS, APART_SECONDS = 6, 5.0


class Outage:
    """A node with a spare image and a daemon whose mark the disk crosses when `press` is called."""

    def __init__(self, node: RealNode, directory: Path) -> None:
        self.node = node
        self._serial = 0
        self.spare = self._bring()
        mark = node.filesystem.available_bytes() - 64 * MIB
        self.control = str(directory / "control.sock")
        self.configuration = configure(
            directory,
            node,
            evictionHard={"nodefs.available": str(mark)},
            evictionMinimumReclaim={"nodefs.available": "0"},
            imageMinimumGCAge="0s",
            controlSocket=self.control,
            pollCeiling="500ms",
        )

    def _bring(self) -> str:
        self._serial += 1
        return self.node.import_image(Image(f"reclaimd.test/spare/{self._serial}:1", (random_layer(1, 20 * MIB),)))

    def press(self) -> None:
        """The disk crosses the mark; the spare image is what relieves it."""
        (self.node.mountpoint / "grown").write_bytes(b"x" * 70 * MIB)

    def used_again_within(self) -> float:
        """Seconds from now until the spare image has gone. AssertionError after long."""
        began = time.monotonic()
        assert came_true(lambda: self.spare not in self.node.cri.image_ids())
        return time.monotonic() - began


def lived_through(outage: Outage, seconds: float) -> tuple[Report, float]:
    """An outage by SIGSTOP of so many seconds, with pressure in it; the meters, and how soon work went on."""
    containerd = outage.node.containerd
    with Daemon("--config", outage.configuration) as daemon:
        time.sleep(1.0)
        with Meters(daemon.process.pid, control_heartbeat(outage.control)) as meters:
            assert outage.spare in outage.node.cri.image_ids(), "nothing is reclaimed before"
            containerd.pause()
            try:
                outage.press()
                time.sleep(seconds)
            finally:
                containerd.resume()
            back = outage.used_again_within()
            time.sleep(1.0)
        assert daemon.stop() == 0
    return meters.report, back


def assert_lively(report: Report, back: float) -> None:
    """No late heartbeat, no threads piled up, back in time."""
    assert report.longest_stall_seconds is not None
    assert report.longest_stall_seconds <= HEARTBEAT_SECONDS, str(report)
    assert report.peak.threads - report.first.threads <= 6, str(report)
    assert report.threads_more <= 2, str(report)  # one client of the control socket, a look at the runtime
    assert back <= BACK_SECONDS


def test_after_an_outage_of_1_s_work_goes_on_within_2_s(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """The heartbeat goes on, threads do not grow."""
    assert_lively(*lived_through(Outage(containerd_on_ext4, tmp_path), 1.0))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_an_outage_of_40_s_work_goes_on_within_2_s(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """Longer than every back-off and deadline of ours."""
    report, back = lived_through(Outage(containerd_on_ext4, tmp_path), 40.0)
    print(f"outage of 40 s: back after {back:.2f} s; {report}")
    assert_lively(report, back)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_six_sigkills_5_s_apart_work_goes_on_within_2_s(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """Started again after each; the last time under pressure."""
    outage = Outage(containerd_on_ext4, tmp_path)
    containerd = outage.node.containerd
    with Daemon("--config", outage.configuration) as daemon:
        time.sleep(1.0)
        with Meters(daemon.process.pid, control_heartbeat(outage.control)) as meters:
            for number in range(KILLS):
                began = time.monotonic()
                containerd.kill()
                if number == KILLS - 1:
                    outage.press()
                containerd.start()
                if number < KILLS - 1:
                    time.sleep(max(0.0, began + APART_SECONDS - time.monotonic()))
            back = outage.used_again_within()
            time.sleep(1.0)
        assert daemon.stop() == 0
    print(f"{KILLS} SIGKILLs {APART_SECONDS:g} s apart: back after {back:.2f} s; {meters.report}")
    assert_lively(meters.report, back)
