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
from tests.kubelet.every_kind import MIB
from tests.kubelet.node import PODS, KubeletNode
from tests.kubelet.programs import kubelet_version
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.registry import Registry
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, write_configuration

SIDE, SPARE = "reclaimd.test/side:1", "reclaimd.test/spare:1"
SIDE_BYTES = 16 * MIB
OFF = {"nodefs.available": "0%", "imagefs.available": "0%"}


def is_pulled(name: str, reference: str) -> dict[str, Any]:
    """A pod whose image is pulled if it is not there."""
    return manifests.pod(
        name, manifests.container("serves", reference, imagePullPolicy="IfNotPresent")
    )


@dataclass
class PulledNode:
    """A node with pulled and side-loaded images, by what their pods are called."""

    node: KubeletNode
    registry: Registry
    state: Path

    def name(self, of: str) -> str:
        """The full name of a pulled image."""
        return f"{self.registry.address}/{of}:1"

    def configuration(self, **fields: object) -> str:
        """A configuration for this node, without pressure."""
        path = (
            self.node.disk.parent
            / f"reclaimd-{len(list(self.node.disk.parent.glob('*.yaml')))}.yaml"
        )
        given = {
            "stateFile": str(self.state),
            "evictionHard": OFF,
            "imageMinimumGCAge": "0s",
            **fields,
        }
        return str(write_configuration(path, **self.node.reclaimd_fields(), **given))

    def is_seen(self, reference: str) -> None:
        """A daemon runs until it has saved that a pod uses this image."""
        image = self.node.runtime.cri.image_status(reference)
        assert image is not None

        def is_saved() -> bool:
            known = json.loads(self.state.read_text())["images"] if self.state.exists() else {}
            return image.id in known and known[image.id]["last_used"] is not None

        with Daemon("--config", self.configuration()):
            assert came_true(is_saved, every_seconds=0.2)

    def leave(self, *names: str) -> None:
        """These pods are deleted, and their containers with them."""
        for name in names:
            self.node.api.delete(f"{PODS}/{name}")
        self.node.api.wait(
            "they are gone", lambda: not set(names) & set(self.node.api.pods()), 60.0
        )
        runtime = self.node.runtime.cri

        def of_them() -> bool:
            return any(
                each.labels.get("io.kubernetes.pod.name") in names
                for each in runtime.list_containers()
            )

        self.node.api.wait("their containers are gone", lambda: not of_them(), 120.0)

    def records(self) -> set[str]:
        """The images of the kubelet's records, as the runtime has answered to their pulls."""
        directory = self.node.kubelet.root / "image_manager" / "pulled"
        return {json.loads(path.read_text())["imageRef"] for path in directory.iterdir()}


