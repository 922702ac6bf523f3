"""The DaemonSet as it is shipped, on a real node: image, manifests, probes, exec, and a new
rollout.

The image is built from config/Containerfile, on a base of Debian's Python alone: interpreter,
standard library, and what both need of the shared libraries. What `reclaimd manifests` prints is
applied by kubectl, the kubelet starts the pod under its restrictions. Only paths differ: the
socket, the images, the kubelet's root and the logs are mounted where the node has them; records,
lock and control socket where the shipped manifest has them, from directories of the test. No
scheduler runs: `bind` does its part. The controller's part is done by a kube-controller-manager, or
by `create_pod`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.buildah import Buildah, build, make_root, skip_without_buildah
from tests.bundles import unpacked_wheels
from tests.kubelet.api import Api, Fields, Kubectl
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.control_plane import ControlPlane, found
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS, NODE
from tests.kubelet.node import DEFAULTS, MIB, KubeletNode, unused
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import capacity_bytes, find_tool, run_tool
from tests.real_node.oci import ImageTar
from tests.real_node.steps import assert_without_power
from tests.reclaimd_process import reclaimd_here
from tests.repository import ROOT

NAMESPACE, NAME = "kube-system", "reclaimd"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PROGRAM = f"/opt/reclaimd/bin/{NAME}"
REFERENCE = "reclaimd.test/reclaimd:1"
UNUSED = 4
MARK_PERCENT = 20  # the kubelet's 15 and reclaimd's margin of 5
ABOVE_BYTES, FILL_BYTES, RATE_BYTES = 20 * MIB, 60 * MIB, 20 * MIB
OPTIONS = (
    "--config=/etc/reclaimd/reclaimd.yaml",
    "--config-dir=/etc/reclaimd/reclaimd.conf.d",
    "--logging-format=json",
)
READY_SECONDS = 120.0
GRACE_SECONDS = 45
CLOCKS_SECONDS = 0.5  # the records are kept in the monotonic clock and written in the wall clock's
FLEET_PLAN = ROOT / "config" / "examples" / "fleet" / "plan.sh"
INTERPRETER = Path("/usr/bin/python3")
# as in the usual images of Python there is no byte code
LEFT_OUT = (
    *("__pycache__", "test", "idlelib", "lib2to3", "tkinter", "turtledemo"),
    *("config-*", "sitecustomize.py"),
)
# modules of the program
COMPILED = ("pydantic_core/*.so", "google/_upb/*.so", "_yaml*.so", "yaml/*.so")


# ---- the image of the program


def add_python(root: Path) -> None:
    """Debian's Python, with the files of its version's name and the shared libraries."""

    def below(path: Path) -> Path:
        """Where a path is below the root, which has this machine's links beside /usr."""
        return root / path.relative_to("/")

    interpreter = INTERPRETER.resolve()
    script = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = Path(run_tool(str(INTERPRETER), "-I", "-c", script).strip())
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(library, below(library), symlinks=True, ignore=ignored)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = Path(sys.prefix) / "lib" / version / "site-packages"
    modules = [file for pattern in COMPILED for file in here.glob(pattern)]
    # the shared libraries that they are loaded with, and their loader
    linked = run_tool("ldd", interpreter, *library.glob("lib-dynload/*.so"), *modules)
    for file in {interpreter, *map(Path, re.findall(r"(/\S+) \(0x", linked))}:
        below(file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, below(file))
    below(INTERPRETER).symlink_to(interpreter.name)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/usr/sbin/nologin\n")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageTar:
    """The image of the program's wheel and those of its dependencies."""
    skip_without_buildah()
    if find_tool("kubectl") is None:
        pytest.skip("no kubectl (Debian package kubernetes-client)")
    path = tmp_path_factory.mktemp("image") / "reclaimd.tar"
    with tempfile.TemporaryDirectory(prefix="buildah-") as store:
        root = Path(store) / "base"
        make_root(root)
        add_python(root)
        buildah = Buildah(Path(store))
        build(buildah, root, unpacked_wheels(tmp_path_factory), REFERENCE)
        buildah("push", "--quiet", REFERENCE, f"docker-archive:{path}:{REFERENCE}")
        buildah("rmi", "--all", "--force")
    with tarfile.open(path) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        (entry,) = json.load(manifest)
    return ImageTar(path, REFERENCE, f"sha256:{Path(entry['Config']).stem}", "")


# ---- the DaemonSet


