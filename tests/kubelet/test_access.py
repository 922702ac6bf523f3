"""What a real kubelet and its API server answer to reclaimd, asked as each identity that may, and
as some that may not: the kubelet's pods and version, and events about the Node. And which images it
has pulled, by its records, and which came to the node in another way."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from reclaim.evidence.pod_list import parse_pod_list
from reclaim.kubelet.client import KubeletEndpoint, ask_kubelet
from tests.kubelet import manifests
from tests.kubelet.api import Fields, write_kubeconfig
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.control_plane import kubelet_version
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS, NODE
from tests.kubelet.manifests import APP
from tests.kubelet.node import (
    MIB,
    PODS,
    RBAC,
    KubeletNode,
    allow_group,
    certificate_fields,
    kubelet_fields,
    pod_of,
    purged,
    token_fields,
    unused,
)
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.registry import Registry
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd
from tests.repository import ROOT
from tests.rows import rows

FINISHED = [f"finished-{number}" for number in range(10)]
COLLECT = ("reclaim", "--signal", "nodefs.available", "--all", "--now", "-o", "json")
ROLE = ROOT / "config" / "kubernetes" / "components" / "events" / "role.yaml"
BELOW = 100 * MIB  # the mark, below what is available at first
SHORT = 10 * MIB  # how far below the mark each fill ends
NOT_SENT = "an event did not reach the API server"
MET = "ReclaimdThresholdMet"


def image_of(name: str) -> str:
    """The image that only this pod uses."""
    return f"reclaimd.test/{name}:1"


def held(node: KubeletNode) -> tuple[set[str], set[str], set[str]]:
    """The names of the pods that have a container, of those that have a sandbox, and the images."""
    cri = node.runtime.cri
    return (
        {pod_of(each) for each in cri.list_containers()},
        {each.metadata.name for each in cri.list_sandboxes()},
        cri.image_tags() - {node.runtime.sandbox_image},
    )


def assert_none_runs_again(node: KubeletNode, before: Fields) -> None:
    """A kubelet that restarts, and runs a new pod, leaves the others as they are."""
    node.kubelet.stop()
    node.kubelet.start()
    node.create(manifests.running("later", APP), "Running")
    assert node.statuses(*before) == before


# ---- the list of pods


@pytest.fixture
def finished(make_node: NodeMaker) -> KubeletNode:
    """A node with a running pod, ten finished ones, each with an image of its own, and
    an image that nobody uses.
    """
    made, names = make_node(), [*FINISHED, "unused"]
    own = [
        Image(image_of(name), (BASE, random_layer(number, MIB)))
        for number, name in enumerate(names)
    ]
    made.import_images([Image(APP, (BASE,)), *own])
    made.create(manifests.running("serves", APP), "Running")
    made.create_all("Succeeded", *(manifests.completed(name, image_of(name)) for name in FINISHED))
    return made


@rows("""
    what                  | resource    | group                | since
    a service account     | nodes/pods  |                      | 33
    as before nodes/pods  | nodes/proxy |                      | 0
    a client certificate  | nodes/pods  | reclaimd.test:agents | 33
