"""While containerd is stopped or killed the daemon's heartbeat continues, and
reclaiming resumes soon afterwards.
"""

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
BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most on an idle machine
HEARTBEAT_SECONDS = 20.0  # the daemon polls every 0.5 s
KILLS, APART_SECONDS = 6, 5.0


class Outage:
    """A node with an unused image, and a configuration whose mark the disk
    crosses when `press` is called.
    """

    def __init__(self, node: RealNode, directory: Path) -> None:
        self.node = node
        self._serial = 0
        self.unused = self._import_image()
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

    def _import_image(self) -> str:
        self._serial += 1
        return self.node.import_image(
            Image(f"reclaimd.test/unused/{self._serial}:1", (random_layer(1, 20 * MIB),))
        )

    def press(self) -> None:
        """Writes until the disk has crossed the mark; removing the unused image relieves it."""
        (self.node.mountpoint / "grown").write_bytes(b"x" * 70 * MIB)

    def seconds_until_removal(self) -> float:
        """Seconds from now until the unused image is removed. AssertionError after a minute."""
        began = time.monotonic()
        assert came_true(lambda: self.unused not in self.node.cri.image_ids())
        return time.monotonic() - began


def measured_outage(outage: Outage, seconds: float) -> tuple[Report, float]:
    """An outage of `seconds` by SIGSTOP, with pressure in it; the meters, and the
    seconds from its end to relief.
    """
    containerd = outage.node.containerd
    with Daemon("--config", outage.configuration, cold=True) as daemon:
        time.sleep(1.0)
        with Meters(daemon.process.pid, control_heartbeat(outage.control)) as meters:
            assert outage.unused in outage.node.cri.image_ids(), (
                "nothing is removed before the outage"
            )
            containerd.pause()
            try:
                outage.press()
                time.sleep(seconds)
            finally:
                containerd.resume()
            back = outage.seconds_until_removal()
            time.sleep(1.0)
        assert daemon.stop() == 0
    return meters.report, back


def assert_recovered(report: Report, back: float) -> None:
    """The heartbeat was never late, threads did not accumulate, and the removal came in time."""
    assert report.longest_stall_seconds is not None
    assert report.longest_stall_seconds <= HEARTBEAT_SECONDS, str(report)
    assert report.peak.threads - report.first.threads <= 6, str(report)
    # one client of the control socket, one call to the runtime
    assert report.threads_more <= 2, str(report)
    assert back <= BACK_SECONDS


def test_after_an_outage_of_1_s_work_goes_on_within_2_s(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """The heartbeat continues, and threads do not accumulate."""
    assert_recovered(*measured_outage(Outage(containerd_on_ext4, tmp_path), 1.0))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_an_outage_of_40_s_work_goes_on_within_2_s(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """40 s are longer than every back-off and deadline of reclaimd's."""
    report, back = measured_outage(Outage(containerd_on_ext4, tmp_path), 40.0)
    print(f"outage of 40 s: back after {back:.2f} s; {report}")
    assert_recovered(report, back)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_six_sigkills_5_s_apart_work_goes_on_within_2_s(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """containerd is restarted after each; the last outage is under pressure."""
    outage = Outage(containerd_on_ext4, tmp_path)
    containerd = outage.node.containerd
    with Daemon("--config", outage.configuration, cold=True) as daemon:
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
            back = outage.seconds_until_removal()
            time.sleep(1.0)
        assert daemon.stop() == 0
    print(f"{KILLS} SIGKILLs {APART_SECONDS:g} s apart: back after {back:.2f} s; {meters.report}")
    assert_recovered(meters.report, back)