def manifests_for(node: KubeletNode, state: Path, control: Path) -> str:
    """What `reclaimd manifests` prints, with a node's directories, as the variants for other
    runtimes have theirs: a stream for kubectl. Nothing but paths and the configuration differs from
    what is shipped: each volume and mount keeps its type, its propagation and whether it is
    read-only.

    `state`, `control`: the node's directories for the volumes of these names.
    """
    printed = reclaimd_here("manifests", "--image", REFERENCE)
    assert (printed.returncode, printed.stderr) == (0, "")
    objects: list[Fields] = list(yaml.safe_load_all(printed.stdout))
    (pod,) = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "DaemonSet"]
    (configuration,) = [each["data"] for each in objects if "reclaimd.yaml" in each.get("data", ())]
    fields = node.reclaimd_fields()
    fields |= {"containerRuntimeEndpoint": f"unix://{node.runtime.socket}"}
    shipped = yaml.safe_load(configuration["reclaimd.yaml"])
    configuration["reclaimd.yaml"] = json.dumps({**shipped, **fields})
    as_on_the_node = {
        "runtime": str(node.runtime.run_directory),
        "images": str(node.runtime.root),
        "kubelet": fields["rootDirectory"],
        "pod-logs": fields["podLogsDir"],
        "container-logs": fields["containerLogsDir"],
    }
    hosts = as_on_the_node | {"state": str(state), "control": str(control)}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes.keys() == {"configuration", "conf-d", *hosts}
    for name, path in hosts.items():
        volumes[name]["hostPath"]["path"] = path
    (container,) = pod["containers"]
    for mount in container["volumeMounts"]:
        mount["mountPath"] = as_on_the_node.get(mount["name"], mount["mountPath"])
    return yaml.safe_dump_all(objects)


class DaemonSet:
    """reclaimd as a DaemonSet on this node, once it is applied. `state`, `run`: what is mounted at
    /var/lib/reclaimd and /run/reclaimd."""

    def __init__(self, node: KubeletNode, directory: Path, image: ImageTar) -> None:
        self._node = node
        self.state, self.run = directory / "state", directory / "run"
        self.kubectl = Kubectl(directory / "kubectl", node.api)
        # the disk and the runtime's directory are shared mounts, as systemd makes all of a node's:
        # only from such a one can a container be told of later mounts
        runtime = node.runtime.run_directory
        run_tool("mount", "--bind", runtime, runtime)
        for mount in (runtime, node.disk):
            run_tool("mount", "--make-shared", mount)
        node.runtime.import_image(image, keep=True)
        self._manifests = manifests_for(node, self.state, self.run)

    def apply(self) -> None:
        """What people do: `reclaimd manifests | kubectl apply -f -`."""
        self.kubectl("apply", "-f", "-", given=self._manifests)

    def remove(self) -> None:
        """Deletes what was applied, and its pods, which get the time that
        their manifest gives them.
        """
        self.kubectl("delete", "--ignore-not-found", "-f", "-", given=self._manifests)
        for name in self.pods():
            self._node.api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
            self._node.api.delete(f"{PODS}/{name}")
        self._node.api.wait("its pods are gone", lambda: not self.pods(), READY_SECONDS)

    def pods(self) -> dict[str, Fields]:
        """Its pods by name, those that are being deleted too."""
        return {
            name: pod
            for name, pod in self._node.api.pods(NAMESPACE).items()
            if pod["metadata"]["labels"].get("app.kubernetes.io/name") == NAME
        }

    def create_pod(self) -> None:
        """Makes the pod of the template, as the DaemonSet controller would."""
        template = self._node.api.get(f"{DAEMONSETS}/{NAME}")["spec"]["template"]
        template["metadata"]["generateName"] = f"{NAME}-"
        self._node.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **template})

    def bind(self) -> None:
        """Binds pods without a node to the only one, as the scheduler would."""
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        for name, pod in self.pods().items():
            if "nodeName" not in pod["spec"]:
                head = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
                self._node.api.create(f"{PODS}/{name}/binding", {**head, "target": target})

    def wait_until_ready(self, *but: str) -> Fields:
        """Its only pod, once it is ready and is none of these names.

        TimeoutError with what the pod's status says.
        """

        def alone_and_ready() -> bool:
            self.bind()
            pods = self.pods()
            return len(pods) == 1 and not set(but) & set(pods) and all(map(is_ready, pods.values()))

        try:
            self._node.api.wait("the pod is ready", alone_and_ready, READY_SECONDS)
        except TimeoutError as late:
            pods = {name: pod["status"] for name, pod in self.pods().items()}
            raise TimeoutError(f"{late}: {json.dumps(pods)}; {self.events()}") from late
        (pod,) = self.pods().values()
        return pod

    def status(self) -> Any:
        """What the daemon says of itself inside its pod, by kubectl exec."""
        words = ("--", NAME, "status", "-o", "json")
        told = self.kubectl("exec", "--namespace", NAMESPACE, f"daemonset/{NAME}", *words)
        return json.loads(told)

    def events(self) -> list[str]:
        """What was told about its objects."""
        return [
            f"{event['reason']}: {event.get('message', '')}"
            for event in self._node.api.events()
            if event["involvedObject"].get("namespace") == NAMESPACE
        ]

    def process(self) -> int:
        """The process id of the daemon on this machine."""
        monitors = map(psutil.Process, self._node.runtime.monitors())
        children = [child for each in monitors for child in each.children()]
        (process,) = [child.pid for child in children if PROGRAM in child.cmdline()]
        return process


