"""A daemon under constant disk pressure while calls of every method fail, are late, or
answer wrongly at random.
"""

from __future__ import annotations

import time
from pathlib import Path

import grpc

from eviction.surface.control_client import NotAskedError, ask
from signals.types import Signal
from tests.faults.meters import MIB, Meters, control_heartbeat
from tests.faults.pass_check import PopulatedNode
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import ActThenFail, Cut, Delay, Fail, Failpoint
from tests.nodes.full_server import METHODS
from tests.nodes.method_faults import MethodFault, When, arm
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.mounts import need_mounts

STORM_SECONDS = 4.0
LONGEST_STALL_SECONDS = 20.0  # no deadline of ours is longer than 10 s
MADE_BY_KUBELET = ("RunPodSandbox", "CreateContainer", "StartContainer")
CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN)


def storm(seed: int) -> list[MethodFault]:
    """Five faults for every method, each with probability 0.1: an error before or after acting, a
    delay, a cut answer, and duplicate entries."""
    faults: list[MethodFault] = []
    for number, method in enumerate(
        each.name for each in METHODS if each.name not in MADE_BY_KUBELET
    ):
        code = CODES[number % len(CODES)]
        actions: tuple[Failpoint, ...] = (
            Fail(code),
            ActThenFail(code),
            Delay(0.1),
            Cut(code),
            Distort(Distortion.DUPLICATE_ENTRIES),
        )
        for place, action in enumerate(actions):
            faults.append(
                MethodFault(
                    method, action, When(probability=0.1, seed=seed * 1000 + number * 10 + place)
                )
            )
    return faults


def answers(control: str) -> bool:
    """Whether the daemon answers on its control socket."""
    try:
        return bool(ask(control, "status"))
    except NotAskedError:
        return False


def test_a_daemon_survives_random_faults_of_every_method(tmp_path: Path) -> None:
    """It removes nothing that must be kept, its heartbeat continues, nothing leaks, every log line
    is one JSON object. When the faults are cleared it removes everything removable."""
    need_mounts()
    node = PopulatedNode(tmp_path / "node", size_bytes=128 * MIB)
    control = str(tmp_path / "control.sock")
    configuration = node.configuration(
        Signal.NODEFS_AVAILABLE, above=64 * MIB, controlSocket=control
    )
    with Daemon("--config", configuration, cold=True) as daemon:
        assert came_true(lambda: answers(control))
        for fault in storm(seed=7):
            arm(node.failpoints, fault)
        with Meters(daemon.process.pid, control_heartbeat(control)) as meters:
            until = time.monotonic() + STORM_SECONDS
            while time.monotonic() < until:
                node.populate()
                time.sleep(0.2)
        assert daemon.process.poll() is None
        node.failpoints.clear()
        assert came_true(lambda: not node.leftovers()), node.leftovers()
        assert daemon.stop() == 0
    assert node.protected <= node.present()
    report = meters.report
    assert report.longest_stall_seconds is not None
    assert report.longest_stall_seconds < LONGEST_STALL_SECONDS, str(report)
    # a pass with its removals, and clients of the control socket
    assert report.threads_more <= 6, str(report)
    assert report.descriptors_more <= 4, str(report)
    assert not daemon.logged("NOT AN EVENT"), "every line is one JSON object"
    reported = [
        o["id"] for each in daemon.passes for o in each["removals"] if o["result"] == "removed"
    ]
    assert len(reported) == len(set(reported)), "nothing is counted twice"
    assert set(reported) <= set(node.removed()), "removed is what is absent"
    node.close()
