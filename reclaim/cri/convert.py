"""Converts CRI messages to values of `reclaim.types` and `reclaim.types`.

The answer to a list call is split into its entries before it is parsed, so that 50 000 containers
are never all in memory as messages. CRI's list answers have their entries in field 1, and no other
field is needed. So has each message of the streaming variants (KEP-5825), of which containerd fills
one with 5 000 entries. Nothing is kept of the last list: a runtime written in Go writes labels in a
different order each time, so hardly any entry repeats the same bytes.

Source of the encoding: https://protobuf.dev/programming-guides/encoding/
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from sys import intern

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.status import CallError, Code
from reclaim.types import (
    Container,
    ContainerState,
    ContainerStatus,
    Image,
    Listed,
    PodSandbox,
    PodSandboxState,
    PodSandboxStatus,
    RuntimeUnavailable,
)

UID_LABEL = "io.kubernetes.pod.uid"
POD_NAME_LABEL = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
CONTAINER_NAME_LABEL = "io.kubernetes.container.name"
GRACE_ANNOTATIONS = (
    "io.kubernetes.pod.deletionGracePeriod",
    "io.kubernetes.pod.terminationGracePeriod",
)
SMALLEST_GRACE_SECONDS = 2
LARGEST_GRACE_SECONDS = 3600

_CONTAINER_STATES: Mapping[int, ContainerState] = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
}
_ENTRIES = 1  # the field that holds the entries
_VARINT = 0
_FIXED64 = 1
_LENGTH = 2
_FIXED32 = 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10  # bytes


def entries(answer: bytes | bytearray) -> Iterator[bytes]:
    """The bytes of each entry of a list, in order; other fields are skipped.

    Raises CallError with INTERNAL.
    """
    place = 0
    end = len(answer)
    while place < end:
        tag, place = _varint(answer, place)
        kind = tag & 7
        size = _FIXED.get(kind, 0)
        if kind in (_VARINT, _LENGTH):
            number, place = _varint(answer, place)
            size = number if kind == _LENGTH else 0
        elif not size:
            raise _malformed(f"wire type {kind} is unknown")
        if place + size > end:
            raise _malformed(f"a field of {size} bytes ends after the answer")
        if kind == _LENGTH and tag >> 3 == _ENTRIES:
            yield bytes(answer[place : place + size])
        place += size


def _varint(answer: bytes | bytearray, place: int) -> tuple[int, int]:
    """The number at this position, and the position after it."""
    value = 0
    for count, byte in enumerate(answer[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place + count + 1
    raise _malformed("a number does not end")


def _malformed(words: str) -> CallError:
    return CallError(Code.INTERNAL, f"the list cannot be read: {words}")


def text_in_json(info: Mapping[str, str], entry: str, key: str) -> str | None:
    """The text at `key` in the JSON document `entry` of a verbose answer; None if there is none."""
    try:
        document = json.loads(info.get(entry, "{}"))
    except ValueError:
        return None
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, str) and value else None


def sandbox_state(state: int) -> PodSandboxState:
    """The state; proto3 omits zeros, so a sandbox without a state on the wire is READY."""
    return PodSandboxState.NOTREADY if state == pb.SANDBOX_NOTREADY else PodSandboxState.READY


def container_state(state: int) -> ContainerState:
    """The state; a value unknown to this version is UNKNOWN."""
    return _CONTAINER_STATES.get(state, ContainerState.UNKNOWN)


def _identified(item_id: str, what: str) -> str:
    if not item_id:
        raise RuntimeUnavailable(
            f"the runtime listed {what} without an id; the list cannot be trusted"
        )
    return item_id


def each_once(listed: Iterable[Listed], what: str) -> tuple[Listed, ...]:
    """The entries of a list without duplicates. `what`: the kind of entry, for the message.

    Raises RuntimeUnavailable if an id comes with two different descriptions: a second entry
    must not turn a container into a newer attempt of itself, and if two states differ, there is
    no telling which is true.
    """
    found: dict[str, Listed] = {}
    for entry in listed:
        if found.setdefault(entry.id, entry) != entry:
            raise RuntimeUnavailable(
                f"the runtime listed {what} twice and differently; the list cannot be trusted"
            )
    return tuple(found.values())


def container_of(item: pb.Container) -> Container:
    """A listed container. Raises RuntimeUnavailable if it has no id."""
    image = item.image
    # Thousands of containers share a few pods and images: sharing the strings halves
    # the memory of a long list.
    return Container(
        id=_identified(item.id, "a container"),
        name=intern(item.metadata.name),
        state=container_state(item.state),
        created_at_ns=item.created_at,
        pod_uid=intern(item.labels.get(UID_LABEL, "")),
        pod_name=intern(item.labels.get(POD_NAME_LABEL, "")),
        pod_namespace=intern(item.labels.get(POD_NAMESPACE_LABEL, "")),
        sandbox_id=intern(item.pod_sandbox_id),
        attempt=item.metadata.attempt,
        image_references=_references(
            item.image_id, item.image_ref, image.image, image.user_specified_image
        ),
    )


def _references(*texts: str) -> tuple[str, ...]:
    """Each string that names an image, once; empty if none does."""
    return tuple(dict.fromkeys(map(intern, filter(None, texts))))


def container_status_of(status: pb.ContainerStatus) -> ContainerStatus:
    """The status of one container."""
    return ContainerStatus(
        id=status.id,
        state=container_state(status.state),
        image_volumes=tuple(
            references
            for mount in status.mounts
            if (references := _references(mount.image.image, mount.image.user_specified_image))
        ),
        name=status.labels.get(CONTAINER_NAME_LABEL, ""),
        pod_name=status.labels.get(POD_NAME_LABEL, ""),
        pod_namespace=status.labels.get(POD_NAMESPACE_LABEL, ""),
        log_path=status.log_path,
        stop_grace_seconds=stop_grace_seconds(status.annotations),
        identity=(status.labels.get(UID_LABEL, ""), status.metadata.name, status.metadata.attempt),
    )


def pod_sandbox_status_of(status: pb.PodSandboxStatus) -> PodSandboxStatus:
    """The status of one sandbox."""
    metadata = status.metadata
    return PodSandboxStatus(
        sandbox_state(status.state), (metadata.uid, metadata.name, metadata.attempt)
    )


def stop_grace_seconds(annotations: Mapping[str, str]) -> int:
    """The grace period that the kubelet gives a container to stop, in seconds.

    The deletion's, else the pod's, else 2 s; at least 2 s
    (`pkg/kubelet/kuberuntime/kuberuntime_container.go`), and here at most an hour, as pod
    annotations may contain anything.
    """
    texts = (annotations.get(name, "") for name in GRACE_ANNOTATIONS)
    written = next(
        (int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10), 0
    )
    return min(max(written, SMALLEST_GRACE_SECONDS), LARGEST_GRACE_SECONDS)


def sandbox_of(item: pb.PodSandbox) -> PodSandbox:
    """A listed sandbox. Raises RuntimeUnavailable if it has no id."""
    return PodSandbox(
        id=_identified(item.id, "a sandbox"),
        state=sandbox_state(item.state),
        created_at_ns=item.created_at,
        pod_uid=item.metadata.uid,
        pod_name=item.metadata.name,
        pod_namespace=item.metadata.namespace,
        attempt=item.metadata.attempt,
        labelled=bool(item.labels.get(UID_LABEL)),
    )


def image_of(item: pb.Image) -> Image:
    """A listed image. Raises RuntimeUnavailable if it has no id."""
    return Image(
        id=_identified(item.id, "an image"),
        repo_tags=tuple(item.repo_tags),
        repo_digests=tuple(item.repo_digests),
        size_bytes=item.size,
        pinned=item.pinned,
        runtime_handler=intern(item.spec.runtime_handler),
    )
