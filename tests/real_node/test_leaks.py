"""`plan --leaks` on a real containerd and a real CRI-O: each seeded leak is found, and under load none is named."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from eviction.cli.plan_leaks import Leaks, find
from eviction.configuration.effective import load
from eviction.node.node import Node
from reclaim.cri import stores_pb2 as pb
from signals.clock import SystemClock
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.crio import crio_program
from tests.real_node.loopfs import ToolError, find_tool, mounts_below, run_tool, unmount
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, random_layer
from tests.real_node.registry import Registry
from tests.real_node.runtime import ContainerRuntimeError
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, reclaimd_here
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as of_kubelet

MIB = 1 << 20
HOUR = 3600.0
STILL_SECONDS = 10.0
"""Under load, what has not changed for so long counts as old, not only after a day: longer than any import here."""


class Ahead(SystemClock):
    """The system's clocks, ahead by some seconds."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    def wall(self) -> float:
        return super().wall() + self._seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._seconds


@contextmanager
def product(node: RealNode, kubelet: KubeletServer) -> Iterator[Node]:
    """The product, with the runtime located."""
    made = Node(load(None, {}, fields_of(node, kubelet)))
    try:
        assert made.locate() is None
        yield made
    finally:
        made.close()


def fields_of(node: RealNode, kubelet: KubeletServer) -> dict[str, Any]:
    return {
        "rootDirectory": str(node.kubelet.root_dir),
        "podLogsDir": str(node.kubelet.pod_logs_dir),
        "kubeletConfig": "",
        "kubeletHealthzEndpoint": "",
        "kubeletEndpoint": kubelet.url,
        "containerRuntimeEndpoint": f"unix://{node.containerd.socket}",
        "stateFile": "",
    }


def listed(*uids: str) -> bytes:
    """The kubelet's answer with these pods, from an API server."""
    pods = [{"metadata": {"uid": uid, "annotations": {"kubernetes.io/config.source": "api"}}} for uid in uids]
    return of_kubelet(pod_list(*pods))


def names(found: Leaks) -> Counter[tuple[str, str]]:
    """Kind and last part of the name of each leak."""
    return Counter((str(leak.kind), leak.name.rpartition("/")[2]) for leak in found.leaks)


def too_young(found: Leaks) -> int:
    """How many were too young to be named."""
    (count,) = [int(reason.split()[0]) for reason in found.not_known if "too young" in reason] or [0]
    return count


def populated(node: RealNode) -> None:
    """A pod that runs, one that has ended, and an image that nobody uses."""
    node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(1, MIB))))
    node.import_image(Image("reclaimd.test/spare:1", (random_layer(2, MIB), random_layer(3, MIB))))
    for uid in ("uid-web", "uid-job"):
        node.kubelet.admit_pod(uid)
        (node.kubelet.root_dir / "pods" / uid / "volumes" / "kubernetes.io~empty-dir").mkdir(parents=True)
        sandbox = node.kubelet.run_pod(uid.removeprefix("uid-"), uid)
        command = SLEEP_FOR_EVER if uid == "uid-web" else ("/bin/true",)
        container = node.kubelet.run_container(sandbox, "app", "reclaimd.test/app:1", command)
        if uid == "uid-job":
            node.kubelet.wait_exited(container)
            node.cri.stop_sandbox(sandbox.id)


def leave_volume(node: RealNode, uid: str, size_bytes: int) -> tuple[str, str]:
    """The directory of a pod that is gone, with data in an emptyDir; its kind and name."""
    volume = node.kubelet.root_dir / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "cache"
    volume.mkdir(parents=True)
    (volume / "data").write_bytes(os.urandom(size_bytes))
    return "pod_directory", uid


# ---- containerd


