"""What the directories of containers/storage tell, in which CRI-O keeps its images.

    <store>/overlay-images/<image id>   manifest and configuration of an image: the path that ImageFsInfo names
    <store>/overlay-containers          the path that it names for containers if images are in a store of their own
    <store>/overlay                     layers, and writable layers
    <store>/artifacts/blobs/sha256      blobs of OCI artifacts; the id of an artifact is the name of its manifest

**When an image was pulled.** `created` in `images.json` is the build's time, and layers may be older than the image.
But each pull writes manifest and configuration, to new files that get their names by renaming, and a removal deletes
their directory; the kernel stamps a directory with each change (`st_ctime`), and nobody can set that stamp. So it is
the time of the last pull, or later. For an artifact, the stamp of its manifest is.

Sources: https://github.com/containers/container-libs storage/images.go (create, setBigData, Delete) and
image/storage/storage_dest.go (CommitWithOptions); https://github.com/cri-o/cri-o server/image_fs_info.go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

IMAGES: Final = "-images"
CONTAINERS: Final = "-containers"
ARTIFACTS: Final = "artifacts/blobs/sha256"


def store_of(reported: str) -> str:
    """The directory with all content, given a path that the runtime reports: with CRI-O its parent."""
    path = reported.rstrip("/")
    return os.path.dirname(path) if path.endswith((IMAGES, CONTAINERS)) else path


def stored_at(imagefs: str) -> Mapping[str, float]:
    """When each image was last pulled: wall seconds by image id. Empty if this path that the runtime reports is none of
    CRI-O's, or cannot be read."""
    times: dict[str, float] = {}
    for directory in (imagefs, f"{store_of(imagefs)}/{ARTIFACTS}") if imagefs.endswith(IMAGES) else ():
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # just removed
                    times[entry.name] = entry.stat(follow_symlinks=False).st_ctime
    return times
