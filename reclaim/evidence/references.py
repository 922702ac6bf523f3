"""Which listed images a reference means, and which images are in use.

**References.** A container names its image in several ways: an id (`sha256:…` on containerd, bare
hex on CRI-O, sometimes shortened), a repository digest (`repo@sha256:…`), a tag in full
(`docker.io/library/busybox:1.36`) or in short form (`busybox`;
https://github.com/distribution/reference, ParseNormalizedNamed). A wrong "unused" deletes the image
of a running pod, so a reference means every image that it could mean. But a digest is never
resolved through a name or tag, which may have moved: only by itself or by an id beside it.

**In use.** The kubelet compares one field of a container (its image id, else its image reference)
with the ids of the listed images (`pkg/kubelet/images/image_gc_manager.go`, detectImages). Here an
image is in use if any field of any container names it, if a container mounts it, if pod sandboxes
are made from it, or if the spec of a pod that has not terminated names it, where the kubelet lists
that. A container whose image cannot be resolved stops all image removal: no image is assumed to be
unused on a guess. An image that a spec names and that is not listed has not been pulled yet, and
stops nothing.

Covers: resolving references, which container uses which image. Does not cover: ages and order
(`plan`), asking the runtime (`inventory`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reclaim.types import Image, Listing

# Host, path and tag as in https://github.com/distribution/reference/blob/main/regexp.go. Each
# separator is a character that the parts around it cannot contain, so a match never backtracks.
_LABEL = r"[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
NAME = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?")
LONGEST_REPOSITORY = 255  # characters

_HEX = re.compile(r"[0-9a-f]{6,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OF_ANY_ALGORITHM = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")


class ImageIndex:
    """Finds the ids of the listed images that a reference means."""

    def __init__(self, images: Iterable[Image]):
        # one image may be listed with and without algorithm
        self._by_hex = defaultdict[str, set[str]](set)
        self._by_name = defaultdict[str, set[str]](set)
        self._found: dict[str, frozenset[str]] = {}  # many containers name the same image
        self.without_digest = set[str]()
        """The ids of images that are listed without a digest; any digest may be theirs."""
        for image in images:
            self._by_hex[bare_hex(image.id)].add(image.id)
            if not image.repo_digests:
                self.without_digest.add(image.id)
            for name in image.names:
                self._by_name[normalized(name)].add(image.id)
                digest = name.rpartition("@")[2]
                if digest != name:
                    self._by_name[digest].add(image.id)

    def find(self, reference: str) -> frozenset[str]:
        """The ids that `reference` means among the listed images; empty if it means none."""
        if reference in self._found:
            return self._found[reference]
        name = normalized(reference)
        digest = reference.rpartition("@")[2]
        # by its digest alone, too: the same image may be listed under another repository
        found = set().union(*(self._by_name.get(key, ()) for key in (name, reference, digest)))
        if is_short(reference) and not names_one_image(reference):
            # containerd takes `busybox` as `docker.io/library/busybox`; CRI-O asks a table of
            # aliases and each registry of its configuration in turn (github.com/containers/image,
            # docs/containers-registries.conf.5.md), or fails
            ending = f"/{name.removeprefix('docker.io/').removeprefix('library/')}"
            for known, ids in self._by_name.items():
                if known.endswith(ending):
                    found |= ids
        hexadecimal = bare_hex(digest)
        if hexadecimal in self._by_hex:
            found |= self._by_hex[hexadecimal]
        elif len(hexadecimal) < 64 and _HEX.fullmatch(hexadecimal):
            for known, ids in self._by_hex.items():
                if known.startswith(hexadecimal):
                    found |= ids
        self._found[reference] = frozenset(found)
        return self._found[reference]


def means(reference: str, image: Image) -> bool:
    """Whether the image that a runtime found for a reference is what the reference means.

    An id or digest must be the image's own: a runtime may strip the digest from
    `repository:tag@sha256:…` and answer with the image that has the tag. What a name
    means only the runtime knows.
    """
    return not names_one_image(reference) or bool(ImageIndex((image,)).find(reference))


def names_one_image(reference: str) -> bool:
    """Whether it is an id or carries a digest, which never move as tags do."""
    return _DIGEST.fullmatch(bare_hex(reference.rpartition("@")[2])) is not None


def removal_references(entries: Sequence[Image]) -> tuple[str, ...]:
    """What RemoveImage is to be sent for an image, given all entries of its id in the list: the id.

    CRI-O removes an image by its id. An OCI artifact, whose id is the digest of its manifest, it
    removes by name and digest, each name on its own; given the id, it reports success and
    removes nothing (`server/image_remove.go`). An artifact without a name is removed by nothing:
    then the answer is empty.
    """
    own = [
        name
        for entry in entries
        for name in entry.repo_digests
        if name.endswith(f"@sha256:{entry.id}")
    ]
    return tuple(name for name in own if not is_short(name)) if own else (entries[0].id,)


def bare_hex(image_id: str) -> str:
    """An id without its algorithm: `sha256:ab…` -> `ab…`."""
    return image_id.removeprefix("sha256:")


def normalized(reference: str) -> str:
    """A name in full: registry, repository and tag; `busybox` ->
    `docker.io/library/busybox:latest`.

    A reference with a digest keeps it and loses any tag. Anything that is not a name (an
    id) is returned unchanged.
    """
    if not reference or reference.startswith("sha256:"):
        return reference
    name, at, digest = reference.partition("@")
    head, _, rest = name.partition("/")
    if is_short(name):
        head = "docker.io"
        rest = name
    if head == "index.docker.io":
        head = "docker.io"
    if head == "docker.io" and "/" not in rest:
        rest = f"library/{rest}"
    repository, colon, tag = rest.rpartition(":")
    if not colon:
        repository = rest
        tag = "latest"
    return f"{head}/{repository}@{digest}" if at else f"{head}/{repository}:{tag}"


def is_short(name: str) -> bool:
    """Whether a name says no registry."""
    head, slash, _ = name.partition("/")
    return not slash or not ("." in head or ":" in head or head == "localhost")


def is_full_name(reference: str) -> bool:
    """Whether it is a valid name with a registry, which every runtime understands."""
    name, at, digest = reference.partition("@")
    if is_short(name) or not NAME.fullmatch(name) or len(repository_of(name)) > LONGEST_REPOSITORY:
        return False
    return not at or _OF_ANY_ALGORITHM.fullmatch(digest) is not None


def repository_of(name: str) -> str:
    """A full name without digest and tag:

    `docker.io/library/busybox:1` -> `docker.io/library/busybox`.
    """
    name = name.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


# ---- which images are in use


class ImagesInUse(NamedTuple):
    """Ids that containers use or specs name, ids that sandboxes need, and references
    that could not be resolved.

    `sandbox_image_known`: false if no source (pin, configuration, running sandboxes) names the
    sandbox image: then no image may go, as no pod can start without it.
    `by_image_id`: those of `by_containers` that the kubelet finds too: a container's
    image id, or an image volume, is byte for byte the id of a listed image.
    """

    by_containers: frozenset[str]
    by_sandboxes: frozenset[str]
    unresolved: tuple[str, ...]
    sandbox_image_known: bool
    by_image_id: frozenset[str] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all images in use."""
        return self.by_containers | self.by_sandboxes


