"""What belongs to nobody in CRI-O's storage, by its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reclaim.leaks import LeakKind, NotKnown, Unowned, unowned_in_storage
from reclaim.types import Container, ContainerState, Image, Listing

BASE, TOP, WRITABLE, SPARE, UNKNOWN = (letter * 64 for letter in "abcde")
CONTAINER, IMAGE = "f" * 64, "0" * 64
LISTED = Listing(images=(Image(IMAGE),), containers=(Container(CONTAINER, "app", ContainerState.RUNNING, 0),))


class Storage:
    """The records and layers of a CRI-O with a container of an image of two layers."""

    def __init__(self, root: Path):
        self.root = root
        self.layers: list[dict[str, Any]] = [{"id": BASE}, {"id": TOP, "parent": BASE}, {"id": WRITABLE, "parent": TOP}]
        self.images: list[dict[str, Any]] = [{"id": IMAGE, "layer": TOP}]
        self.containers: list[dict[str, Any]] = [{"id": CONTAINER, "layer": WRITABLE}]
        self.mounts: list[str] = []
        self.listed = [LISTED]
        for name in (BASE, TOP, WRITABLE, "l", "staging", "tempdirs"):
            (root / "overlay" / name / "diff").mkdir(parents=True)

    def unowned(self, volatile: str = "") -> list[Unowned]:
        """One reading. The runtime lists what `listed` says, its last over and over."""
        for name in ("layers", "images", "containers"):
            file = self.root / f"overlay-{name}" / f"{name}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(getattr(self, name)))

        def list_now() -> Listing:
            return self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]

        return sorted(unowned_in_storage({str(self.root)}, self.mounts, list_now, volatile))

    def names(self) -> list[str]:
        """The names in one reading."""
        return [one.name for one in self.unowned()]

    def add(self, name: str, record: dict[str, Any] | None = None) -> Path:
        """A directory of a layer, and its record."""
        made = self.root / "overlay" / name
        (made / "diff").mkdir(parents=True)
        self.layers += [] if record is None else [{"id": name, **record}]
        return made


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """One in which all is owned."""
    return Storage(tmp_path)


def test_layers_of_images_and_containers_are_owned_with_those_below(storage: Storage) -> None:
    """And what is in `overlay` and no layer is not looked at."""
    assert storage.unowned() == []


def test_a_layer_of_nobody_and_a_directory_of_no_layer_are_unowned(storage: Storage) -> None:
    """Each since its directory last changed."""
    layer, directory = storage.add(SPARE, {"parent": BASE}), storage.add(UNKNOWN)
    assert storage.unowned() == [
        Unowned(LeakKind.LAYER, SPARE, layer.stat().st_ctime, path=str(layer)),
        Unowned(LeakKind.LAYER_DIRECTORY, UNKNOWN, directory.stat().st_ctime, path=str(directory)),
    ]


@pytest.mark.parametrize(
    ("record", "unowned"),
    [
        ({"names": ["mine"]}, [UNKNOWN]),
        ({"names": ["mine"], "parent": UNKNOWN}, []),
        ({"names": ["k8s_app_web_default_uid_0-layer"]}, [SPARE, UNKNOWN]),
    ],
)
def test_a_layer_with_a_name_of_its_own_is_owned(storage: Storage, record: dict[str, Any], unowned: list[str]) -> None:
    """With those below. That of a container has its container's name, and may have outlived it."""
    storage.add(UNKNOWN, {})
    storage.add(SPARE, record)
    assert sorted(storage.names()) == unowned


def test_a_mapped_layer_of_an_image_is_owned(storage: Storage) -> None:
    """For containers with another user namespace."""
    storage.add(SPARE, {"parent": BASE})
    storage.images[0]["mapped-layers"] = [SPARE]
    assert storage.names() == []


@pytest.mark.parametrize("text", ["{}/merged rw", "/elsewhere rw upperdir={}/diff"])
def test_a_mounted_layer_is_owned(storage: Storage, text: str) -> None:
    """Whoever mounted it."""
    storage.mounts = [text.format(storage.add(UNKNOWN))]
    assert storage.names() == []


def test_volatile_records_count_also_where_a_transient_store_keeps_them(storage: Storage, tmp_path: Path) -> None:
    """A container of podman's that is gone after the next boot."""
    storage.add(SPARE)
    volatile = tmp_path / "run"
    for name, record in (("layers", {"id": SPARE, "parent": BASE}), ("containers", {"id": "1" * 64, "layer": SPARE})):
        (volatile / f"overlay-{name}").mkdir(parents=True)
        (volatile / f"overlay-{name}" / f"volatile-{name}.json").write_text(json.dumps([record]))
    assert [one.name for one in storage.unowned(str(volatile))] == []
    assert storage.names() == [SPARE]


def test_records_without_a_container_that_is_listed_are_of_another_store(storage: Storage) -> None:
    """Unless it came or went while they were read."""
    storage.add(SPARE, {})
    storage.containers.clear()
    with pytest.raises(NotKnown, match="do not show what the runtime lists"):
        storage.unowned()
    for came_or_went in ([LISTED, Listing(images=LISTED.images)], [Listing(images=LISTED.images), LISTED]):
        storage.listed = came_or_went
        assert SPARE in storage.names()


def test_records_without_any_listed_image_are_of_another_store(storage: Storage) -> None:
    """Or of one that has none, in which a layer may be of an image that is just being pulled."""
    storage.images.clear()
    storage.listed = [Listing()]
    for listed in (Listing(), Listing(images=(Image("1" * 64),))):
        storage.listed = [listed]
        with pytest.raises(NotKnown):
            storage.unowned()


@pytest.mark.parametrize("record", [{}, {"id": BASE, "parent": 7}, "text", None])
def test_records_of_another_shape_are_an_error(storage: Storage, record: Any) -> None:
    """Or name nothing that there is."""
    storage.layers.append(record)
    try:
        assert storage.names() == []
    except (ValueError, LookupError, TypeError):
        return
    assert isinstance(record, dict)
    assert "parent" in record
