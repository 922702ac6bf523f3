"""Which images the kubelet has pulled, by its own records.

    <root>/image_manager/pulled/sha256-<hex>     of an image that was pulled
    <root>/image_manager/pulling/sha256-<hex>    of a pull that has begun

The hash is that of the image as the runtime answers to a pull (its id; a repository digest with
CRI-O before 1.36 and cri-dockerd), or as the pod names it. Only the name of a record matters here.

**A missing record proves little by itself.** Whenever the kubelet has collected images for space,
it prunes the records of all images but the unused ones that it has looked at and left: also those
of images in use, and of pinned ones. So no record of an image can be missing only

* if nothing in the directory has changed since the image came, or
* if a container was made before the image came and still exists whose own image has an older
  record: each prune since would have taken that.

Both mean that records were kept before the image came. A record that exists says little about now:
nobody prunes it when others remove the image. So an image that was pulled once counts as pulled. So
does the image of pod sandboxes, which the runtime pulls itself.

Sources: `pkg/kubelet/images/pullmanager` (fs_pullrecords.go, image_pull_manager.go:
PruneUnknownRecords), `pkg/kubelet/images/image_gc_manager.go` (freeSpace); KEP-2535, since 1.35.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from reclaim.evidence.references import ImageIndex, names_sandbox_image
from reclaim.trust import directory_refusal
from reclaim.types import NEVER, Container, Image, ReclaimError
from reclaim.workers import ReadingsInTime
from signals.quantity import reason_of

PREFIX = "sha256-"
UNFINISHED = ".tmp"


class PullRecords(NamedTuple):
    """What the kubelet's records say.

    `names`: of its records. `pulling`: what pods call the images of pulls that have begun.
    `complete_since`: since when (seconds since the epoch) no record of an image on the node can be
    missing; NEVER if that is not known. `as_of`: when they were read. `problem`: why nothing is
    known, as a sentence without a full stop; else empty.
    """

    names: frozenset[str] = frozenset()
    pulling: frozenset[str] = frozenset()
    complete_since: float = NEVER
    as_of: float = NEVER
    problem: str = ""

    def pulled(self, image: Image, came: float | None = None) -> bool | None:
        """Whether the kubelet has pulled this image; None if that is not known.

        `came`: since when the runtime has had it, without a gap, in seconds since the epoch; None:
        not known.
        """
        if not self.names.isdisjoint(record_names(image)) or any(
            map(ImageIndex((image,)).find, self.pulling)
        ):
            return True
        shown = came is not None and self.complete_since < came <= self.as_of
        return False if shown and not names_sandbox_image(image) else None


NOT_READ = PullRecords(problem="the kubelet's records of pulls were not read")


def record_names(image: Image) -> frozenset[str]:
    """The names that the record of an image may have."""
    return frozenset(map(_record_name, (image.id, *image.names)))


def _record_name(reference: str) -> str:
    return PREFIX + hashlib.sha256(reference.encode()).hexdigest()


def pull_records(
    root: str, containers: Iterable[Container], in_time: ReadingsInTime
) -> PullRecords:
    """The records of the kubelet with this root directory. `containers`: all that there are."""
    try:
        return in_time(lambda: _read(root, containers))
    except (OSError, ReclaimError, ValueError, RecursionError) as error:
        why = reason_of(error)
        return PullRecords(
            problem=f"the kubelet's records of pulls in {root}/image_manager are not known: {why}"
        )


def _read(root: str, containers: Iterable[Container]) -> PullRecords:
    """Raises OSError, and ValueError for something that is no record."""
    # by the clock that stamps files, and by which a runtime says when an image came
    as_of = time.time()
    pulling, pulled = (os.path.join(root, "image_manager", name) for name in ("pulling", "pulled"))
    for directory in (pulling, pulled):
        if (refusal := directory_refusal(directory)) is not None:
            raise OSError(refusal)
    # before the records: a pull that ends meanwhile is in one of them
    begun = frozenset(_images_of(pulling))
    with os.scandir(pulled) as entries:
        written = {
            entry.name.removesuffix(UNFINISHED): entry.stat(follow_symlinks=False).st_mtime
            for entry in entries
            if entry.name.startswith(PREFIX)
        }
    complete_since = os.stat(pulled).st_ctime  # after them: of whatever has changed meanwhile
    for container in containers:
        recorded = (
            written.get(_record_name(container.image_references[0]))
            if container.image_references
            else None
        )
        if recorded is not None and container.pod_uid and container.created_at_ns > 0:
            complete_since = min(complete_since, max(recorded, container.created_at_ns / 1e9))
    return PullRecords(frozenset(written), begun, complete_since, as_of=as_of)


def _images_of(pulling: str) -> Iterator[str]:
    for name in os.listdir(pulling):
        if name.startswith(PREFIX) and not name.endswith(UNFINISHED):
            # one that is not there any more is of a pull that has just ended
            with (
                suppress(FileNotFoundError),
                open(os.path.join(pulling, name), encoding="utf-8") as file,
            ):
                match json.load(file):
                    case {"image": str(image)}:
                        yield image
                    case _:
                        raise ValueError(f"{name} in pulling names no image")
