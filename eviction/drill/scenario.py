"""A scenario: a node, a pressure, and what must hold; read strictly from YAML. A home of pydantic.

The format is documented in the library's files (`config/scenarios`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from eviction.documents import DocumentError, StrictModel, read_document, sentence
from eviction.threshold_config import ThresholdConfigError, read_minimum_reclaim, read_value
from eviction.types import EvictionError
from signals.quantity import QuantityError, parse_duration, parse_quantity, whole
from signals.types import Signal


class ScenarioError(EvictionError):
    """A scenario that cannot be used. The message is one sentence."""


class PodState(StrEnum):
    """What has become of a pod. `crashed`: two dead copies of its container, the pod lives. `completed`: one dead
    copy, the pod lives. `gone`: dead, and the kubelet has forgotten it."""

    RUNNING = "running"
    CRASHED = "crashed"
    COMPLETED = "completed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """Images to be present: `count` of them, each of its own layer of `size_bytes` in `files` files, and of a layer
    of `shared_bytes` that all of them share. `age_seconds` is how long the first has been known; the others follow
    one second apart."""

    name: str
    count: int
    size_bytes: int
    files: int
    shared_bytes: int
    age_seconds: float
    pinned: bool


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod with one container of an image that is present."""

    name: str
    image: str
    state: PodState


@dataclass(frozen=True, slots=True)
class Pressure:
    """What grows: bytes or inodes, at a rate a second, until so many have been written."""

    inodes: bool
    rate: int
    amount: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold at the end. Patterns are names of images or of containers (`pod/container#attempt`); `*` at the
    end stands for anything."""

    relieved_within_seconds: float
    goes: tuple[str, ...]
    stays: tuple[str, ...]
    images_left_at_least: int
    new_pod_starts: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drill. Sizes in bytes; `eviction_hard` and `minimum_reclaim` as in the configuration."""

    name: str
    why: str
    size_bytes: int
    inodes: int
    images: tuple[ImageSpec, ...]
    pods: tuple[PodSpec, ...]
    eviction_hard: Mapping[str, str]
    minimum_reclaim: Mapping[str, str]
    pressure: Pressure
    expect: Expectation


class _Image(StrictModel):
    name: str = Field(min_length=1)
    count: int = Field(1, ge=1, le=1000)
    size: str
    files: int = Field(1, ge=1, le=100_000)
    shared: str = "0"
    age: str = "1h"
    pinned: bool = False


class _Pod(StrictModel):
    name: str = Field(min_length=1)
    image: str
    state: Literal["running", "crashed", "completed", "gone"]


class _Node(StrictModel):
    size: str
    inodes: int = Field(ge=100, le=10_000_000)
    images: list[_Image]
    pods: list[_Pod] = Field(default_factory=list)
    evictionHard: dict[str, str]  # noqa: N815 # the names of fields are the file's
    evictionMinimumReclaim: dict[str, str] = Field(default_factory=dict)  # noqa: N815


class _Pressure(StrictModel):
    grows: Literal["bytes", "inodes"]
    rate: str
    amount: str


class _Expect(StrictModel):
    relievedWithin: str  # noqa: N815
    goes: list[str] = Field(default_factory=list)
    stays: list[str] = Field(default_factory=list)
    imagesLeftAtLeast: int = Field(0, ge=0)  # noqa: N815
    newPodStarts: bool = True  # noqa: N815


class _File(StrictModel):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    why: str = Field(min_length=1)
    node: _Node
    pressure: _Pressure
    expect: _Expect


def library() -> dict[str, str]:
    """The built-in scenarios: name -> path."""
    packaged = Path(str(resources.files("eviction.drill"))) / "library"  # in an installed package
    source = Path(__file__).parents[2] / "config" / "scenarios"  # in a checkout
    folder = packaged if packaged.is_dir() else source
    return {path.stem: str(path) for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Scenario:
    """A scenario of the library by name, or a file by path. Raises ScenarioError."""
    known = library()
    if name in known:
        return read_scenario(known[name])
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return read_scenario(name)
    raise ScenarioError(f"unknown scenario {name!r}; allowed are {', '.join(known)} and paths of files")


def read_scenario(path: str) -> Scenario:
    """The scenario in a file. Raises ScenarioError with one sentence that names the file and the field."""
    try:
        written = _File.model_validate(read_document(path))
    except DocumentError as error:
        raise ScenarioError(str(error)) from None
    except ValidationError as error:
        raise ScenarioError(sentence(error, path, _File)) from None
    try:
        return _scenario(written)
    except (QuantityError, ThresholdConfigError) as error:
        raise ScenarioError(f"{path}: {error}") from None


def _scenario(written: _File) -> Scenario:
    node, expect = written.node, written.expect
    for field, entries, read in (
        ("evictionHard", node.evictionHard, read_value),
        ("evictionMinimumReclaim", node.evictionMinimumReclaim, read_minimum_reclaim),
    ):
        for signal, text in entries.items():
            if signal not in set(Signal):
                allowed = ", ".join(Signal)
                raise ThresholdConfigError(f"node.{field}", signal, f"unknown signal {signal!r}; allowed are {allowed}")
            read(f"node.{field}", signal, text)
    images = tuple(_image(image) for image in node.images)
    present = {name for image in images for name in names_of(image)}
    for pod in node.pods:
        if pod.image not in present:
            raise ThresholdConfigError("node.pods", pod.name, f"the image {pod.image!r} is not among node.images")
    return Scenario(
        name=written.name,
        why=written.why,
        size_bytes=whole(parse_quantity(node.size)),
        inodes=node.inodes,
        images=images,
        pods=tuple(PodSpec(pod.name, pod.image, PodState(pod.state)) for pod in node.pods),
        eviction_hard=node.evictionHard,
        minimum_reclaim=node.evictionMinimumReclaim,
        pressure=Pressure(
            written.pressure.grows == "inodes",
            whole(parse_quantity(written.pressure.rate)),
            whole(parse_quantity(written.pressure.amount)),
        ),
        expect=Expectation(
            parse_duration(expect.relievedWithin),
            tuple(expect.goes),
            tuple(expect.stays),
            expect.imagesLeftAtLeast,
            expect.newPodStarts,
        ),
    )


def _image(image: _Image) -> ImageSpec:
    return ImageSpec(
        name=image.name,
        count=image.count,
        size_bytes=whole(parse_quantity(image.size)),
        files=image.files,
        shared_bytes=whole(parse_quantity(image.shared)),
        age_seconds=parse_duration(image.age),
        pinned=image.pinned,
    )


def names_of(image: ImageSpec) -> list[str]:
    """The references of the images of one entry: the name itself, or with a number of two digits where several."""
    if image.count == 1:
        return [f"{image.name}:1"]
    return [f"{image.name}-{number:02}:1" for number in range(1, image.count + 1)]
