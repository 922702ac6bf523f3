"""What the directories of containers/storage tell, in which CRI-O keeps its images.

    <store>/overlay-images/<image id>   manifest and configuration of an image
    <store>/overlay-images/images.json  the top layer of each image
    <store>/overlay-layers/layers.json  the parent of each layer, and unpacked size (`diff-size`)
    <store>/overlay-containers          what containers have, if images are in a store of their own
    <store>/overlay                     layers, and writable layers
    <store>/artifacts/blobs/sha256      blobs of OCI artifacts, whose ids are those of manifests

ImageFsInfo names the first for images and the fourth for containers; a writable layer has no size.

**When an image was pulled.** `created` in `images.json` is the build's time, and layers may be
older than the image. But each pull writes manifest and configuration, to new files that get their
names by renaming, and a removal deletes their directory; the kernel stamps a directory with each
change (`st_ctime`), and nobody can set that stamp. So it is the time of the last pull, or later.
For an artifact, the stamp of its manifest is.

Sources: https://github.com/containers/container-libs storage/images.go (create, setBigData,
Delete), storage/layers.go (Layer) and image/storage/storage_dest.go (CommitWithOptions);
https://github.com/cri-o/cri-o server/image_fs_info.go.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from reclaim.types import Layers

IMAGES = "-images"
CONTAINERS = "-containers"
ARTIFACTS = "artifacts/blobs/sha256"
LAYERS = "-layers"
LARGEST_BYTES = 64 * 1024**2  # about 100 000 layers

Name = TypeVar("Name")


def store_of(reported: str) -> str:
    """The directory with all content of a path that the runtime reports: with CRI-O its parent."""
    path = reported.rstrip("/")
    return os.path.dirname(path) if path.endswith((IMAGES, CONTAINERS)) else path


def stored_at(imagefs: str) -> Mapping[str, float]:
    """When each image was last pulled: wall seconds by image id. Empty if this path that the
    runtime reports is none of CRI-O's, or cannot be read."""
    times: dict[str, float] = {}
    if imagefs.endswith(IMAGES):
        for directory in (imagefs, f"{store_of(imagefs)}/{ARTIFACTS}"):
            with suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # just removed
                        times[entry.name] = entry.stat(follow_symlinks=False).st_ctime
    return times


def stored_layers(imagefs: str) -> Layers | None:
    """What each image holds.

    None if this path that the runtime reports is none of CRI-O's, or cannot be read.
    """
    if not imagefs.endswith(IMAGES):
        return None
    try:
        layers = {
            each["id"]: (each.get("parent", ""), max(int(each.get("diff-size", 0)), 0))
            for each in listed_in(f"{imagefs.removesuffix(IMAGES)}{LAYERS}/layers.json")
        }
        images = listed_in(f"{imagefs}/images.json")
        below = {layer: [parent] for layer, (parent, _) in layers.items()}
        tops = {
            each["id"]: [each.get("layer", ""), *each.get("mapped-layers", ())] for each in images
        }
        held = {image: reached(each, below) & layers.keys() for image, each in tops.items()}
    except (AttributeError, LookupError, OSError, TypeError, ValueError):
        return None
    return Layers(
        {image: {layer: layers[layer][1] for layer in each} for image, each in held.items()}
    )


def listed_in(path: str) -> Any:
    """What a file of JSON holds, which is replaced as a whole. Raises OSError, and ValueError, also
    if it is cut off because it is too large."""
    with open(path, "rb") as file:
        return json.loads(file.read(LARGEST_BYTES))


def reached(roots: Iterable[Name], refers: Mapping[Name, Iterable[Name]]) -> set[Name]:
    """These roots, and all that they refer to, over any number of objects.

    `refers`: what each object refers to.
    """
    left = list(roots)
    found = set[Name]()
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += refers.get(name, ())
    return found
