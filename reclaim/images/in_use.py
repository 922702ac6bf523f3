"""Which listed images are in use.

The kubelet compares one field of a container (its image id, else its image reference) with the ids of the listed
images (`pkg/kubelet/images/image_gc_manager.go`, detectImages). Here an image is in use if any field of any container
names it, if a container mounts it, if pod sandboxes are made from it, or if the spec of a pod that has not terminated
names it, where the kubelet tells that.

* A container whose image cannot be told stops all image removal: no image is taken to be unused by a guess. That the
  runtime has no such image settles it for an id or a digest only: a tag may have moved since the container was made.
  Even then an image that is listed without a digest may be the one, and is kept.
* What a spec names and no image has is not pulled yet, and stops nothing.
* A digest is never resolved through a tag (`references`), only by itself or by an id beside it.
* The image of pod sandboxes is kept, pinned or not: without it no pod can start. If no source says which image that
  is (the runtime's configuration, a sandbox that is ready, a pinned image named `pause`), no image is removed.

Covers: resolving which container uses which image. Does not cover: ages and order (`plan`), asking the runtime
(`inventory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reclaim.images.references import ImageIndex, bare_hex, names_one_image
from reclaim.types import Image, Listing


@dataclass(frozen=True, slots=True)
class ImagesInUse:
    """Ids that containers use or specs name, ids that sandboxes need, and references that could not be resolved.

    `sandbox_image_known` is false when no source (pin, configuration, running sandboxes) names the sandbox image.
    `by_image_id` are those of `by_containers` that the kubelet finds too: a container's image id, or an image volume,
    is byte for byte the id of a listed image.
    """

    by_containers: frozenset[str]
    by_sandboxes: frozenset[str]
    unresolved: tuple[str, ...]
    sandbox_image_known: bool
    by_image_id: frozenset[str] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all images that are in use."""
        return self.by_containers | self.by_sandboxes


def images_in_use(listing: Listing, index: ImageIndex | None = None) -> ImagesInUse:
    """Which listed images are in use. All container states count: an image is in use until its last container is gone.

    `index`: that of `listing.images`, if the caller has it.
    """
    index = index or ImageIndex(listing.images)
    used: set[str] = set()
    named: set[str] = set()
    unresolved: list[str] = []
    resolved: set[tuple[str, ...]] = set()  # many containers have the same references
    for container in listing.containers:
        own, volumes = container.image_references, listing.image_volumes.get(container.id, ())
        if not own:
            unresolved.append(f"container {container.id}")
        named.update(own[:1], *volumes)  # the first is the image id, else the image reference
        for references in (own, *volumes):
            if not references or references in resolved:
                continue
            resolved.add(references)
            found, missing = _resolve(references, index, listing.resolved)
            used |= found
            unresolved += missing
    needed = listing.sandbox_image_references
    for reference in listing.named_images:
        used |= _meant(reference, index, listing.resolved)
    by_sandboxes: set[str] = set()
    for reference in needed or ():
        found, missing = _resolve((reference,), index, listing.resolved)
        by_sandboxes |= found
        unresolved += filter(names_one_image, missing)  # a name that the runtime does not have is not pulled yet
    known = needed is not None or any(image.pinned and _is_named_pause(image) for image in listing.images)
    return ImagesInUse(
        frozenset(used), frozenset(by_sandboxes), tuple(sorted(set(unresolved))), known, frozenset(used & named)
    )


def _is_named_pause(image: Image) -> bool:
    """Whether a name of the image says `pause`, as those of all sandbox images do."""
    names = (*image.repo_tags, *image.repo_digests)
    return any("pause" in name.partition("@")[0].rpartition("/")[2] for name in names)


def _resolve(
    references: tuple[str, ...], index: ImageIndex, answered: Mapping[str, str | None]
) -> tuple[set[str], list[str]]:
    """Ids meant by the references of one image, and those whose meaning is not known.

    An id that is listed says which image it is. Otherwise an id or digest must be known by itself, as an image or as
    none: a tag beside it may have moved. Where there are only names one of them must mean an image.
    """
    ids = {reference: _meant(reference, index, answered) for reference in references}
    found = set().union(*ids.values())
    lasting = [reference for reference in references if names_one_image(reference)]
    if any("@" not in each and bare_hex(each) in map(bare_hex, ids[each]) for each in lasting):
        return found, []
    if not lasting:
        return found, [] if found else list(references)
    unknown = [reference for reference in lasting if not ids[reference]]
    if any("@" in reference and reference in answered for reference in unknown):
        found |= index.without_digest
    return found, [reference for reference in unknown if reference not in answered]


def _meant(reference: str, index: ImageIndex, answered: Mapping[str, str | None]) -> frozenset[str]:
    """The ids that the list, or the runtime's answer, gives for one reference."""
    answer = answered.get(reference)
    return index.find(reference) if answer is None else index.find(reference) | {answer}
