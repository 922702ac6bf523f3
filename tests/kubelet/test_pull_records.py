"""Which images a real kubelet has pulled, by its records, and which came to the node in another
way.

A registry of ours on loopback serves what is pulled; what is side-loaded is imported.
`served` is pulled first and runs on, so its record and its container show that no record is
missing of what comes after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.control_plane import kubelet_version
from tests.kubelet.duel import MIB
from tests.kubelet.node import PODS, KubeletNode
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.registry import Registry
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd

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

    def configuration(self, **fields: object) -> str:
        """A configuration for this node, without pressure."""
        given = {"stateFile": str(self.state), "evictionHard": OFF, "imageMinimumGCAge": "0s"}
        return self.node.configured(**{**given, **fields})

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
            left = {each.labels.get("io.kubernetes.pod.name") for each in listed}
            return not set(names) & (left | self.node.api.pods().keys())

        self.node.api.wait("they and their containers are gone", are_gone, 180.0)

    @property
    def records(self) -> Path:
        """Where the kubelet keeps its records."""
        return self.node.kubelet.root / "image_manager" / "pulled"

    def recorded(self) -> set[str]:
        """The images of the records, as the runtime has answered to their pulls."""
        return {json.loads(path.read_text())["imageRef"] for path in self.records.iterdir()}

    def planned(self, **fields: object) -> dict[str, tuple[str, str]]:
        """Verdict and reason of each image by its name, those that go first and in their order."""
        file = self.configuration(**fields)
        found = answer(reclaimd("plan", "--config", file, "-o", "json"))
        images = [each for each in (*found["removals"], *found["kept"]) if each["kind"] == "image"]
        return {each["name"]: (each["verdict"], each["reason"]) for each in images}

    def findings(self) -> dict[str, dict[str, Any]]:
        """What doctor finds, by check."""
        found = answer(reclaimd("doctor", "--config", self.configuration(), "-o", "json"))
        return {each["check"]: each for each in found["findings"]}

    def reclaim(self, more: int) -> tuple[list[str], str]:
        """Until so many bytes more are available: the names of what went, and how it ended."""
        until = f"{self.node.filesystem.available_bytes() + more}e0"
        ask = ("reclaim", "--signal", "imagefs.available", "--now", "--until", until, "-o", "json")
        record = answer(reclaimd(*ask, "--config", self.configuration()))
        return [each["name"] for each in record["removals"]], record["reason"]


@pytest.fixture
def pulled(make_node: NodeMaker) -> Iterator[PulledNode]:
    """`serves` and `went` are pulled, `side` is side-loaded, and all three run; nobody
    uses the imported `spare`.
    """
    if kubelet_version() < (1, 35):
        pytest.skip(f"kubelet {kubelet_version()} keeps no records of pulls: that is since 1.35")
    with Registry() as registry:
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
    found = pulled.findings()["images-not-pulled"]
    assert found["level"] == "note"
    assert found["evidence"].endswith(f"images: 1: {SIDE}"), found
    pulled.leave("went", "side")
    by_default = pulled.planned()
    went, serves = pulled.name("went"), pulled.name("serves")
    assert (by_default[SIDE], by_default[went], by_default[SPARE]) == (GOES_LAST, UNUSED, UNUSED)
    assert by_default[serves][1] == "in_use"
    assert [name for name, (verdict, _) in by_default.items() if verdict == "remove"][-1] == SIDE
    assert pulled.planned(keepImagesNotPulled=True)[SIDE] == ("keep", "not_pulled")
    assert pulled.planned(keepImagesNotPulled=False)[SIDE] == UNUSED

    names, reason = pulled.reclaim(MIB)
    assert SIDE not in names
    assert "had not pulled" not in reason
    names, reason = pulled.reclaim(SIDE_BYTES // 2)
    assert names[-1] == SIDE
    assert reason.endswith(
        "nothing else was enough, so 1 image went that the kubelet had not pulled"
    )
    findings = pulled.findings()
    assert "images-not-pulled" not in findings
    # nobody prunes that of `went`
    assert findings["pull-records"]["evidence"].startswith("1 of 2 records")


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
    assert "images-not-pulled" not in pulled.findings()
    pulled.leave("serves")
    assert pulled.planned()[name] == UNUSED


def test_what_was_known_of_a_pull_outlives_its_record(pulled: PulledNode) -> None:
    """And so does that an image was side-loaded, which no record shows any more after
    the kubelet has collected.
    """
    pulled.is_seen(SIDE)
    for path in pulled.records.iterdir():
        path.unlink()
    pulled.leave("went", "side")
    found = pulled.planned()
    assert (found[SIDE], found[pulled.name("went")]) == (GOES_LAST, UNUSED)
