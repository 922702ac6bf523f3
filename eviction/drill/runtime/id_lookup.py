"""How a runtime finds what a call names: by full id, by any unique prefix of one, and for images by reference.

These are containerd's rules, and they are what makes a careless caller dangerous: six characters of an id remove a
container as surely as all 64 do.
Source: github.com/containerd/containerd internal/cri/store/{container,sandbox,image} (truncindex, digestset),
internal/cri/server/images/image_list.go (LocalResolve), github.com/distribution/reference normalize.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TypeVar

from eviction.drill.runtime.private_mounts import EmbeddedNodeError

_Record = TypeVar("_Record")
_ID_CHARACTERS = 64


class NotFoundError(EmbeddedNodeError):
    """A call names something that is not here; over gRPC this is NOT_FOUND, any other EmbeddedNodeError UNKNOWN."""


def find(ids: Collection[str], wanted: str, kind: str) -> str:
    """The id that `wanted` names: itself, or the only one that begins with it. `kind` is for the message.

    Raises NotFoundError if there is none, EmbeddedNodeError if `wanted` is empty or several begin with it.
    """
    if not wanted:
        raise EmbeddedNodeError(f"an error occurred when try to find {kind} {wanted!r}: prefix can't be empty")
    if wanted in ids:
        return wanted
    # No id is longer than 64 characters, so a whole one is nobody's prefix: no search among 50 000 for what is gone.
    matches = [each for each in ids if each.startswith(wanted)] if len(wanted) < _ID_CHARACTERS else []
    if not matches:
        raise NotFoundError(f"an error occurred when try to find {kind} {wanted!r}: not found")
    if len(matches) > 1:
        raise EmbeddedNodeError(f"an error occurred when try to find {kind} {wanted!r}: {len(matches)} ids begin so")
    return matches[0]


def find_or_none(table: Mapping[str, _Record], wanted: str, kind: str) -> _Record | None:
    """What `find` names in a table; None where it raises NotFoundError, for calls to which absence is success."""
    try:
        return table[find(table, wanted, kind)]
    except NotFoundError:
        return None


def find_or_keep(ids: Collection[str], wanted: str) -> str:
    """As `find`, for list filters: what names nothing, or several, stays as it is and so matches nothing."""
    try:
        return find(ids, wanted, "filter")
    except EmbeddedNodeError:
        return wanted


def matches_labels(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether the labels have every key of the selector with the same value; an empty selector takes all."""
    return all(key in labels and labels[key] == value for key, value in selector.items())


def normalize_reference(reference: str) -> str:
    """An image reference in full: registry, repository, and a digest or a tag ("latest" if neither is given).

    "busybox" is "docker.io/library/busybox:latest"; of "name:tag@digest" the tag is dropped, as runtimes do.
    """
    name, _, digest = reference.partition("@")
    path, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    repository = path + slash + last
    registry = repository.split("/", 1)[0]
    if "/" not in repository:
        repository = f"docker.io/library/{repository}"
    elif not ("." in registry or ":" in registry or registry == "localhost"):
        repository = f"docker.io/{repository}"
    return f"{repository}@{digest}" if digest else f"{repository}:{tag or 'latest'}"


def repository_of(tag: str) -> str:
    """The repository of a normalized "repository:tag" reference."""
    return tag.rpartition(":")[0]


def deterministic_id(*parts: object) -> str:
    """64 hex digits that depend on the parts alone, so that a drill with the same story has the same ids."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
