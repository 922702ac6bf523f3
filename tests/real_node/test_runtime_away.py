"""A runtime that is missing, hangs or dies, or whose shim hangs: the daemon's heartbeat continues, and
reclaiming resumes soon after its return. How it may refuse and answer wrongly is in the fault matrix.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from reclaim.cri.client import CriClient
from reclaim.types import AnsweredLate, RuntimeUnavailable
from tests.faults.meters import Meters, control_heartbeat
from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import MIB
from tests.real_node.runtime import SANDBOX_IMAGE
from tests.real_node.steps import file_of, is_relieved, plan, unused_images
from tests.reclaimd_process import Daemon, came_true
from tests.stopped import stopped

BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most on an idle machine
HEARTBEAT_SECONDS = 20.0  # the daemon polls every 0.5 s
APART_SECONDS = 5.0


class Outage:
    """A node with two unused images, and a configuration whose mark the disk crosses when `press`
    is called; removing one of them relieves it."""

    def __init__(self, node: RealNode) -> None:
        self.node, self.control = node, str(node.filesystem.directory / "control.sock")
        self.unused = unused_images(node, 2, 20 * MIB)
        self.mark = node.filesystem.available_bytes() - 30 * MIB
        self.configuration = file_of(
            node,
            nodefs=self.mark,
            controlSocket=self.control,
            pollCeiling="500ms",
            parallelRemovals=1,
        )

    def press(self) -> None:
        """Writes until the disk has crossed the mark."""
        more = self.node.filesystem.available_bytes() - self.mark + 6 * MIB
        with (self.node.mountpoint / "grown").open("ab") as file:
            file.write(b"x" * more)

    def seconds_until_relief(self, daemon: Daemon) -> float:
        """From now until the next image is removed; a pass succeeds then."""
        began, image = time.monotonic(), self.unused.pop(0)
        assert came_true(lambda: image not in self.node.cri.image_ids(), BACK_SECONDS)
        back = time.monotonic() - began
        is_relieved(daemon, self.node.filesystem.available_bytes, self.mark)
        return back

    @contextmanager
    def measured(self) -> Iterator[Daemon]:
        """A daemon: its heartbeat is never late, and threads do not accumulate."""
        with Daemon("--config", self.configuration, cold=True) as daemon:
            time.sleep(1.0)
            there = self.node.cri.image_ids()
            assert there >= set(self.unused), "nothing is removed before the outage"
            with Meters(daemon.process.pid, control_heartbeat(self.control)) as meters:
                yield daemon
                time.sleep(1.0)
        report = meters.report
        print(report)
        assert report.longest_stall_seconds is not None
        assert report.longest_stall_seconds <= HEARTBEAT_SECONDS, str(report)
        assert report.peak.threads - report.first.threads <= 6, str(report)
        # one client of the control socket, one call to the runtime
        assert report.threads_more <= 2, str(report)


@pytest.fixture
def outage(containerd: RealNode) -> Outage:
    """Before anything happens."""
    return Outage(containerd)


def test_a_missing_runtime_is_logged_once_and_used_within_2_s_of_its_return(
    outage: Outage,
) -> None:
    """The daemon starts without a runtime, logs that, and relieves the node
    when the runtime is there.
    """
    outage.press()
    outage.node.containerd.kill()
    with Daemon("--config", outage.configuration) as daemon:
        daemon.wait_for(lambda event: "the container runtime cannot be asked" in event["message"])
        time.sleep(3.0)
        assert daemon.process.poll() is None, "it does not end"
        told = [event for event in daemon.events if "cannot be asked" in event["message"]]
        assert len(told) == 1, "logged once"
        outage.node.containerd.start()
        outage.seconds_until_relief(daemon)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    # 40 s are longer than every back-off and deadline of reclaimd's
    ("seconds", "kills"),
    [(1.0, 1), pytest.param(40.0, 6, marks=pytest.mark.soak)],
)
def test_after_an_outage_of_1_s_and_after_sigkills_work_goes_on_within_2_s(
    outage: Outage, seconds: float, kills: int
) -> None:
    """While the runtime is stopped the daemon still logs disk pressure. Then it is killed, and
    started again each time; the last outage is under pressure, and a pass fails in it."""
    containerd = outage.node.containerd
    with outage.measured() as daemon:
        containerd.pause()
        try:
            outage.press()
            daemon.wait_for(lambda event: "ReclaimPressure" in event["message"])
            time.sleep(seconds)
        finally:
            containerd.resume()
        back, before = outage.seconds_until_relief(daemon), len(daemon.passes)
        for number in range(kills):
            began = time.monotonic()
            containerd.kill()
            if number == kills - 1:
                outage.press()
                assert came_true(
                    lambda: any(each["result"] == "failed" for each in daemon.passes[before:])
                )
            containerd.start()
            if number < kills - 1:
                time.sleep(max(0.0, began + APART_SECONDS - time.monotonic()))
        killed = outage.seconds_until_relief(daemon)
    print(f"outage of {seconds:g} s: back after {back:.2f} s")
    print(f"{kills} SIGKILLs {APART_SECONDS:g} s apart: back after {killed:.2f} s")


# ---- a shim that hangs


def test_a_shim_that_hangs_holds_up_nothing_and_keeps_no_unused_image(containerd: RealNode) -> None:
    """containerd asks it for the status of its sandbox, which would say which image the sandbox was
    made from. That is known: by the configuration (1.x), or by the pin (2.x, whose status does not
    contain the configuration of images). Whatever it does to the removal of its dead copy, images
    relieve the disk."""
    node, kubelet = containerd, containerd.kubelet
    sandbox = kubelet.pod("web")
    app = node.sandbox_image_id
    running = kubelet.run_container(sandbox, "app", app)
    for attempt in range(2):
        node.cri.kill_container(kubelet.run_container(sandbox, "job", app, attempt=attempt))
    spare = unused_images(node, 6, 8 * MIB)
    mark = node.filesystem.available_bytes() + 3 * 8 * MIB
    file = file_of(node, nodefs=mark, removalPatience="2s")
    (shim,) = node.containerd.monitors()
    with stopped(shim):
        planned = [each["id"] for each in plan(file)["removals"] if each["kind"] == "image"]
        assert planned == spare
        with Daemon("--config", file) as daemon:
            assert came_true(lambda: node.filesystem.available_bytes() >= mark)
            os.kill(shim, signal.SIGCONT)
            is_relieved(daemon, node.filesystem.available_bytes, mark)
    images = node.cri.image_ids()
    assert app in images
    assert 1 <= len(images & set(spare)) < 6
    assert kubelet.runs(running)


def test_a_deadline_that_containerd_sees_first_has_passed_too(containerd: RealNode) -> None:
    """At the deadline containerd resets the call, which had ended as cancelled; or it
    answers without the shim.
    """
    sandbox = containerd.kubelet.pod("web")
    (shim,) = containerd.containerd.monitors()
    with closing(CriClient(str(containerd.containerd.socket))) as client, stopped(shim):
        for _ in range(50):
            try:
                answered, late = client.image_of_sandbox(sandbox.id, 0.02), False
            except RuntimeUnavailable as error:
                answered, late = str(error), isinstance(error, AnsweredLate)
            assert late or answered == SANDBOX_IMAGE
