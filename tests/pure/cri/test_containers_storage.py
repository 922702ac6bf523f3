"""When images were pulled, by the stamps that the kernel gives the directories
of CRI-O's storage.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from reclaim.cri.containers_storage import store_of, stored_at, stored_layers
from reclaim.types import Layers

IMAGE, ARTIFACT = "a" * 64, "b" * 64


@dataclass
class Storage:
    """The directories of a CRI-O."""

    root: Path

    def __post_init__(self) -> None:
        self.images, self.blobs = (
            self.root / "overlay-images",
            self.root / "artifacts" / "blobs" / "sha256",
        )

    def pull(self) -> None:
        """An image as CRI-O writes it: its files get their names by renaming."""
        (self.images / IMAGE).mkdir(parents=True, exist_ok=True)
        for name in ("=config", "manifest"):
            new = self.images / IMAGE / f".tmp-{name}"
            new.write_text("{}")
            new.rename(self.images / IMAGE / name)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """One that holds an image and an artifact."""
    made = Storage(tmp_path)
    made.pull()
    made.blobs.mkdir(parents=True)
    (made.blobs / ARTIFACT).write_text("{}")
    return made


def test_an_image_is_as_old_as_its_directory_and_an_artifact_as_its_manifest(
    storage: Storage,
) -> None:
    """Times that anybody may set count for nothing."""
    for path in (
        storage.images / IMAGE,
        storage.images / IMAGE / "manifest",
        storage.blobs / ARTIFACT,
    ):
        os.utime(path, (0.0, 0.0))
    found = stored_at(str(storage.images))
    assert found[IMAGE] == (storage.images / IMAGE).stat().st_ctime
    assert found[ARTIFACT] == (storage.blobs / ARTIFACT).stat().st_ctime
    assert time.time() - 60.0 < min(found.values()) <= max(found.values()) <= time.time()


def test_a_pull_of_an_image_that_is_there_makes_it_young(storage: Storage) -> None:
    """It writes the same files once more."""
    before = stored_at(str(storage.images))[IMAGE]
    # the clock that stamps files ticks every few milliseconds
    while stored_at(str(storage.images))[IMAGE] == before:
        storage.pull()
    assert stored_at(str(storage.images))[IMAGE] > before


def test_a_directory_that_is_missing_dates_nothing_but_its_own(storage: Storage) -> None:
    """A CRI-O without artifacts; a path that this process does not see."""
    (storage.blobs / ARTIFACT).unlink()
    storage.blobs.rmdir()
    assert stored_at(str(storage.images)).keys() == {IMAGE}
    assert stored_at("/nowhere/overlay-images") == {}


def test_another_runtime_dates_nothing(storage: Storage) -> None:
    """Only the directories of CRI-O's storage mean anything; before the runtime has
    answered there is no path.
    """
    assert [stored_at(path) for path in ("", str(storage.root), str(storage.blobs))] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("reported", "store"),
    [
        ("/var/lib/containers/storage/overlay-images", "/var/lib/containers/storage"),
        ("/var/lib/containers/storage/overlay-containers/", "/var/lib/containers/storage"),
        ("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs",) * 2,
        ("/var/lib/docker/", "/var/lib/docker"),
    ],
)
def test_the_content_is_beside_what_cri_o_reports(reported: str, store: str) -> None:
    """Other runtimes report the directory that holds it."""
    assert store_of(reported) == store


# ---- what images hold

IMAGES = [
    {"id": IMAGE, "layer": "top", "mapped-layers": ["mapped"]},
    {"id": "c" * 64, "layer": "other"},
    {"id": "d" * 64},
]
LAYERS = [
    {"id": "base", "diff-size": 300},
    {"id": "top", "parent": "base", "diff-size": 30},
    {"id": "mapped", "parent": "base", "diff-size": 31},
    {"id": "other", "parent": "base"},
    {"id": "container", "parent": "top", "diff-size": 5},
]


def held(storage: Storage, images: object, layers: object) -> Layers | None:
    """What the directories tell with these two files."""
    beside = storage.root / "overlay-layers"
    beside.mkdir(exist_ok=True)
    (storage.images / "images.json").write_text(json.dumps(images))
    (beside / "layers.json").write_text(json.dumps(layers))
    return stored_layers(str(storage.images))


def test_an_image_holds_its_layers_down_to_the_base(storage: Storage) -> None:
    """Also the copies of its top layer for user namespaces; one whose size
    is not said counts nothing.
    """
    layers = held(storage, IMAGES, LAYERS)
    assert layers is not None
    assert layers.of_images == {
        IMAGE: {"top": 30, "mapped": 31, "base": 300},
        "c" * 64: {"other": 0, "base": 300},
        "d" * 64: {},
    }


@pytest.mark.parametrize(
    ("images", "layers"),
    [
        ({}, "no list"),
        ([{"layer": "top"}], LAYERS),
        (IMAGES, [{"parent": "base"}]),
        (IMAGES, [{"id": "base", "diff-size": None}]),
        (IMAGES, [{"id": "base", "diff-size": "x"}]),
        (IMAGES, [["base"]]),
        (IMAGES, ["base"]),
        (IMAGES, None),
        (1, LAYERS),
    ],
)
def test_files_that_are_none_of_a_storage_tell_nothing(
    storage: Storage, images: object, layers: object
) -> None:
    """Nor do files that are not there."""
    assert held(storage, images, layers) is None
    assert stored_layers(str(storage.root / "nowhere-images")) is None
    assert stored_layers("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs") is None


def test_a_circle_of_layers_has_an_end(storage: Storage) -> None:
    """A file that was damaged."""
    layers = held(
        storage,
        [{"id": IMAGE, "layer": "a"}],
        [{"id": "a", "parent": "b", "diff-size": -1}, {"id": "b", "parent": "a"}],
    )
    assert layers is not None
    assert layers.of_images == {IMAGE: {"a": 0, "b": 0}}