""")
def test_what_finished_pods_hold_goes_and_none_runs_again(
    finished: KubeletNode, resource: str, group: str, since: int
) -> None:
    """Containers, sandboxes and images; whoever asks, and may get this resource."""
    if kubelet_version() < (1, since):
        pytest.skip(f"kubelet {kubelet_version()} knows no nodes/pods")
    token = token_fields(finished, resource)
    access = certificate_fields(finished, group, resource) if group else token
    before = finished.statuses("serves", *FINISHED)
    record = purged(finished.configured(**access))
    assert {each["result"] for each in record["removals"]} == {"removed"}
    assert held(finished) == ({"serves"}, {"serves"}, {APP})
    assert_none_runs_again(finished, before)
    assert held(finished) == ({"serves", "later"}, {"serves", "later"}, {APP})


def test_a_static_pod_that_has_finished_does_not_run_again(make_node: NodeMaker) -> None:
    """Its status is in the API server, but the kubelet does not read it there:
    it would begin anew.
    """
    node, once = make_node(), "once-127.0.0.1"
    node.import_images([Image(APP, (BASE,))])
    static = json.dumps(manifests.completed("once", APP))
    (node.kubelet.static_pods / "once.json").write_text(static)
    node.create(manifests.completed("done", APP), "Succeeded")
    node.create(manifests.running("serves", APP), "Running")
    node.wait_for_phase(once, "Succeeded")
    before = node.statuses(once, "done")
    purged(node.configured(**kubelet_fields(node)))
    assert held(node) == ({once, "serves"}, {once, "serves"}, {APP})
    assert_none_runs_again(node, before)
    assert node.api.text(f"{PODS}/{once}/log") == "once is done\n"


# ---- by default: `kubeletEndpoint: auto`


def finding(file: str, check: str = "kubelet-list") -> Fields:
    """What a check of doctor found, as a rule that of asking the kubelet; empty if nothing is
    wrong."""
    findings = answer(reclaimd("doctor", "--config", file, "-o", "json"))["findings"]
    return next((each for each in findings if each["check"] == check), {})


def by_default(node: KubeletNode, **fields: str) -> str:
    """A configuration that leaves it at the default how the kubelet is asked, unless `fields` say
    so."""
    return node.configured(imageMinimumGCAge=f"{IMAGE_AGE_SECONDS}s", **fields)


def test_at_its_own_socket_the_kubelet_lists_its_pods_to_root(make_node: NodeMaker) -> None:
    """Without an identity or a role: it says what it says over HTTPS, and what a terminated pod
    holds goes. Once the gate is off, the socket stays behind, and the other ways are tried."""
    if kubelet_version() < (1, 36):
        pytest.skip("a kubelet has its Pods API from 1.36 on")
    node = make_node(featureGates={"PodsAPI": True})
    at = node.kubelet.root / "pods-api" / "pods-api.sock"
    assert (stat.S_IMODE(at.parent.stat().st_mode) | stat.S_IMODE(at.stat().st_mode)) & 0o022 == 0
    node.import_images([Image(APP, (BASE,))])
    node.create(manifests.completed("done", APP), "Succeeded")
    node.create(manifests.running("web", APP), "Running")
    certificate, key = node.plane.authority.sign("reads-pods", "system:masters")
    over_https = KubeletEndpoint(
        node.kubelet.endpoint,
        certificate_file=str(certificate),
        key_file=str(key),
        ca_file=str(node.plane.authority.certificate),
    )
    over_socket = KubeletEndpoint(f"unix://{at}")

    def agree() -> bool:
        return parse_pod_list(ask_kubelet(over_socket)) == parse_pod_list(ask_kubelet(over_https))

    node.api.wait("both lists agree", agree, 30.0)
    found = parse_pod_list(ask_kubelet(over_socket))
    assert sorted(state.terminated for state in found.states.values()) == [False, True]
    assert found.from_api_server
    file = by_default(node)
    assert finding(file) == {}
    purged(file, COLLECT)
    assert held(node)[0] == {"web"}
    node.kubelet.stop()
    document = json.loads(node.kubelet.configuration.read_text())
    node.kubelet.configuration.write_text(json.dumps(document | {"featureGates": {}}))
    node.kubelet.start()
    assert at.exists()
    said = json.dumps(finding(file))
    assert "as root at its socket: " in said
    assert "Connection refused" in said


def test_the_nodes_own_identity_is_used_once_it_has_a_role(make_node: NodeMaker) -> None:
    """Before, the kubelet forbids it, and nothing of a terminated pod goes. Only doctor says so, in
    a note, unless `kubeletEndpoint` is written."""
    node = make_node()
    node.import_images([Image(APP, (BASE,))])
    shutil.copy(node.kubelet.directory / "kubeconfig", node.kubelet.root / "kubeconfig")
    file = by_default(node)
    node.create(manifests.completed("done", APP), "Succeeded")
    assert "403 Forbidden" in finding(file)["evidence"]
    for each, level, lines in (
        (file, "note", 0),
        (by_default(node, kubeletEndpoint="auto"), "risk", 1),
    ):
        assert finding(each)["level"] == level
        collected = reclaimd(*COLLECT, "--config", each)
        said = collected.stderr.count("no way was found to ask the kubelet")
        assert (collected.returncode, said) == (0, lines)
        assert held(node)[0] == {"done"}
    take_back = allow_group(node, "system:nodes", "nodes/pods")
    try:
        node.api.wait("the kubelet is asked", lambda: finding(file) == {}, 30.0)
        purged(file, COLLECT)
        assert held(node)[0] == set()
    finally:
        take_back()


# ---- its version


def as_read(node: KubeletNode, *resources: str) -> tuple[Fields, str]:
    """`reclaimd config`, asking the kubelet as a service account that may get
    these resources; its warnings.
    """
    access = token_fields(node, *resources)
    file = node.configured(kubeletConfigDir=str(node.kubelet.drop_ins), **access)
    done = reclaimd("config", "--config", file, "-o", "json")
    assert done.returncode == 0, done.stderr
    return answer(done), done.stderr


def test_the_thresholds_are_those_that_this_kubelet_made_of_its_files(make_node: NodeMaker) -> None:
    """Merged defaults and a null in a drop-in: before 1.33 and 1.32 both are something else. The
    newest version is assumed where it may not be asked, with what is missing, and a warning as the
    thresholds depend on it."""
    node = make_node(
        {"nodefs.available": "7%", "imagefs.inodesFree": "3%"},
        drop_ins=[{"evictionHard": {"imagefs.inodesFree": None, "imagefs.available": None}}],
        mergeDefaultEvictionSettings=True,
    )
    found, warnings = as_read(node, "nodes/proxy")
    version = found["kubelet_version"]
    assert version["version"] == "1.36"
    assert "403 Forbidden: is the identity allowed to get nodes/metrics" in version["assumed"]
    assert "for which 1.36 is assumed" in warnings
    kubelet = node.asking("nodes/proxy", "nodes/metrics")
    if "\nkubernetes_build_info{" not in kubelet.text("/metrics"):
        pytest.skip("this kubelet was built without the metric kubernetes_build_info")
    in_force = kubelet.get("/configz")["kubeletconfig"]["evictionHard"]
    found, _ = as_read(node, "nodes/proxy", "nodes/metrics")
    said = ".".join(map(str, kubelet_version()))
    assert found["kubelet_version"] == {"version": said, "assumed": ""}
    assert found["values"]["evictionHard"] == in_force


# ---- events about the Node, on an API server that asks RBAC


def shipped_identity(node: KubeletNode) -> str:
    """The token of the service account of the DaemonSet, with the role of the overlay."""
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    node.api.create(accounts, {"metadata": {"name": "reclaimd"}})
    for document in yaml.safe_load_all(ROLE.read_text()):
        namespace, kind = document["metadata"]["namespace"], document["kind"].lower()
        node.api.create(f"{RBAC}/namespaces/{namespace}/{kind}s", document)
    return node.plane.service_account_token("reclaimd", "kube-system")


def press(node: KubeletNode, daemon: Daemon, mark: int, number: int) -> None:
    """The disk fills, once more; until the daemon has relieved it, and the pressure is over."""
    passes = len(daemon.passes)
    fill_bytes(node.disk / f"fill-{number}", mark - SHORT, fast=True).wait(60.0)
    assert came_true(lambda: len(daemon.passes) > passes)
    assert daemon.passes[passes]["result"] == "satisfied", daemon.passes[passes]["reason"]
    assert came_true(
        lambda: sum("ReclaimPressure is over" in each["message"] for each in daemon.events) > number
    )


def test_events_arrive_at_the_node_and_equal_ones_are_counted(make_node: NodeMaker) -> None:
    """With no more than the role that is shipped. Two times of pressure are one event with a count
    of two."""
    node = make_node()
    node.import_removable(unused(4, 20 * MIB))  # containerd holds each twice
    mark = node.filesystem.available_bytes() - BELOW
    user = {"token": shipped_identity(node)}
    file = node.configured(
        kubernetesEvents=True,
        kubeconfig=str(write_kubeconfig(node.disk.parent / "kubeconfig", node.api, user)),
        nodeName=NODE,
        evictionHard={"imagefs.available": str(mark)},
        evictionMinimumReclaim={"imagefs.available": "0"},
        evictionPressureTransitionPeriod="1s",
    )

    def met(count: int) -> bool:
        found[:] = [each for each in node.api.events() if each["reason"] == MET]
        return [each["count"] for each in found] == [count]

    found = list[Fields]()
    with Daemon("--config", file) as daemon:
        for number in range(2):
            press(node, daemon, mark, number)
            node.api.wait("the event", partial(met, number + 1), 90.0)
        assert not daemon.logged(NOT_SENT)
    (event,) = found
    about = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE}
    told = (event["involvedObject"], event["type"], event["source"])
    assert told == (about, "Warning", {"component": "reclaimd", "host": NODE})
    said = "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)"
    assert event["message"] == said


# ---- its records of pulls

# A registry of ours on loopback serves what is pulled; what is side-loaded is imported. `serves` is
# pulled first and runs on, so its record and its container show that no record is missing of what
# comes after it.
SIDE, SPARE = "reclaimd.test/side:1", "reclaimd.test/spare:1"
SIDE_BYTES = 16 * MIB
OFF = {"nodefs.available": "0%", "imagefs.available": "0%"}
GOES_LAST, UNUSED = ("remove", "not_pulled"), ("remove", "unused")


@dataclass
class PulledNode:
    """A node with pulled and side-loaded images, by what their pods are called."""

    node: KubeletNode
    registry: Registry
    state: Path

    def name(self, of: str) -> str:
        """The full name of a pulled image."""
        return f"{self.registry.address}/{of}:1"

    def run(self, name: str, reference: str) -> None:
        """A pod whose image is pulled if it is not there."""
        serves = manifests.container("serves", reference, imagePullPolicy="IfNotPresent")
        self.node.create(manifests.pod(name, serves), "Running")

    def configuration(self) -> str:
        """A configuration for this node, without pressure."""
        return self.node.configured(
            stateFile=str(self.state), evictionHard=OFF, imageMinimumGCAge="0s"
        )

    def id_of(self, reference: str) -> str:
        """The id of an image."""
        image = self.node.runtime.cri.image_status(reference)
        assert image is not None
        return str(image.id)

    def is_seen(self, reference: str) -> None:
        """A daemon runs until it has saved that a pod uses this image."""
        image = self.id_of(reference)

        def is_saved() -> bool:
            known = json.loads(self.state.read_text())["images"] if self.state.exists() else {}
            return image in known and known[image]["last_used"] is not None

        with Daemon("--config", self.configuration()):
            assert came_true(is_saved, every_seconds=0.2)

    def leave(self, *names: str) -> None:
        """These pods are deleted, and their containers with them."""
        for name in names:
            self.node.api.delete(f"{PODS}/{name}")

        def are_gone() -> bool:
            listed = self.node.runtime.cri.list_containers()
            left = set(map(pod_of, listed))
            return not set(names) & (left | self.node.api.pods().keys())

        self.node.api.wait("they and their containers are gone", are_gone, 180.0)

    def recorded(self) -> set[str]:
        """The images of the records, as the runtime has answered to their pulls."""
        records = self.node.kubelet.root / "image_manager" / "pulled"
        return {json.loads(path.read_text())["imageRef"] for path in records.iterdir()}

    def planned(self) -> dict[str, tuple[str, str]]:
        """Verdict and reason of each image by its name, those that go first and in their order."""
        found = answer(reclaimd("plan", "--config", self.configuration(), "-o", "json"))
        images = [each for each in (*found["removals"], *found["kept"]) if each["kind"] == "image"]
        return {each["name"]: (each["verdict"], each["reason"]) for each in images}

    def reclaim(self, more: int) -> tuple[list[str], str]:
        """Until so many bytes more are available: the names of what went, and how it ended."""
        until = f"{self.node.filesystem.available_bytes() + more}e0"
        ask = ("reclaim", "--signal", "imagefs.available", "--now", "--until", until, "-o", "json")
        record = answer(reclaimd(*ask, "--config", self.configuration()))
        return [each["name"] for each in record["removals"]], record["reason"]


@pytest.fixture
def pulled(make_node: NodeMaker, tmp_path: Path) -> Iterator[PulledNode]:
    """`serves` and `went` are pulled, `side` is side-loaded, and all three run; nobody
    uses the imported `spare`.
    """
    if kubelet_version() < (1, 35):
        pytest.skip(f"kubelet {kubelet_version()} keeps no records of pulls: that is since 1.35")
    with Registry(tmp_path / "registry") as registry:
        made = make_node()
        made.runtime.speaks_plainly_to(registry.address)
        node = PulledNode(made, registry, made.disk.parent / "state.json")
        for number, name in enumerate(("serves", "went")):
            registry.add(f"{name}:1", BASE, random_layer(number, MIB))
            node.run(name, node.name(name))
        made.import_images([Image(SIDE, (BASE, random_layer(2, SIDE_BYTES)))])
        made.import_images([Image(SPARE, (BASE, random_layer(3, MIB)))])
        node.run("side", SIDE)
        yield node


def test_side_loaded_images_go_last_and_pulled_ones_as_ever(pulled: PulledNode) -> None:
    """`went` and the image that nobody used first, the side-loaded one only
    where they are not enough.
    """
    assert len(pulled.recorded()) == 2
    pulled.is_seen(SIDE)
    told = finding(pulled.configuration(), "images-not-pulled")["evidence"]
    assert told.endswith(f"images: 1: {SIDE}")
    pulled.leave("went", "side")
    planned, went = pulled.planned(), pulled.name("went")
    assert (planned[SIDE], planned[went], planned[SPARE]) == (GOES_LAST, UNUSED, UNUSED)
    assert planned[pulled.name("serves")][1] == "in_use"
    assert [name for name, (verdict, _) in planned.items() if verdict == "remove"][-1] == SIDE
    names, reason = pulled.reclaim(MIB)
    assert SIDE not in names
    assert "had not pulled" not in reason
    names, reason = pulled.reclaim(SIDE_BYTES // 2)
    assert names[-1] == SIDE
    assert reason.endswith(
        "nothing else was enough, so 1 image went that the kubelet had not pulled"
    )
    # nobody prunes that of `went`
    told = finding(pulled.configuration(), "pull-records")["evidence"]
    assert told.startswith("1 of 2 records")


def test_records_that_the_kubelet_prunes_make_no_image_side_loaded(pulled: PulledNode) -> None:
    """It prunes those of images in use whenever it collects images for space;
    those that go are unused.
    """
    pulled.leave("side")
    name, node = pulled.name("serves"), pulled.node
    serves = pulled.id_of(name)
    assert serves in pulled.recorded()
    file, mark = node.kubelet.configuration, node.filesystem.available_bytes() + MIB
    pressure = {"evictionHard": {"nodefs.available": str(mark)}}
    node.kubelet.stop()
    file.write_text(json.dumps({**json.loads(file.read_text()), **pressure}))
    node.kubelet.start()
    node.api.wait("the records are pruned", lambda: serves not in pulled.recorded(), 60.0)
    assert node.phase("serves") == "Running"
    pulled.is_seen(name)
    pulled.leave("serves")
    assert pulled.planned()[name] == UNUSED