class Seeder:
    """Leaves things behind in a containerd with its own client."""

    def __init__(self, node: RealNode, client: Node):
        self.node = node
        self.client = client.client
        self.overlayfs = node.containerd.root / "io.containerd.snapshotter.v1.overlayfs" / "snapshots"
        self.blobs = node.containerd.root / "io.containerd.content.v1.content" / "blobs" / "sha256"

    def ctr(self, namespace: str, *arguments: str) -> str:
        return run_tool("ctr", "--address", self.node.containerd.socket, "--namespace", namespace, *arguments)

    def content(self, namespace: str, size_bytes: int = MIB) -> str:
        """Content that nothing refers to; its digest."""
        data = os.urandom(size_bytes)
        command = [str(find_tool("ctr")), "--address", str(self.node.containerd.socket), "--namespace", namespace]
        subprocess.run([*command, "content", "ingest", data[:8].hex()], input=data, check=True, timeout=60.0)
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def leased(self, namespace: str, digest: str, *expires: str) -> None:
        """A lease that holds it, for ever or for some time."""
        self.ctr(namespace, "leases", "create", "--id", digest[-12:], *expires)
        resource = pb.Resource(id=digest, type="content").SerializeToString()
        request = pb.LeaseRequest(id=digest[-12:]).SerializeToString() + bytes([0x12, len(resource)]) + resource
        metadata = (("containerd-namespace", namespace),)
        self.client.call_service("/containerd.services.leases.v1.Leases/AddResource", request, 10.0, metadata)

    def snapshot(self, namespace: str, key: str, parent: str = "", *, commit: bool = False) -> None:
        """A snapshot that nothing refers to."""
        self.ctr(namespace, "snapshots", "prepare", *(f"{key}-active" if commit else key, parent)[: 2 if parent else 1])
        if commit:
            self.ctr(namespace, "snapshots", "commit", key, f"{key}-active")
        self.ctr(namespace, "snapshots", "label", key, "containerd.io/gc.root=")

    def ingest(self, namespace: str, name: str) -> None:
        """An ingest whose writer was killed."""
        command = [str(find_tool("ctr")), "--address", str(self.node.containerd.socket), "--namespace", namespace]
        process = subprocess.Popen([*command, "content", "ingest", name], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(os.urandom(4 * MIB))
        process.stdin.flush()
        deadline = time.monotonic() + 30
        while name not in self.ctr(namespace, "content", "active"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        process.communicate()

    def collect(self) -> None:
        """Has containerd collect its garbage, and waits for that."""
        self.ctr("default", "leases", "create", "--id", "x")
        self.ctr("default", "leases", "delete", "--sync", "x")

    def directory(self, name: str, files: int) -> None:
        """A directory of overlayfs without a snapshot."""
        (self.overlayfs / name / "fs").mkdir(parents=True)
        for number in range(files):
            (self.overlayfs / name / "fs" / str(number)).write_bytes(os.urandom(MIB // 4))


def test_ten_leaks_on_a_containerd_are_found(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """In four namespaces, on the disk alone, and of a pod. Nothing else is named, nothing while it is young, and what
    containerd can collect is gone after its next collection."""
    node = containerd_on_ext4
    populated(node)
    with KubeletServer(listed("uid-web", "uid-job")) as kubelet, product(node, kubelet) as made:
        seeder = Seeder(node, made)
        seeder.collect()  # what the imports left for containerd, which is slow to collect it on a busy machine
        assert names(find(made, Ahead(86_400.0 + HOUR))[0]) == Counter()
        seeded = [("content", seeder.content("k8s.io")), ("content", seeder.content("moby"))]
        seeder.leased("moby", seeded[1][1], "--expires", "1s")
        seeder.leased("buildkit", seeder.content("buildkit"))
        seeder.ctr("k8s.io", "content", "label", seeder.content("k8s.io"), "containerd.io/gc.root=kept")
        unrecorded = os.urandom(MIB)
        seeded.append(("content", f"sha256:{hashlib.sha256(unrecorded).hexdigest()}"))
        (seeder.blobs / seeded[-1][1].removeprefix("sha256:")).write_bytes(unrecorded)
        seeder.snapshot("k8s.io", "active")
        seeder.snapshot("default", "below", commit=True)
        seeder.snapshot("default", "above", "below", commit=True)
        seeder.ctr("default", "snapshots", "prepare", "kept")
        seeder.ingest("k8s.io", "half")
        seeded += [("snapshot", "active"), ("snapshot", "below"), ("snapshot", "above"), ("ingest", "half")]
        seeder.directory("new-4711", 3)
        seeder.directory("new-4712", 5)
        seeded += [("snapshot_directory", "new-4711"), ("snapshot_directory", "new-4712")]
        seeded.append(leave_volume(node, "uid-gone", 2 * MIB))
        time.sleep(1.5)  # the lease is over
        young, known = find(made, made.clock)
        assert (known, young.leaks, too_young(young)) == (True, (), 10)
        found, known = find(made, Ahead(86_400.0 + HOUR))
        assert (known, names(found), found.not_known) == (True, Counter(seeded), ())
        sizes = {leak.name.rpartition("/")[2]: leak.bytes or 0 for leak in found.leaks}
        assert sizes["uid-gone"] >= 2 * MIB
        assert all(MIB <= sizes[name] <= 2 * MIB for kind, name in seeded if kind == "content" or name == "new-4712")
        seeder.collect()
        left, _ = find(made, Ahead(86_400.0 + HOUR))
        assert names(left) <= Counter([("ingest", "half"), ("pod_directory", "uid-gone")])
        file = configure(tmp_path, node, stateFile="", kubeletEndpoint=kubelet.url)
        document = answer(reclaimd_here("plan", "--leaks", "--config", file, "-o", "json"))
        assert (document["kind"], document["leaks"]) == ("Leaks", [])
        assert document["not_known"][0].startswith(f"{len(left.leaks)} objects of ")


# ---- CRI-O


def test_ten_leaks_on_a_crio_are_found(tmp_path: Path) -> None:
    """Layers of images and of a container that its records have lost, directories of no layer, volumes."""
    with running_node(tmp_path / "node", GIB, crio=crio_program()) as node:
        populated(node)
        lost = node.import_image(
            Image("reclaimd.test/lost:1", (BASE, *(random_layer(seed, MIB) for seed in (11, 12, 13, 14))))
        )
        node.kubelet.admit_pod("uid-lost")
        sandbox = node.kubelet.run_pod("lost", "uid-lost")
        container = node.kubelet.create_container(sandbox, "app", "reclaimd.test/app:1", SLEEP_FOR_EVER)
        with KubeletServer(listed("uid-web", "uid-job", "uid-lost")) as kubelet, product(node, kubelet) as made:
            assert names(find(made, Ahead(86_400.0 + HOUR))[0]) == Counter()
            node.containerd.kill()
            root = node.containerd.root
            taken = [forget(root / "overlay-images" / "images.json", lost)["layer"]]
            layers = {each["id"]: each for each in json.loads((root / "overlay-layers" / "layers.json").read_text())}
            while len(taken) < 4:
                taken.append(layers[taken[-1]]["parent"])
            taken.append(forget(root / "overlay-containers" / "volatile-containers.json", container)["layer"])
            merged = root / "overlay" / taken[-1] / "merged"
            assert mounts_below(merged.parent) == [merged]  # as long as it is mounted, it belongs to somebody
            unmount(merged)
            node.containerd.start()
            seeded = [("layer", each) for each in taken]
            for number in range(3):
                name = hashlib.sha256(bytes([number])).hexdigest()
                (root / "overlay" / name / "diff").mkdir(parents=True)
                (root / "overlay" / name / "diff" / "file").write_bytes(os.urandom(MIB))
                seeded.append(("layer_directory", name))
            seeded += [leave_volume(node, "uid-gone", MIB), leave_volume(node, "uid-gone-too", 2 * MIB)]
            found, known = find(made, Ahead(86_400.0 + HOUR))
            assert (known, names(found), found.not_known) == (True, Counter(seeded), ())
            young, known = find(made, made.clock)
            assert (known, young.leaks, too_young(young)) == (True, (), 10)
            assert all((leak.bytes or 0) >= MIB for leak in found.leaks if not leak.name.endswith(taken[-1]))
            file = configure(tmp_path, node, stateFile="", kubeletEndpoint=kubelet.url)
            document = answer(reclaimd_here("plan", "--leaks", "--config", file, "-o", "json"))
            assert (document["kind"], document["leaks"]) == ("Leaks", [])
            assert document["not_known"][0].startswith("10 objects of ")


def forget(file: Path, record_id: str) -> dict[str, Any]:
    """Takes a record out of a file of a CRI-O that does not run, and returns it."""
    records = json.loads(file.read_text())
    (taken,) = [each for each in records if each["id"] == record_id.removeprefix("sha256:")]
    file.write_text(json.dumps([each for each in records if each is not taken]))
    return dict(taken)


# ---- under load


class Load:
    """Pods, imports and pulls that come and go until it is over. `done`: how often each did. `wrong`: what failed and
    should not have."""

    def __init__(self, node: RealNode, directory: Path, pulls: list[str]):
        self.node = node
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.uids = ["uid-web", "uid-job"]
        self._directory = directory
        self._pulls = pulls
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(one,), name=one.__name__)
            for one in (self._pod, self._pod, self._import, self._pull)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def __iter__(self) -> Iterator[bytes]:
        """What a kubelet answers: the list of its pods as it is then."""
        yield listed(*self.uids)

    def _repeat(self, one: Callable[[str], None]) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                one(f"{threading.get_ident() % 10_000}-{number}")
                self.done[one.__name__] += 1
            except (grpc.RpcError, ToolError, ContainerRuntimeError) as error:
                self.wrong.append(f"{one.__name__}: {error}")

    def _pod(self, name: str) -> None:
        """In a kubelet's order: listed, a directory, a sandbox, a container; and back."""
        uid = f"uid-{name}"
        self.uids.append(uid)
        self.node.kubelet.admit_pod(uid)
        sandbox = self.node.kubelet.run_pod(name, uid)
        command = ("/bin/sh", "-c", "dd if=/dev/urandom of=/written bs=65536 count=16; exec sleep 100000")
        container = self.node.kubelet.run_container(sandbox, "app", "reclaimd.test/app:1", command)
        self._over.wait(STILL_SECONDS * 1.5 if name.endswith("3") else 0.2)
        self.node.cri.kill_container(container)
        self.node.cri.stop_sandbox(sandbox.id)
        self.node.cri.remove_container(container)
        self.node.cri.remove_sandbox(sandbox.id)
        self.node.kubelet.forget_pod(uid)
        self.uids.remove(uid)

    def _import(self, name: str) -> None:
        """An image of three layers, one of which it shares; every third stays until it is old."""
        layers = (random_layer(1, MIB), *(random_layer(hash(name) % 10_000 + more, MIB) for more in (1, 2)))
        image = self.node.import_image(Image(f"reclaimd.test/import-{name}:1", layers))
        self._over.wait(STILL_SECONDS * 1.5 if name.endswith("3") else 0.2)
        self.node.cri.remove_image(image)

    def _pull(self, name: str) -> None:
        """All images of the registry; the last is removed at once."""
        for reference in self._pulls:
            self.node.cri.pull_image(reference)
        for reference in reversed(self._pulls):
            image = self.node.cri.image_status(reference)
            assert image is not None
            self.node.cri.remove_image(image.id)
            self._over.wait(0.3)


def readings_under_load(node: RealNode, tmp_path: Path, times: int) -> None:
    """Takes it through pairs of readings while everything comes and goes, and shows that none names anything; once it
    is quiet, a volume that is left behind is named alone."""
    populated(node)
    seen, clock = list[Leaks](), Ahead(86_400.0 - STILL_SECONDS)
    with Registry(slow_seconds=0.2) as registry, KubeletServer(listed()) as kubelet:
        node.containerd.speaks_plainly_to(registry.address)
        pulled = [f"pulled-{number}:1" for number in range(4)]
        for number, name in enumerate(pulled):
            registry.add(name, *(random_layer(100 + number + more, 2 * MIB) for more in range(3)))
        references = [f"{registry.address}/{name}" for name in pulled]
        with product(node, kubelet) as made, Load(node, tmp_path, references) as load_on_it:
            kubelet.script = load_on_it
            for _ in range(times):
                seen.append(find(made, clock)[0])
        reasons = Counter(reason for one in seen for reason in one.not_known if "too young" not in reason)
        print(f"{dict(load_on_it.done)} beside {times} pairs of readings; too young: {list(map(too_young, seen))}")
        print(*(f"not known, {count} times: {reason}" for reason, count in reasons.items()), sep="\n")
        assert [list(map(str, one.leaks)) for one in seen] == [[]] * times
        assert load_on_it.wrong == []
        assert min(load_on_it.done[each] for each in ("_pod", "_import", "_pull")) > 0
        leave_volume(node, "uid-gone", MIB)
        kubelet.script = load_on_it
        with product(node, kubelet) as made:
            assert names(find(made, Ahead(86_400.0 + HOUR))[0]) == Counter([("pod_directory", "uid-gone")])


def test_under_load_nothing_on_a_containerd_is_named(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """Three pairs of readings."""
    readings_under_load(containerd_on_ext4, tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_under_long_load_nothing_on_a_containerd_is_named(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """Forty pairs of readings."""
    readings_under_load(containerd_on_ext4, tmp_path, 40)


@pytest.fixture
def crio(tmp_path: Path) -> Iterator[RealNode]:
    """A CRI-O."""
    with running_node(tmp_path / "node", GIB, crio=crio_program()) as node:
        yield node


def test_under_load_nothing_on_a_crio_is_named(crio: RealNode, tmp_path: Path) -> None:
    """Three pairs of readings."""
    readings_under_load(crio, tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_under_long_load_nothing_on_a_crio_is_named(crio: RealNode, tmp_path: Path) -> None:
    """Forty pairs of readings."""
    readings_under_load(crio, tmp_path, 40)