def planned(configuration: str) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each image by its name, those that go first and in their order."""
    found = answer(reclaimd("plan", "--config", configuration, "-o", "json"))
    images = [each for each in (*found["removals"], *found["kept"]) if each["kind"] == "image"]
    return {each["name"]: (each["verdict"], each["reason"]) for each in images}


def findings(configuration: str) -> dict[str, dict[str, Any]]:
    """What doctor finds, by check."""
    found = answer(reclaimd("doctor", "--config", configuration, "-o", "json"))
    return {each["check"]: each for each in found["findings"]}


@pytest.fixture
def pulled(make_node: NodeMaker) -> Iterator[PulledNode]:
    """`serves` and `went` are pulled, `side` is side-loaded, and all three run; nobody
    uses the imported `spare`.
    """
    if int(kubelet_version().split(".")[1]) < 35:
        pytest.skip(
            f"this kubelet ({kubelet_version()}) keeps no records of pulls: that is since 1.35"
        )
    with Registry() as registry:
        made = make_node()
        made.runtime.speaks_plainly_to(registry.address)
        node = PulledNode(made, registry, made.disk.parent / "state.json")
        for number, name in enumerate(("serves", "went")):
            registry.add(f"{name}:1", BASE, random_layer(number, MIB))
            made.create(is_pulled(name, node.name(name)))
            made.wait_for_phase(name, "Running")
        made.import_images([Image(SIDE, (BASE, random_layer(2, SIDE_BYTES)))])
        made.import_images([Image(SPARE, (BASE, random_layer(3, MIB)))])
        made.create(is_pulled("side", SIDE))
        made.wait_for_phase("side", "Running")
        yield node


def test_side_loaded_images_go_last_and_pulled_ones_as_ever(pulled: PulledNode) -> None:
    """`went` and the image that nobody used first, the side-loaded one only
    where they are not enough.
    """
    assert len(pulled.records()) == 2
    pulled.is_seen(SIDE)
    finding = findings(pulled.configuration())["images-not-pulled"]
    assert finding["level"] == "note"
    assert finding["evidence"].endswith(f"images: 1: {SIDE}"), finding
    pulled.leave("went", "side")
    by_default = planned(pulled.configuration())
    assert by_default[SIDE] == ("remove", "not_pulled")
    assert by_default[pulled.name("went")] == by_default[SPARE] == ("remove", "unused")
    assert by_default[pulled.name("serves")][1] == "in_use"
    going = [name for name, (verdict, _) in by_default.items() if verdict == "remove"]
    assert going[-1] == SIDE
    assert planned(pulled.configuration(keepImagesNotPulled=True))[SIDE] == ("keep", "not_pulled")
    assert planned(pulled.configuration(keepImagesNotPulled=False))[SIDE] == ("remove", "unused")

    ask = (
        "reclaim",
        "--config",
        pulled.configuration(),
        "--signal",
        "imagefs.available",
        "--now",
        "-o",
        "json",
    )
    enough = answer(
        reclaimd(*ask, "--until", f"{pulled.node.filesystem.available_bytes() + MIB}e0")
    )
    assert SIDE not in [each["name"] for each in enough["removals"]]
    assert "had not pulled" not in enough["reason"]
    more = answer(
        reclaimd(*ask, "--until", f"{pulled.node.filesystem.available_bytes() + SIDE_BYTES // 2}e0")
    )
    assert [each["name"] for each in more["removals"]][-1] == SIDE
    assert more["reason"].endswith(
        "nothing else was enough, so 1 image went that the kubelet had not pulled"
    )
    found = findings(pulled.configuration())
    assert "images-not-pulled" not in found
    assert found["pull-records"]["evidence"].startswith("1 of 2 records"), (
        "nobody prunes that of `went`"
    )


def test_records_that_the_kubelet_prunes_make_no_image_side_loaded(pulled: PulledNode) -> None:
    """It prunes those of images in use whenever it collects images for space;
    those that go are unused.
    """
    pulled.leave("side")
    serves = pulled.node.runtime.cri.image_status(pulled.name("serves"))
    assert serves is not None
    assert serves.id in pulled.records()
    file = pulled.node.kubelet.configuration
    pressure = {
        "evictionHard": {"nodefs.available": str(pulled.node.filesystem.available_bytes() + MIB)}
    }
    pulled.node.kubelet.stop()
    file.write_text(json.dumps({**json.loads(file.read_text()), **pressure}))
    pulled.node.kubelet.start()
    pulled.node.api.wait("the records are pruned", lambda: serves.id not in pulled.records(), 60.0)
    assert pulled.node.phase("serves") == "Running"
    pulled.is_seen(pulled.name("serves"))
    assert "images-not-pulled" not in findings(pulled.configuration())
    pulled.leave("serves")
    assert planned(pulled.configuration())[pulled.name("serves")] == ("remove", "unused")


def test_what_was_known_of_a_pull_outlives_its_record(pulled: PulledNode) -> None:
    """And so does that an image was side-loaded, which no record shows any more after
    the kubelet has collected.
    """
    pulled.is_seen(SIDE)
    directory = pulled.node.kubelet.root / "image_manager" / "pulled"
    for path in directory.iterdir():
        path.unlink()
    pulled.leave("went", "side")
    found = planned(pulled.configuration())
    assert found[SIDE] == ("remove", "not_pulled")
    assert found[pulled.name("went")] == ("remove", "unused")
