"""The DaemonSet as it is shipped, on a real node: image, manifests, probes, exec, and a new
rollout.

The image is built from config/Containerfile, what `reclaimd manifests` prints is applied by
kubectl, the kubelet starts the pod under its restrictions. Only paths differ (`shipped_manifests`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet.api import Api
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.daemonset import NAME, NAMESPACE, PODS, PROGRAM, DaemonSet, is_ready
from tests.kubelet.duel import Sampler
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS, NODE
from tests.kubelet.node import KubeletNode
from tests.kubelet.program_image import REFERENCE, ProgramImage
from tests.kubelet.programs import has_program
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.repository import ROOT

MIB = 1 << 20
PORT = 9746  # of the shipped probes
UNUSED, UNUSED_BYTES = 4, 48 * MIB
MARK_PERCENT = 20  # the kubelet's 15 and reclaimd's margin of 5
ABOVE_BYTES, FILL_BYTES, RATE_BYTES = 20 * MIB, 60 * MIB, 20 * MIB
THRESHOLDS = {"nodefs.available": "10%", "imagefs.available": "15%"}
OF_THE_MACHINE = ("/run/reclaimd", "/var/lib/reclaimd")  # what the shipped manifest would use
GRACE_SECONDS = 45
CLOCKS_SECONDS = 0.5  # the records are kept in the monotonic clock and written in the wall clock's

FLEET_PLAN = ROOT / "config" / "examples" / "fleet" / "plan.sh"
UNUSED_REFERENCES = {f"reclaimd.test/unused:{number}" for number in range(UNUSED)}


@pytest.fixture
def node(make_node: NodeMaker, image: ProgramImage) -> KubeletNode:
    """A node with images that nobody uses. The image comes first: without it no node is needed."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"port {PORT}, which the shipped probes ask, is in use on this machine")
    made = make_node(THRESHOLDS)
    made.import_images(
        [
            Image(reference, (BASE, random_layer(number, UNUSED_BYTES)))
            for number, reference in enumerate(sorted(UNUSED_REFERENCES))
        ]
    )
    return made


@pytest.fixture
def daemonset(node: KubeletNode, image: ProgramImage, tmp_path: Path) -> Iterator[DaemonSet]:
    """The DaemonSet, applied; nothing of it is left on the machine at the end."""
    before = [listing(Path(path)) for path in OF_THE_MACHINE]
    made = DaemonSet(node, tmp_path / "daemonset", image)
    with ExitStack() as stack:
        stack.callback(made.remove)
        made.apply()
        yield made
    assert [listing(Path(path)) for path in OF_THE_MACHINE] == before


def listing(directory: Path) -> list[str]:
    """All paths below a directory of the machine, with when they were changed."""
    return sorted(f"{path} {path.lstat().st_mtime_ns}" for path in directory.rglob("*"))


def available(node: KubeletNode) -> int:
    """Bytes, as the kubelet reads them."""
    return node.filesystem.available_bytes()


def mark_of(node: KubeletNode) -> int:
    """reclaimd's mark, in bytes."""
    figures = os.statvfs(node.disk)
    return figures.f_blocks * figures.f_frsize * MARK_PERCENT // 100


def images(node: KubeletNode) -> set[str]:
    """The references of all images."""
    return {tag for each in node.runtime.cri.list_images() for tag in each.repo_tags}


def fill_across_the_mark(node: KubeletNode, directory: str) -> float | None:
    """A small fill from above reclaimd's mark to below it. Waits until the disk is above the mark
    again; seconds from the crossing to the first freed byte."""
    time.sleep(1.1 * IMAGE_AGE_SECONDS)
    fill_bytes(node.disk / directory / "ballast", mark_of(node) + ABOVE_BYTES, fast=True).wait(60.0)
    fill = fill_bytes(node.disk / directory / "fill", 0, RATE_BYTES, most_bytes=FILL_BYTES)
    with Sampler(node.disk, fill) as sampler:
        fill.wait(60.0)
        node.api.wait("the node is relieved", lambda: available(node) >= mark_of(node), 60.0)
    assert sampler.lowest < mark_of(node)
    return sampler.first_freed(mark_of(node))


def status(daemonset: DaemonSet) -> Any:
    """What the daemon says of itself inside its pod."""
    return json.loads(daemonset.exec(NAME, "status", "-o", "json"))


def images_removed(seen: Any) -> set[str]:
    """The names of the images that went in the last passes."""
    outcomes = [each for record in seen["passes"] for each in record["removals"]]
    return {
        each["name"] for each in outcomes if (each["kind"], each["result"]) == ("image", "removed")
    }


