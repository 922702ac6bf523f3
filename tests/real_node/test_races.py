"""Pods are made from idle images while those are being reclaimed, on a real containerd;
with `CRIO=` also on a CRI-O.

Whatever images are removed meanwhile, a pod whose image is there when the kubelet calls ImageStatus
is created, runs, and keeps its image. If the image was removed before that call a kubelet would
pull it again; here such a round is counted as "gone before".

Nothing shows that a pod which runs already is about to begin its next container, until the kubelet
makes the directory of that container. So there an image may go right after ImageStatus ("gone
between"): the kubelet pulls it again. None goes once a container was made of it.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from tests.faults.proxy import Proxy
from tests.nodes.faults import Delay
from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import ToolError
from tests.real_node.oci import (
    BASE,
    SLEEP_FOR_EVER,
    Image,
    ImageTar,
    Layer,
    random_layer,
    write_image,
    write_images,
)
from tests.real_node.pods import Sandbox
from tests.real_node.runtime import ContainerRuntimeError
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, reclaimd

ROUNDS, ROUNDS_OF_SOAK = 6, 300
IMAGES = 6
RUNNING = 1
OLD_ENOUGH_SECONDS = 0.2
LONGEST_IDLE_SECONDS = 1.6  # removals wait for 1 s after each pod
NEXT_ROUNDS, NEXT_ROUNDS_OF_SOAK = 4, 500
NEXT_IMAGES = 16  # idle at the same time
NEXT_CONTAINERS = 6  # of one pod, one after the other
OLD_PODS = 2
INIT = "reclaimd.test/init:1"
BEGIN_EVERY_SECONDS = 0.125
LIST_SECONDS = 0.3


class Races:
    """A node under pressure that nothing relieves, so that its daemon removes every idle image."""

    def __init__(self, node: RealNode, outside: Path, seed: int) -> None:
        self.node = node
        self.chance = random.Random(seed)  # noqa: S311 # a repeatable sequence, no secret
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._tars: list[ImageTar] = [
            write_image(
                Image(f"reclaimd.test/idle/{number}:1", (BASE, Layer(number, (("data", 4096),)))),
                outside,
            )
            for number in range(IMAGES)
        ]

    def round(self, number: int) -> None:
        """Imports an idle image; after a moment a pod is made from it, in a kubelet's order."""
        node, kubelet = self.node, self.node.kubelet
        tar = self.chance.choice(self._tars)
        uid = f"race-{number}-uid"
        if node.cri.image_status(tar.image_id) is None:
            try:
                # as a pull would: it is idle from here on
                node.containerd.import_image(tar, keep=True)
            except (
                ToolError,
                ContainerRuntimeError,
            ):  # it, or its base layer, was reclaimed before the import was over
                self.counts["not pulled"] += 1
        time.sleep(self.chance.uniform(0.0, LONGEST_IDLE_SECONDS))
        kubelet.admit_pod(uid)
        sandbox = kubelet.run_pod(f"race-{number}", uid)
        if node.cri.image_status(tar.reference) is None:  # as the kubelet checks
            self.counts["gone before"] += 1
        else:
            self._create(sandbox, tar)
        node.cri.stop_sandbox(sandbox.id)
        node.cri.remove_sandbox(sandbox.id)
        kubelet.forget_pod(uid)

    def _create(self, sandbox: Sandbox, tar: ImageTar) -> None:
        kubelet, cri = self.node.kubelet, self.node.cri
        try:
            container = kubelet.run_container(sandbox, "app", tar.reference, SLEEP_FOR_EVER)
        except grpc.RpcError as error:
            self.wrong.append(f"{tar.reference}: {error.details()}")
            return
        self.counts["made"] += 1
        time.sleep(self.chance.uniform(0.0, 0.2))
        if kubelet.state_of(container) != RUNNING:
            self.wrong.append(f"{tar.reference}: the container does not run")
        if tar.image_id not in cri.image_ids():
            self.wrong.append(f"{tar.reference}: the container runs and its image is gone")