def is_ready(pod: Fields) -> bool:
    """Whether a pod is ready and is not being deleted."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


@pytest.fixture
def node(make_node: NodeMaker, image: ImageTar) -> KubeletNode:
    """A node with images that nobody uses. The image comes first: without it no node is needed."""
    made = make_node(DEFAULTS)
    made.import_images(unused(UNUSED, 48 * MIB))
    return made


@pytest.fixture
def daemonset(node: KubeletNode, image: ImageTar, tmp_path: Path) -> Iterator[DaemonSet]:
    """The DaemonSet, applied."""
    made = DaemonSet(node, tmp_path / "daemonset", image)
    try:
        made.apply()
        yield made
    finally:
        made.remove()


# ---- what it does


def mark_of(node: KubeletNode) -> int:
    """reclaimd's mark, in bytes."""
    return capacity_bytes(node.disk) * MARK_PERCENT // 100


def wait_until_relieved(node: KubeletNode) -> None:
    """Until the disk is above the mark again."""
    above = mark_of(node)
    node.api.wait("it is relieved", lambda: node.filesystem.available_bytes() >= above, 60.0)


def fill_across_the_mark(node: KubeletNode) -> None:
    """A small fill from above reclaimd's mark to below it; until the disk is above it again."""
    time.sleep(1.1 * IMAGE_AGE_SECONDS)
    fill_bytes(node.disk / "ballast", mark_of(node) + ABOVE_BYTES, fast=True).wait(60.0)
    fill_bytes(node.disk / "fill", 0, RATE_BYTES, most_bytes=FILL_BYTES).wait(60.0)
    wait_until_relieved(node)


def images_that_went(node: KubeletNode, daemonset: DaemonSet) -> set[str]:
    """The names of the images that went in the last passes, the last of which has succeeded: some
    of those that nobody uses. The kubelet never had pressure."""
    passes = daemonset.status()["passes"]
    assert passes[-1]["result"] == "satisfied"
    removed = {
        each["name"]
        for record in passes
        for each in record["removals"]
        if (each["kind"], each["result"]) == ("image", "removed")
    }
    assert removed
    assert removed <= {image.reference for image in unused(UNUSED, 0)}
    assert not node.conditions()["DiskPressure"]
    return removed


def first_detected(daemonset: DaemonSet) -> dict[str, float]:
    """When each image was first seen, as the daemon has written it down: Unix time by image id."""
    images = json.loads((daemonset.state / "images.json").read_text())["images"]
    return {image: record["first_detected"] for image, record in images.items()}


def container_of(node: KubeletNode, name: str) -> Fields:
    """The status of the only container of a pod."""
    (container,) = node.api.get(f"{PODS}/{name}")["status"]["containerStatuses"]
    return dict(container)


def assert_not_restarted(node: KubeletNode, daemonset: DaemonSet, name: str) -> None:
    """The first container of the pod runs. Else fails with how it ended, and its log."""
    container = container_of(node, name)
    if container["restartCount"]:
        log = daemonset.kubectl("logs", "--namespace", NAMESPACE, "--previous", name)
        raise AssertionError(f"{container['lastState']}: {log}; {daemonset.events()}")


def assert_the_fleet_is_told(daemonset: DaemonSet) -> None:
    """The example that asks every node for its plan, by `kubectl exec`, has this one in its table."""
    told = daemonset.kubectl.run(FLEET_PLAN)
    assert (told.returncode, told.stderr) == (0, "")
    _, row, total = told.stdout.splitlines()
    assert row.startswith(f"{NODE} ")
    assert total.startswith("1 nodes")