def first_detected(daemonset: DaemonSet) -> dict[str, float]:
    """When each image was first seen, as the daemon has written it down: Unix time by image id."""
    images = json.loads((daemonset.state / "images.json").read_text())["images"]
    return {image: record["first_detected"] for image, record in images.items()}


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of the only container."""
    (container,) = pod["status"]["containerStatuses"]
    return dict(container)


def assert_not_restarted(daemonset: DaemonSet, pod: dict[str, Any]) -> None:
    """The first container of the pod runs. Else fails with how it ended, and its log."""
    container = container_of(pod)
    log = daemonset.kubectl.run(
        "logs", "--namespace", NAMESPACE, "--previous", pod["metadata"]["name"]
    )
    assert container["restartCount"] == 0, (
        f"{container['lastState']}: {log.stdout or log.stderr}; {daemonset.events()}"
    )


def assert_without_power(pid: int) -> None:
    """By /proc: root without a capability and without a way to one, under a filter of system
    calls, its root read-only."""
    proc = Path(f"/proc/{pid}")
    fields = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    capabilities = {
        name: fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    }
    assert set(capabilities.values()) == {"0" * 16}, capabilities
    assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Uid"].split()[0]) == ("1", "2", "0")
    mounts = {
        words[4]: words[5]
        for words in map(str.split, (proc / "mountinfo").read_text().splitlines())
    }
    assert mounts["/"].startswith("ro,")


def assert_the_fleet_is_told(daemonset: DaemonSet, unused: int) -> None:
    """The example that asks every node for its plan has this one's in its table, by `kubectl exec`.
    `unused`: how many such images there are at least."""
    plan = json.loads(daemonset.exec(NAME, "plan", "-o", "json"))
    images = sum(
        (each["kind"], each["result"]) == ("image", "planned") for each in plan["removals"]
    )
    assert images >= unused
    variables = daemonset.kubectl._environment
    told = subprocess.run(
        [FLEET_PLAN], capture_output=True, text=True, check=False, timeout=120.0, env=variables
    )
    assert (told.returncode, told.stderr) == (0, "")
    _, row, total = told.stdout.splitlines()
    assert row.startswith(f"{NODE} ")
    assert f" {images} " in row
    assert ("reclaimd.test/unused:" in row) is (images > 0)
    assert total.startswith("1 nodes")
    print(f"\n{told.stdout}")


def probes(node: KubeletNode, kind: str) -> dict[str, float]:
    """How often a probe of the container had which result, by the kubelet's own metrics. The
    kubelet itself is asked: the API server is no proxy to a node on loopback."""
    kubelet = Api(node.kubelet.endpoint, node.api.authority, node.api.token)
    found: dict[str, float] = {}
    for line in kubelet.text("/metrics/probes").splitlines():
        if (
            line.startswith("prober_probe_total{")
            and f'container="{NAME}"' in line
            and f'probe_type="{kind}"' in line
        ):
            result = line.partition('result="')[2].partition('"')[0]
            found[result] = found.get(result, 0.0) + float(line.rpartition(" ")[2])
    return found


def end_of(api: Api, name: str) -> dict[str, Any]:
    """Deletes a pod, and says how its container ended: a finalizer holds the
    object until that is known.
    """
    api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": ["reclaimd.test/look"]}})
    api.delete(f"{PODS}/{name}")
    ended: list[dict[str, Any]] = []

    def has_ended() -> bool:
        ended[:] = [container_of(api.get(f"{PODS}/{name}"))["state"].get("terminated")]
        return None not in ended

    api.wait("the container has ended", has_ended, 2.0 * GRACE_SECONDS)
    return {key: ended[0][key] for key in ("reason", "exitCode")}


def test_the_shipped_daemonset_relieves_its_node(
    node: KubeletNode, daemonset: DaemonSet, image: ProgramImage
) -> None:
    """Its pod starts by the shipped command, without any power, becomes ready, is probed, answers
    to exec, relieves the node, and ends with 0 when it is deleted. Its pod is made of the template,
    as the controller would."""
    began = time.monotonic()
    daemonset.create_pod()
    pod = daemonset.wait_until_ready()
    ready_seconds = time.monotonic() - began
    name = pod["metadata"]["name"]
    assert container_of(pod)["image"] == REFERENCE
    assert_without_power(daemonset.process())
    assert image.start == (PROGRAM, "run", "--config=/etc/reclaimd/reclaimd.yaml")
    command = Path(f"/proc/{daemonset.process()}/cmdline").read_text().split("\0")[1:-1]
    assert command == [
        *image.start,
        "--config-dir=/etc/reclaimd/reclaimd.conf.d",
        "--logging-format=json",
    ]
    node.api.wait(
        "the liveness probe succeeds",
        lambda: probes(node, "Liveness").get("successful", 0) > 0,
        60.0,
    )
    for kind in ("Liveness", "Readiness"):
        assert "failed" not in probes(node, kind), "they begin once the daemon has started"
    log = [json.loads(line) for line in node.api.text(f"{PODS}/{name}/log").splitlines()]
    assert any(event["message"].startswith("started") for event in log)
    freed_seconds = fill_across_the_mark(node, "first")
    assert freed_seconds is not None
    seen = status(daemonset)
    removed = images_removed(seen)
    assert removed
    assert removed <= UNUSED_REFERENCES
    assert seen["passes"][-1]["result"] == "satisfied"
    assert images(node) & removed == set()
    assert REFERENCE in images(node)
    assert not node.conditions()["DiskPressure"]
    assert (daemonset.state / "images.json").is_file()
    assert (daemonset.run / "control.sock").is_socket()
    assert_the_fleet_is_told(daemonset, UNUSED - len(removed))
    assert_not_restarted(daemonset, node.api.get(f"{PODS}/{name}"))
    print(
        f"\nDaemonSet: ready after {ready_seconds:.1f} s, the first byte freed {freed_seconds:.2f}"
        f" s after the crossing, {len(removed)} images; the image {image.size_bytes / MIB:.1f} MiB"
    )
    assert end_of(node.api, name) == {"reason": "Completed", "exitCode": 0}


@pytest.mark.skipif(
    not has_program("KUBE_CONTROLLER_MANAGER"),
    reason="no DaemonSet controller: no kube-controller-manager (KUBE_CONTROLLER_MANAGER=)",
)
def test_it_survives_a_new_rollout(
    node: KubeletNode, daemonset: DaemonSet, plane: ControlPlane
) -> None:
    """By the DaemonSet controller, with `kubectl rollout restart`: the new pod gets the lock of the
    node, keeps the ages of the images, and relieves the node of what came while none ran."""
    with plane.controllers("daemonset-controller"):
        first = daemonset.wait_until_ready()["metadata"]["name"]
        ages = first_detected(daemonset)
        daemonset.kubectl("rollout", "restart", "--namespace", NAMESPACE, f"daemonset/{NAME}")
        node.api.wait(
            "the old pod is gone", lambda: first not in daemonset.pods(), 2.0 * GRACE_SECONDS
        )
        fill_bytes(node.disk / "ballast", mark_of(node) - ABOVE_BYTES, fast=True).wait(60.0)
        second = daemonset.wait_until_ready(first)
        daemonset.kubectl(
            "rollout", "status", "--timeout=30s", "--namespace", NAMESPACE, f"daemonset/{NAME}"
        )
        node.api.wait("the node is relieved", lambda: available(node) >= mark_of(node), 60.0)
        later = first_detected(daemonset)
        assert {image: ages[image] for image in later} == pytest.approx(later, abs=CLOCKS_SECONDS)
        seen = status(daemonset)
        removed = images_removed(seen)
        assert removed
        assert removed <= UNUSED_REFERENCES
        assert seen["passes"][-1]["result"] == "satisfied"
        assert_not_restarted(daemonset, second)
        assert not node.conditions()["DiskPressure"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_daemon_that_hangs_is_restarted_by_its_probe(
    node: KubeletNode, daemonset: DaemonSet
) -> None:
    """Stopped by SIGSTOP it is not ready, and is killed; the next one becomes
    ready and relieves the node.
    """
    daemonset.create_pod()
    name = daemonset.wait_until_ready()["metadata"]["name"]
    began = time.monotonic()
    os.kill(daemonset.process(), signal.SIGSTOP)
    node.api.wait(
        "the pod is not ready", lambda: not is_ready(node.api.get(f"{PODS}/{name}")), 120.0
    )
    node.api.wait(
        "it is started again",
        lambda: container_of(node.api.get(f"{PODS}/{name}"))["restartCount"] == 1,
        400.0,
    )
    print(
        f"\nDaemonSet: a daemon that hung was started again after {time.monotonic() - began:.0f} s"
    )
    daemonset.wait_until_ready()
    assert fill_across_the_mark(node, "first") is not None
    assert status(daemonset)["passes"][-1]["result"] == "satisfied"