@contextmanager
def races(node: RealNode, directory: Path, seed: int) -> Iterator[Races]:
    """The daemon runs until the block ends."""
    configuration = configure(
        directory,
        node,
        evictionHard={"nodefs.available": "100Gi"},
        imageMinimumGCAge=f"{OLD_ENOUGH_SECONDS}s",
        pollCeiling="20ms",
    )
    with (
        TemporaryDirectory(prefix="rn-image-") as outside,
        Daemon("--config", configuration) as daemon,
    ):
        made = Races(node, Path(outside), seed)
        yield made
        assert daemon.process.poll() is None
        made.counts["removed"] = sum(
            each["removals_by_result"].get("image", {}).get("removed", 0) for each in daemon.passes
        )


def raced(node: RealNode, directory: Path, rounds: int, seed: int) -> Races:
    """Runs `rounds` rounds; nothing went wrong in any, and images were removed meanwhile."""
    with races(node, directory, seed) as made:
        for number in range(rounds):
            made.round(number)
    assert made.wrong == []
    assert made.counts["removed"] > 0, "images were reclaimed meanwhile"
    assert made.counts["made"] > rounds // 10
    return made


def test_pods_are_made_from_idle_images_all_through_reclaim(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """In a few rounds every pod that is created runs, also if its image is
    removed at the same moment.
    """
    raced(containerd_on_ext4, tmp_path, ROUNDS, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_pods_are_made_from_idle_images_all_through_reclaim_300_times(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """300 rounds with a new seed each time, which is printed with the counts."""
    seed = time.time_ns()
    made = raced(containerd_on_ext4, tmp_path, ROUNDS_OF_SOAK, seed)
    print(f"seed {seed}; {ROUNDS_OF_SOAK} rounds of a race: {dict(made.counts)}")


class NextContainers:
    """A node on which `reclaim --all` runs once in each round. Sixteen images are idle then; at
    some moment of it a pod begins its next containers from some of them. Half of the pods are old,
    and half have just begun."""

    def __init__(self, node: RealNode, directory: Path, outside: Path, seed: int) -> None:
        self.node = node
        self.counts: Counter[str] = Counter({"images of a container that went": 0})
        self.lost: list[str] = []
        self._chance = random.Random(seed)  # noqa: S311 # a repeatable sequence, no secret
        self._file = configure(directory, node, imageMinimumGCAge="0s", stateFile="")
        self._tars = write_images(
            [
                Image(f"reclaimd.test/next/{n}:1", (BASE, random_layer(n, 64 << 10)))
                for n in range(NEXT_IMAGES)
            ],
            outside,
        )
        node.import_image(Image(INIT, (BASE, random_layer(99, 64 << 10))))
        self._old = [self._pod(f"old-{number}") for number in range(OLD_PODS)]

    def round(self, number: int) -> None:
        """The containers of one round; what was made of an image that then goes is written down."""
        new = number % 2 == 1
        pod = self._pod(f"new-{number}") if new else self._chance.choice(self._old)
        idle = self.node.containerd.import_images(self._tars, keep=True)
        with ThreadPoolExecutor(1) as pool:
            reclaiming = pool.submit(self._reclaim)
            # a pod that has just begun is waited for
            time.sleep(self._chance.uniform(0.0, 2.0 if new else 1.0))
            made = self._begin(number, pod, idle)
            reclaiming.result()
        there = self.node.cri.image_ids()
        for name, (container, image) in made.items():
            if image not in there:
                self.lost.append(
                    f"round {number}, {'new' if new else 'old'} pod, {name}: {image} is gone"
                )
                self.counts["images of a container that went"] += 1
            self.node.cri.remove_container(container)
            shutil.rmtree(self.node.kubelet.pod_directory(pod.uid) / "containers" / name)
        if new:
            self.node.cri.stop_sandbox(pod.id)
            self.node.cri.remove_sandbox(pod.id)
            self.node.kubelet.forget_pod(pod.uid)

    def _reclaim(self) -> None:
        arguments = (
            "--config",
            self._file,
            "--standalone",
            "--signal",
            "nodefs.available",
            "--all",
            "-o",
            "json",
        )
        record = answer(reclaimd("reclaim", *arguments))
        results = Counter(each["result"] for each in record["removals"] if each["kind"] == "image")
        self.counts["removed"] += results["removed"]

    def _begin(self, number: int, pod: Sandbox, idle: list[str]) -> dict[str, tuple[str, str]]:
        """Begins containers; those that were made, by name, with their ids and images."""
        made = {}
        chosen = self._chance.sample(list(zip(self._tars, idle, strict=True)), NEXT_CONTAINERS)
        for place, (tar, image) in enumerate(chosen):
            time.sleep(self._chance.uniform(0.0, 0.1))
            name = f"next-{number}-{place}"
            if self.node.cri.image_status(tar.reference) is None:  # as the kubelet checks
                self.counts["gone before"] += 1
                continue
            try:
                made[name] = (
                    self.node.kubelet.create_container(pod, name, tar.reference, SLEEP_FOR_EVER),
                    image,
                )
                self.counts["made"] += 1
            except grpc.RpcError:
                self.counts["gone between"] += 1
        return made

    def _pod(self, name: str) -> Sandbox:
        """A pod whose first container has ended."""
        kubelet, uid = self.node.kubelet, f"{name}-uid"
        kubelet.admit_pod(uid)
        sandbox = kubelet.run_pod(name, uid)
        kubelet.wait_exited(kubelet.run_container(sandbox, "init", INIT, ("/bin/true",)))
        return sandbox


def next_containers(node: RealNode, directory: Path, rounds: int, seed: int) -> NextContainers:
    """So many rounds: no image of a container went, and images were removed meanwhile."""
    with TemporaryDirectory(prefix="rn-image-") as outside:
        made = NextContainers(node, directory, Path(outside), seed)
        for number in range(rounds):
            made.round(number)
    print(
        f"seed {seed}; {rounds} rounds of next containers on {node.containerd.name}:"
        f" {dict(made.counts)}"
    )
    assert made.lost == []
    assert made.counts["removed"] > rounds, "images were reclaimed meanwhile"
    assert made.counts["made"] > rounds // 2
    return made


@pytest.mark.regression
def test_pods_begin_their_next_container_beside_reclaim(node: RealNode, tmp_path: Path) -> None:
    """In a few rounds no image goes that a container was made of."""
    next_containers(node, tmp_path, NEXT_ROUNDS, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_pods_begin_their_next_container_beside_reclaim_500_times(
    node: RealNode, tmp_path: Path
) -> None:
    """500 rounds with a new seed each time, which is printed with the counts."""
    next_containers(node, tmp_path, NEXT_ROUNDS_OF_SOAK, time.time_ns())


@pytest.mark.regression
def test_images_go_where_eight_containers_a_second_begin(node: RealNode, tmp_path: Path) -> None:
    """A list takes 0.3 s, so that none is ever younger than the youngest container: all unused
    images go all the same."""
    app, *idle = node.import_images(
        [Image(f"reclaimd.test/app/{n}:1", (BASE, random_layer(n, 64 << 10))) for n in range(7)]
    )
    node.kubelet.admit_pod("busy-uid")
    pod, ended = node.kubelet.run_pod("busy", "busy-uid"), threading.Event()

    def begin() -> int:
        made = 0
        while not ended.wait(BEGIN_EVERY_SECONDS):
            node.kubelet.create_container(
                pod, f"app-{made}", "reclaimd.test/app/0:1", SLEEP_FOR_EVER
            )
            made += 1
        return made

    socket = str(node.containerd.run_directory / "late.sock")
    with Proxy(str(node.containerd.socket), socket) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.failpoints["ListContainers"] = Delay(LIST_SECONDS)
        file = configure(
            tmp_path,
            node,
            imageMinimumGCAge="0s",
            stateFile="",
            containerRuntimeEndpoint=proxy.endpoint,
        )
        beginning = pool.submit(begin)
        try:
            arguments = ("--standalone", "--signal", "nodefs.available", "--all", "-o", "json")
            record = answer(reclaimd("reclaim", "--config", file, *arguments))
        finally:
            ended.set()
        assert beginning.result() > len(idle)
    assert {each["id"] for each in record["removals"] if each["result"] == "removed"} == set(idle)
    assert app in node.cri.image_ids()