def probed(node: KubeletNode) -> set[tuple[str, ...]]:
    """Which probe of the container had which result, by the kubelet's own metrics. The kubelet
    itself is asked: the API server is no proxy to a node on loopback."""
    kubelet = Api(node.kubelet.endpoint, node.api.authority, node.api.token)
    line = rf'^prober_probe_total{{container="{NAME}",.*probe_type="(\w+)",result="(\w+)"}} [1-9]'
    return {*re.findall(line, kubelet.text("/metrics/probes"), re.MULTILINE)}


def end_of(node: KubeletNode, name: str) -> Fields:
    """Deletes a pod, and says how its container ended: a finalizer holds the
    object until that is known.
    """
    node.api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": ["reclaimd.test/look"]}})
    node.api.delete(f"{PODS}/{name}")

    def ended() -> Any:
        return container_of(node, name)["state"].get("terminated")

    node.api.wait("the container has ended", lambda: ended() is not None, 2.0 * GRACE_SECONDS)
    return {key: ended()[key] for key in ("reason", "exitCode")}


def test_the_shipped_daemonset_relieves_its_node(node: KubeletNode, daemonset: DaemonSet) -> None:
    """Its pod starts by the shipped command, without any power, becomes ready, is probed, answers
    to exec, relieves the node, and ends with 0 when it is deleted. Its pod is made of the template,
    as the controller would."""
    daemonset.create_pod()
    name = daemonset.wait_until_ready()["metadata"]["name"]
    assert container_of(node, name)["image"] == REFERENCE
    assert_without_power(daemonset.process(), seccomp="2")
    command = Path(f"/proc/{daemonset.process()}/cmdline").read_text().split("\0")[1:-1]
    assert command == [PROGRAM, "run", *OPTIONS]
    alive = ("Liveness", "successful")
    node.api.wait("the liveness probe succeeds", lambda: alive in probed(node), 60.0)
    # they begin once the daemon has started
    assert not probed(node) & {("Liveness", "failed"), ("Readiness", "failed")}
    log = [json.loads(line) for line in node.api.text(f"{PODS}/{name}/log").splitlines()]
    assert any(event["message"].startswith("started") for event in log)
    fill_across_the_mark(node)
    removed, tags = images_that_went(node, daemonset), node.runtime.cri.image_tags()
    assert tags & removed == set()
    assert REFERENCE in tags
    assert (daemonset.state / "images.json").is_file()
    assert (daemonset.run / "control.sock").is_socket()
    assert_the_fleet_is_told(daemonset)
    assert_not_restarted(node, daemonset, name)
    assert end_of(node, name) == {"reason": "Completed", "exitCode": 0}


@pytest.mark.skipif(
    found("KUBE_CONTROLLER_MANAGER") is None,
    reason="no DaemonSet controller: no kube-controller-manager (KUBE_CONTROLLER_MANAGER=)",
)
def test_it_survives_a_new_rollout(
    node: KubeletNode, daemonset: DaemonSet, plane: ControlPlane
) -> None:
    """By the DaemonSet controller, with `kubectl rollout restart`: the new pod gets the lock of the
    node, keeps the ages of the images, and relieves the node of what came while none ran."""
    rollout = ("--namespace", NAMESPACE, f"daemonset/{NAME}")
    with plane.controllers("daemonset-controller"):
        first = daemonset.wait_until_ready()["metadata"]["name"]
        ages = first_detected(daemonset)
        daemonset.kubectl("rollout", "restart", *rollout)
        node.api.wait(
            "the old pod is gone", lambda: first not in daemonset.pods(), 2.0 * GRACE_SECONDS
        )
        fill_bytes(node.disk / "ballast", mark_of(node) - ABOVE_BYTES, fast=True).wait(60.0)
        second = daemonset.wait_until_ready(first)["metadata"]["name"]
        daemonset.kubectl("rollout", "status", "--timeout=30s", *rollout)
        wait_until_relieved(node)
        later = first_detected(daemonset)
        assert {image: ages[image] for image in later} == pytest.approx(later, abs=CLOCKS_SECONDS)
        images_that_went(node, daemonset)
        assert_not_restarted(node, daemonset, second)


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
    os.kill(daemonset.process(), signal.SIGSTOP)
    node.api.wait(
        "the pod is not ready", lambda: not is_ready(node.api.get(f"{PODS}/{name}")), 120.0
    )
    node.api.wait(
        "it is started again", lambda: container_of(node, name)["restartCount"] == 1, 400.0
    )
    daemonset.wait_until_ready()
    fill_across_the_mark(node)
    images_that_went(node, daemonset)