def images_in_use(listing: Listing, index: ImageIndex | None = None) -> ImagesInUse:
    """Which listed images are in use. All container states count: an image is in use until
    its last container is gone.

    `index`: that of `listing.images`, if the caller has it.
    """
    index = index or ImageIndex(listing.images)
    used = set[str]()
    named = set[str]()
    unresolved = set[str]()
    needed: set[tuple[str, ...]] = set()  # many containers have the same references
    for container in listing.containers:
        own = container.image_references
        volumes = listing.image_volumes.get(container.id, ())
        if not own:
            unresolved.add(f"container {container.id}")
        named.update(own[:1], *volumes)  # the first is the image id, else the image reference
        needed.update((own, *volumes))
    for references in needed - {()}:
        found, missing = _resolve(references, index, listing.resolved)
        used |= found
        unresolved.update(missing)
    for reference in listing.named_images:
        used |= _meant(reference, index, listing.resolved)
    by_sandboxes = set[str]()
    for reference in listing.sandbox_image_references or ():
        found, missing = _resolve((reference,), index, listing.resolved)
        by_sandboxes |= found
        # a name unknown to the runtime is not pulled yet
        unresolved.update(filter(names_one_image, missing))
    configured = listing.sandbox_image_references is not None
    return ImagesInUse(
        by_containers=frozenset(used),
        by_sandboxes=frozenset(by_sandboxes),
        unresolved=tuple(sorted(unresolved)),
        sandbox_image_known=configured or pins_sandbox_image(listing.images),
        by_image_id=frozenset(used & named),
    )


def pins_sandbox_image(images: Iterable[Image]) -> bool:
    """Whether one of them is pinned and called as sandbox images are."""
    return any(names_sandbox_image(image) for image in images if image.pinned)


def names_sandbox_image(image: Image) -> bool:
    """Whether a name of the image says `pause`, as those of all sandbox images do."""
    return any("pause" in name.partition("@")[0].rpartition("/")[2] for name in image.names)


def _resolve(
    references: tuple[str, ...], index: ImageIndex, answered: Mapping[str, str | None]
) -> tuple[set[str], list[str]]:
    """The ids that the references of one image mean, and those references whose meaning is unknown.

    An id that is listed settles which image it is. Otherwise an id or digest must be known by
    itself, as an image or as none: a tag beside it may have moved. That the runtime has none
    settles it, but then an image that is listed without a digest may be the one. If there are only
    names, one of them must mean an image.
    """
    ids = {reference: _meant(reference, index, answered) for reference in references}
    found = set().union(*ids.values())
    lasting = [reference for reference in references if names_one_image(reference)]
    for reference in lasting:
        if "@" not in reference and bare_hex(reference) in map(bare_hex, ids[reference]):
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
