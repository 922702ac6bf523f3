"""The images of the embedded runtime, and which one a name means. A table; the layers are in `layer_store`.

Rules, as containerd's image store has them:

* An image has one id, and any number of tags and repository digests, also none.
* A tag belongs to one image. Adding it to another image moves it; the first image stays, with its digest.
* Removing an image by any name removes the image with every tag and digest. (In the dialects where a name only untags,
  the image is removed with its last tag.)
* An image may have been pulled for more runtime handlers than the default: lists have it once for each, and a removal
  takes all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eviction.drill.runtime.id_lookup import NotFoundError, deterministic_id, find, normalize_reference, repository_of
from eviction.drill.runtime.layer_store import LayerSpec
from reclaim.cri import cri_pb2


@dataclass(slots=True)
class Image:
    """One image. `tags` and `digests` are full references; `layers` is in order, the lowest first; `runtime_handlers`
    those that it was pulled for, the default one (empty) first. `created_at`: when it was pulled, wall seconds."""

    id: str
    tags: list[str]
    digests: list[str]
    layers: tuple[LayerSpec, ...]
    pinned: bool
    runtime_handlers: list[str] = field(default_factory=lambda: [""])
    created_at: float = 0.0

    @property
    def layer_digests(self) -> tuple[str, ...]:
        """The digests of the layers, the lowest first."""
        return tuple(layer.digest for layer in self.layers)

    def item(self, *, pinned: bool, runtime_handler: str = "") -> cri_pb2.Image:
        """The answer of ListImages and ImageStatus. `size` counts shared layers in full, as in every runtime."""
        return cri_pb2.Image(
            id=self.id,
            repo_tags=self.tags,
            repo_digests=self.digests,
            size=sum(layer.size_bytes for layer in self.layers),
            pinned=self.pinned or pinned,
            spec=cri_pb2.ImageSpec(runtime_handler=runtime_handler) if runtime_handler else None,
        )


@dataclass(slots=True)
class ImageTable:
    """Images by id and by name."""

    _by_id: dict[str, Image] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Image]:
        return iter(self._by_id.values())

    def get(self, image_id: str) -> Image | None:
        """The image that has this full id."""
        return self._by_id.get(image_id)

    def put(self, image_id: str, tags: Sequence[str], layers: Sequence[LayerSpec], *, pinned: bool) -> Image:
        """Adds an image, or more tags to the one that has this id. Tags of another image move here."""
        image = self._by_id.setdefault(image_id, Image(image_id, [], [], tuple(layers), pinned))
        image.pinned = image.pinned or pinned
        manifest = deterministic_id("manifest", image_id)
        for tag in map(normalize_reference, tags):
            former = self._by_name.get(tag)
            if former is not None and former != image_id:
                self._by_id[former].tags.remove(tag)
            digest = f"{repository_of(tag)}@sha256:{manifest}"
            if tag not in image.tags:
                image.tags.append(tag)
            if digest not in image.digests:
                image.digests.append(digest)
            self._by_name[tag] = self._by_name[digest] = image_id
        return image

    def resolve(self, wanted: str) -> Image:
        """The image that an id, a unique prefix of one with or without "sha256:", a tag or a repository digest names.

        Raises NotFoundError if it names none, EmbeddedNodeError if it is empty or the prefix of several ids.
        """
        if wanted in self._by_id:
            return self._by_id[wanted]
        if wanted and (named := self._by_name.get(normalize_reference(wanted))) is not None:
            return self._by_id[named]
        by_digits = {image_id.removeprefix("sha256:"): image_id for image_id in self._by_id}
        try:
            return self._by_id[by_digits[find(by_digits, wanted.removeprefix("sha256:"), "image")]]
        except NotFoundError:
            raise NotFoundError(f"image {wanted!r} not found") from None

    def resolve_or_none(self, wanted: str) -> Image | None:
        """As `resolve`, with None where it raises NotFoundError. For calls that succeed if there is no image."""
        try:
            return self.resolve(wanted)
        except NotFoundError:
            return None

    def untag(self, image: Image, name: str) -> bool:
        """Removes one name, if it is a tag of the image and not its last one. True if it was removed."""
        tag = normalize_reference(name) if name else ""
        if tag not in image.tags or len(image.tags) == 1:
            return False
        image.tags.remove(tag)
        del self._by_name[tag]
        return True

    def drop(self, image: Image) -> None:
        """Removes an image with all its names."""
        del self._by_id[image.id]
        for name in (*image.tags, *image.digests):
            del self._by_name[name]


def image_id_of(tags: Sequence[str], layers: Sequence[LayerSpec], *, bare: bool = False) -> str:
    """The id of an image. The same tags and layers always give the same id.

    `bare`: without "sha256:" before its 64 hex digits.
    """
    digits = deterministic_id("image", *sorted(map(normalize_reference, tags)), *(layer.digest for layer in layers))
    return digits if bare else f"sha256:{digits}"
