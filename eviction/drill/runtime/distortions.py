"""Wrong answers on purpose: what a broken runtime returns in place of the true answer.

Each distortion changes a copy of one answer. The node itself is not changed, so a test can compare both. A list that
lacks entries without an error (`half_list`) cannot be told from a true one; the fault `cut` sends such a list before
its error.

Names are those for people: of containers, pods and namespaces, and the tags of images. The label with the pod UID, on
which decisions rest, is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.message import Message

_Answer = TypeVar("_Answer", bound=Message)

HUGE_NAME_CHARACTERS = 1 << 20
# A line break, a terminal's escape, a NUL, a line separator, text that runs backwards, a byte order mark, and quotes.
CONTROL_CHARACTERS = "a\nb\x1b[31mc\x00d\u2028e\u202ef\ufeffg\x7f\x9b\"'\\"
HOSTILE_PATH = "/var/log/pods/../../../proc/self/../..//dev/null\n/etc"
_SHORT_ID = 6
_LARGEST = (1 << 63) - 1
_TIMES = ("created_at", "started_at", "finished_at", "timestamp")
_NAMES = ("name", "namespace")
_NAME_LABELS = ("io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.container.name")


class Distortion(StrEnum):
    """The ways in which an answer can be wrong. Sizes and times are set to the value in the name."""

    HALF_LIST = "half_list"
    DUPLICATE_ENTRIES = "duplicate_entries"
    ROTATED_IDS = "rotated_ids"
    """Every entry has the id of the next one."""
    UNKNOWN_IDS = "unknown_ids"
    SHORT_IDS = "short_ids"
    """The first six characters of each id, which a runtime accepts in place of the id."""
    EMPTY_IDS = "empty_ids"
    ZERO_SIZES = "zero_sizes"
    LARGEST_SIZES = "largest_sizes"
    """2^63-1 bytes. CRI's sizes are unsigned, so a negative one cannot be sent."""
    ZERO_TIMES = "zero_times"
    NEGATIVE_TIMES = "negative_times"
    LARGEST_TIMES = "largest_times"
    EMPTY_NAMES = "empty_names"
    HUGE_NAMES = "huge_names"
    """One MiB each."""
    CONTROL_NAMES = "control_names"
    EMPTY_PATHS = "empty_paths"
    HOSTILE_PATHS = "hostile_paths"
    """Paths of logs and mount points that lead out of their directories."""


def distorted(answer: _Answer, how: Distortion) -> _Answer:
    """A copy of the answer that is wrong in this way; an equal copy if the answer has nothing to distort."""
    changed = type(answer)()
    changed.CopyFrom(answer)
    _CHANGES[how](changed)
    return changed


def _entries(answer: Message) -> Iterator[Any]:
    """The objects in an answer: the entries of a list, or the one object of a status call."""
    for field, value in answer.ListFields():
        if field.name in ("status", "image"):
            yield value
        elif field.name != "info":
            yield from value if hasattr(value, "add") else ()


def _lists(answer: Message) -> Iterator[Any]:
    for field, value in answer.ListFields():
        if field.name != "info" and hasattr(value, "add"):
            yield value


def _halve(answer: Message) -> None:
    for entries in _lists(answer):
        del entries[(len(entries) + 1) // 2 :]


def _double(answer: Message) -> None:
    for entries in _lists(answer):
        entries.extend(list(entries))


def _with_id(answer: Message) -> list[Any]:
    return [entry for entry in _entries(answer) if "id" in entry.DESCRIPTOR.fields_by_name]


def _rotate(answer: Message) -> None:
    entries = _with_id(answer)
    ids = [entry.id for entry in entries]
    for entry, other in zip(entries, ids[1:] + ids[:1], strict=True):
        entry.id = other


def _ids(change: Callable[[str], str]) -> Callable[[Message], None]:
    def apply(answer: Message) -> None:
        for entry in _with_id(answer):
            entry.id = change(entry.id)

    return apply


def _unknown(object_id: str) -> str:
    digits = object_id.removeprefix("sha256:")
    return object_id.removesuffix(digits) + digits[::-1]


def _short(object_id: str) -> str:
    return object_id.removeprefix("sha256:")[:_SHORT_ID]


def _sizes(size_bytes: int) -> Callable[[Message], None]:
    def apply(answer: Message) -> None:
        for entry in _entries(answer):
            fields = entry.DESCRIPTOR.fields_by_name
            if "size" in fields:
                entry.size = size_bytes
            for name in ("used_bytes", "inodes_used"):
                if name in fields:
                    getattr(entry, name).value = size_bytes

    return apply


def _times(nanoseconds: int) -> Callable[[Message], None]:
    def apply(answer: Message) -> None:
        for entry in _entries(answer):
            for name in _TIMES:
                if name in entry.DESCRIPTOR.fields_by_name:
                    setattr(entry, name, nanoseconds)

    return apply


def _names(change: Callable[[str], str]) -> Callable[[Message], None]:
    def apply(answer: Message) -> None:
        for entry in _entries(answer):
            fields = entry.DESCRIPTOR.fields_by_name
            for name in _NAMES:
                if "metadata" in fields and name in entry.metadata.DESCRIPTOR.fields_by_name:
                    setattr(entry.metadata, name, change(getattr(entry.metadata, name)))
            for label in _NAME_LABELS:
                if "labels" in fields and label in entry.labels:
                    entry.labels[label] = change(entry.labels[label])
            if "repo_tags" in fields:
                entry.repo_tags[:] = [change(tag) for tag in entry.repo_tags]

    return apply


def _paths(path: str) -> Callable[[Message], None]:
    def apply(answer: Message) -> None:
        for entry in _entries(answer):
            if "log_path" in entry.DESCRIPTOR.fields_by_name:
                entry.log_path = path
            if "fs_id" in entry.DESCRIPTOR.fields_by_name:
                entry.fs_id.mountpoint = path

    return apply


def _huge(name: str) -> str:
    return (name or "x") * (HUGE_NAME_CHARACTERS // len(name or "x"))


_CHANGES: dict[Distortion, Callable[[Message], None]] = {
    Distortion.HALF_LIST: _halve,
    Distortion.DUPLICATE_ENTRIES: _double,
    Distortion.ROTATED_IDS: _rotate,
    Distortion.UNKNOWN_IDS: _ids(_unknown),
    Distortion.SHORT_IDS: _ids(_short),
    Distortion.EMPTY_IDS: _ids(lambda _: ""),
    Distortion.ZERO_SIZES: _sizes(0),
    Distortion.LARGEST_SIZES: _sizes(_LARGEST),
    Distortion.ZERO_TIMES: _times(0),
    Distortion.NEGATIVE_TIMES: _times(-_LARGEST),
    Distortion.LARGEST_TIMES: _times(_LARGEST),
    Distortion.EMPTY_NAMES: _names(lambda _: ""),
    Distortion.HUGE_NAMES: _names(_huge),
    Distortion.CONTROL_NAMES: _names(lambda name: name + CONTROL_CHARACTERS),
    Distortion.EMPTY_PATHS: _paths(""),
    Distortion.HOSTILE_PATHS: _paths(HOSTILE_PATH),
}
