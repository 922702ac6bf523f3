"""How a runtime finds the object that a call names: by full id, by any unique prefix of one, and images by reference.

These are containerd's rules. They make a careless caller dangerous: six characters of an id remove a container as
surely as all 64 do. Source: github.com/containerd/containerd internal/cri/store/{container,sandbox,image} (truncindex,
digestset), internal/cri/server/images/image_list.go (LocalResolve), github.com/distribution/reference normalize.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TypeVar

from eviction.drill.runtime.private_mounts import EmbeddedNodeError

_Record = TypeVar("_Record")
_ID_CHARACTERS = 64


class NotFoundError(EmbeddedNodeError):
    """A call names an object that does not exist. Over gRPC it is NOT_FOUND; any other EmbeddedNodeError is UNKNOWN."""


def find(ids: Collection[str], wanted: str, kind: str) -> str:
    """The id that `wanted` names: itself, or the only one that begins with it. `kind` is for the message.

    Raises NotFoundError if there is none, EmbeddedNodeError if `wanted` is empty or several begin with it.
    """
    if not wanted:
        raise EmbeddedNodeError(f"an error occurred when try to find {kind} {wanted!r}: prefix can't be empty")
    if wanted in ids:
        return wanted
    # A full id of 64 characters is no prefix of another one: do not search 50 000 ids for one that was removed.
    matches = [each for each in ids if each.startswith(wanted)] if len(wanted) < _ID_CHARACTERS else []
    if not matches:
        raise NotFoundError(f"an error occurred when try to find {kind} {wanted!r}: not found")
    if len(matches) > 1:
        raise EmbeddedNodeError(f"an error occurred when try to find {kind} {wanted!r}: {len(matches)} ids begin so")
    return matches[0]


def find_or_none(table: Mapping[str, _Record], wanted: str, kind: str) -> _Record | None:
    """The entry that `find` finds; None where it raises NotFoundError. For calls that succeed if there is none."""
    try:
        return table[find(table, wanted, kind)]
    except NotFoundError:
        return None


def find_or_keep(ids: Collection[str], wanted: str) -> str:
    """As `find`, for list filters: a text that names no object, or several, is returned as it is and matches
    nothing."""
    try:
        return find(ids, wanted, "filter")
    except EmbeddedNodeError:
        return wanted


def matches_labels(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True if the labels have every key of the selector with the same value. An empty selector matches everything."""
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
    """64 hex digits that depend on the parts alone, so that two runs of a scenario have the same ids."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
