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
from collections.abc import Iterator, Sequence
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
from tests.real_node.oci import BASE, Image, numbered, write_image, write_images
from tests.real_node.pods import Sandbox
from tests.real_node.runtime import ContainerRuntimeError
from tests.real_node.steps import ALL, file_of, reclaim, removed
from tests.reclaimd_process import Daemon

LONGEST_IDLE_SECONDS = 1.6  # removals wait for 1 s after each pod
NEXT_CONTAINERS = 4  # of one pod, one after the other
INIT = numbered("reclaimd.test/init:{}", 1, 64 << 10, BASE, first=99)
BEGIN_EVERY_SECONDS = 0.125
LIST_SECONDS = 0.3
ALONE = ("--standalone", *ALL)


def recipes(name: str, count: int) -> list[Image]:
    """Small images that can be run."""
    return numbered(f"reclaimd.test/{name}/{{}}:1", count, 64 << 10, BASE)


class Race:
    """Rounds on a node while images are removed; what happened, how often, and what was wrong."""

    def __init__(self, node: RealNode, seed: int) -> None:
        self.node, self.seed = node, seed
        self.chance = random.Random(seed)  # noqa: S311 # a repeatable sequence, no secret
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, rounds: int) -> None:
        """So many rounds: nothing went wrong in any, and images were removed meanwhile."""
        with self.removing():
            for number in range(rounds):
                self.round(number)
        print(f"seed {self.seed}; {rounds} rounds on {self.node.containerd.name}: {self.counts}")
        assert self.wrong == []
        assert self.counts["removed"] > 0, "images were reclaimed meanwhile"
        assert self.counts["made"] > rounds // 10

    @contextmanager
    def removing(self) -> Iterator[None]:
        """What goes on all the while."""
        yield

    def round(self, number: int) -> None:
        """One round."""
        raise NotImplementedError

    def is_there(self, reference: str) -> bool:
        """Whether an image is, as the kubelet checks."""
        there = self.node.cri.image_status(reference) is not None
        self.counts["gone before"] += not there
        return there


class NewPods(Race):
    """On a node under pressure that nothing relieves a daemon removes every idle image. In each
    round one is imported; after a moment a pod is made from it, in a kubelet's order."""

    def __init__(self, node: RealNode, outside: Path, seed: int) -> None:
        super().__init__(node, seed)
        fields = {"imageMinimumGCAge": "0.2s", "pollCeiling": "20ms"}
        self._file = file_of(node, nodefs=100 << 30, **fields)
        self._tars = [write_image(image, outside) for image in recipes("idle", 6)]

    @contextmanager
    def removing(self) -> Iterator[None]:
        """The daemon runs until the block ends."""
        with Daemon("--config", self._file) as daemon:
            yield
            assert daemon.process.poll() is None
            self.counts["removed"] = sum(len(removed(each)) for each in daemon.passes)

    def round(self, number: int) -> None:
        """The pod is created, runs, and keeps its image."""
        node, kubelet, tar = self.node, self.node.kubelet, self.chance.choice(self._tars)
        if node.cri.image_status(tar.image_id) is None:
            try:
                # as a pull would: it is idle from here on
                node.containerd.import_image(tar, keep=True)
            except (ToolError, ContainerRuntimeError):
                # it, or its base layer, was reclaimed before the import was over
                self.counts["not pulled"] += 1
        time.sleep(self.chance.uniform(0.0, LONGEST_IDLE_SECONDS))
        sandbox = kubelet.pod(f"race-{number}")
        if self.is_there(tar.reference):
            try:
                container = kubelet.run_container(sandbox, "app", tar.reference)
            except grpc.RpcError as error:
                self.wrong.append(f"{tar.reference}: {error.details()}")
            else:
                self.counts["made"] += 1
                time.sleep(self.chance.uniform(0.0, 0.2))
                if not kubelet.runs(container):
                    self.wrong.append(f"{tar.reference}: the container does not run")
                if tar.image_id not in node.cri.image_ids():
                    self.wrong.append(f"{tar.reference}: the container's image is gone")
        kubelet.remove_pod(sandbox)


class NextContainers(Race):
    """`reclaim --all` runs once in each round. Eight images are idle then; at some moment of it a
    pod begins its next containers from some of them. Half of the pods are old, and half have just
    begun."""

    def __init__(self, node: RealNode, outside: Path, seed: int) -> None:
        super().__init__(node, seed)
        self._file = file_of(node, imageMinimumGCAge="0s")
        self._tars = write_images(recipes("next", 8), outside)
        node.import_images(INIT)
        self._old = [self._pod(f"old-{number}") for number in range(2)]

    def round(self, number: int) -> None:
        """No image goes that a container was made of."""
        node, kubelet, new = self.node, self.node.kubelet, number % 2 == 1
        pod = self._pod(f"new-{number}") if new else self.chance.choice(self._old)
        idle = node.containerd.import_images(self._tars, keep=True)
        with ThreadPoolExecutor(1) as pool:
            reclaiming = pool.submit(reclaim, self._file, *ALONE)
            # a pod that has just begun is waited for
            time.sleep(self.chance.uniform(0.0, 2.0 if new else 1.0))
            made = self._begin(number, pod, idle)
            self.counts["removed"] += len(removed(reclaiming.result()))
        there = node.cri.image_ids()
        for name, (container, image) in made.items():
            if image not in there:
                self.wrong.append(f"{'new' if new else 'old'} pod, {name}: {image} is gone")
            node.cri.remove_container(container)
            shutil.rmtree(kubelet.pod_directory(pod.uid) / "containers" / name)
        if new:
            kubelet.remove_pod(pod)

    def _begin(self, number: int, pod: Sandbox, idle: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Begins containers; those that were made, by name, with their ids and images."""
        made = {}
        chosen = self.chance.sample(list(zip(self._tars, idle, strict=True)), NEXT_CONTAINERS)
        for place, (tar, image) in enumerate(chosen):
            time.sleep(self.chance.uniform(0.0, 0.1))
            name = f"next-{number}-{place}"
            if self.is_there(tar.reference):
                try:
                    container = self.node.kubelet.create_container(pod, name, tar.reference)
                except grpc.RpcError:
                    self.counts["gone between"] += 1
                else:
                    made[name] = container, image
                    self.counts["made"] += 1
        return made

    def _pod(self, name: str) -> Sandbox:
        """A pod whose first container has ended."""
        sandbox = self.node.kubelet.pod(name)
        self.node.kubelet.run_to_end(sandbox, "init", INIT[0].reference)
        return sandbox


@pytest.fixture
def outside() -> Iterator[Path]:
    """Where tars are while they are imported again and again."""
    with TemporaryDirectory(prefix="rn-image-") as directory:
        yield Path(directory)


IN_THE_SOAK = (pytest.mark.soak, pytest.mark.timeout(0))


@pytest.mark.parametrize(
    ("race", "rounds"),
    [
        (NewPods, 6),
        (NextContainers, 2),
        pytest.param(NewPods, 300, marks=IN_THE_SOAK),
        pytest.param(NextContainers, 500, marks=IN_THE_SOAK),
    ],
)
def test_pods_begin_beside_reclaim(
    node: RealNode, outside: Path, race: type[NewPods | NextContainers], rounds: int
) -> None:
    """Every new pod that is created runs, also if its image is removed at the same moment; and no
    image goes that the next container of a pod was made of. In the soak with a new seed each time,
    which is printed with the counts."""
    race(node, outside, 7 if rounds < 10 else time.time_ns()).run(rounds)


def test_images_go_where_eight_containers_a_second_begin(node: RealNode) -> None:
    """A list takes 0.3 s, so that none is ever younger than the youngest container: all unused
    images go all the same."""
    images = recipes("app", 7)
    app, *idle = node.import_images(images)
    pod, ended = node.kubelet.pod("busy"), threading.Event()

    def begin() -> int:
        made = 0
        while not ended.wait(BEGIN_EVERY_SECONDS):
            node.kubelet.create_container(pod, f"app-{made}", images[0].reference)
            made += 1
        return made

    socket = str(node.containerd.run_directory / "late.sock")
    with Proxy(str(node.containerd.socket), socket) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.failpoints["ListContainers"] = Delay(LIST_SECONDS)
        endpoint = proxy.endpoint
        file = file_of(node, imageMinimumGCAge="0s", containerRuntimeEndpoint=endpoint)
        beginning = pool.submit(begin)
        try:
            record = reclaim(file, *ALONE)
        finally:
            ended.set()
        assert beginning.result() > 1, "as many as a busy machine makes"
    assert set(removed(record)) == set(idle)
    assert app in node.cri.image_ids()
