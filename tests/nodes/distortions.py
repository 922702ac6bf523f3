"""Wrong answers of a runtime.

A distortion changes a copy of one answer and not the node, so a test can compare both. Nothing
tells a list that lacks entries without an error (`half_list`) from a complete one; the fault `Cut`
sends such a list before its error.

The names that distortions change are for people: those of containers, pods and namespaces, and
image tags. The label with the pod UID, on which decisions rest, stays as it is.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message

from tests.nodes.faults import Failpoint

HUGE_NAME_CHARACTERS = 1 << 20
# A line break, a terminal escape, a NUL, a line separator, right-to-left text, a
# byte order mark, and quotes.
CONTROL_CHARACTERS = "a\nb\x1b[31mc\x00d\u2028e\u202ef\ufeffg\x7f\x9b\"'\\"
HOSTILE_PATH = "/var/log/pods/../../../proc/self/../..//dev/null\n/etc"
_SHORT_ID = 6
_LARGEST = (1 << 63) - 1

_Answer = TypeVar("_Answer", bound=Message)


class Distortion(StrEnum):
    """The ways in which an answer can be wrong. Sizes and times are set to the value in the name.

    `rotated_ids`: every entry has the id of the next one. `short_ids`: the first six characters of
    each id, which a runtime accepts in its place. `largest_sizes`: 2^63-1 bytes; CRI's sizes are
    unsigned, so there is no negative one. `huge_names`: one MiB each. `hostile_paths`: paths of
    logs and mount points that lead out of their directories.
    """

    HALF_LIST = "half_list"
    DUPLICATE_ENTRIES = "duplicate_entries"
    ROTATED_IDS = "rotated_ids"
    UNKNOWN_IDS = "unknown_ids"
    SHORT_IDS = "short_ids"
    EMPTY_IDS = "empty_ids"
    ZERO_SIZES = "zero_sizes"
    LARGEST_SIZES = "largest_sizes"
    ZERO_TIMES = "zero_times"
    NEGATIVE_TIMES = "negative_times"
    LARGEST_TIMES = "largest_times"
    EMPTY_NAMES = "empty_names"
    HUGE_NAMES = "huge_names"
    CONTROL_NAMES = "control_names"
    EMPTY_PATHS = "empty_paths"
    HOSTILE_PATHS = "hostile_paths"


@dataclass
class Distort(Failpoint):
    """Calls act and give a distorted answer."""

    how: Distortion

    def __post_init__(self) -> None:
        self.change = partial(distorted, how=self.how)


def distorted(answer: _Answer, how: Distortion) -> _Answer:
    """A copy of the answer that is wrong in this way, or an equal copy if
    there is nothing to distort.
    """
    changed = copy.deepcopy(answer)
    if how in _OF_THE_LIST:
        for known, entries in changed.ListFields():
            if known.name != "info" and hasattr(entries, "add"):
                _OF_THE_LIST[how](entries)
    else:
        value, _, places = how.partition("_")
        for entry in _entries(changed):
            for place in _PLACES[places]:
                _change(entry, place, _VALUES[value])
    return changed


def _halve(entries: Any) -> None:
    del entries[(len(entries) + 1) // 2 :]


def _double(entries: Any) -> None:
    entries.extend(list(entries))


def _rotate(entries: Any) -> None:
    ids = [entry.id for entry in entries if "id" in entry.DESCRIPTOR.fields_by_name]
    for entry, other in zip(entries, ids[1:] + ids[:1], strict=False):
        entry.id = other


def _entries(answer: Message) -> Iterator[Any]:
    """The objects in an answer: the entries of a list, or the single object of a status call."""
    for known, value in answer.ListFields():
        if known.name in ("status", "image"):
            yield value
        elif known.name != "info" and hasattr(value, "add"):
            yield from value


def _change(message: Any, place: str, change: Callable[[Any], Any]) -> None:
    """Changes the value at a place, if the message has one there: a field, each text of a list, a
    field of a field, or a label."""
    name, _, below = place.partition(".")
    if name not in message.DESCRIPTOR.fields_by_name:
        return
    value = getattr(message, name)
    if isinstance(value, Message):
        _change(value, below, change)
    elif below:
        for key in {below} & value.keys():
            value[key] = change(value[key])
    elif isinstance(value, str | int):
        setattr(message, name, change(value))
    else:
        value[:] = [change(each) for each in value]


def _unknown(object_id: str) -> str:
    digits = object_id.removeprefix("sha256:")
    return object_id.removesuffix(digits) + digits[::-1]


def _short(object_id: str) -> str:
    return object_id.removeprefix("sha256:")[:_SHORT_ID]


def _huge(name: str) -> str:
    return (name or "x") * (HUGE_NAME_CHARACTERS // len(name or "x"))


_OF_THE_LIST: dict[Distortion, Callable[[Any], None]] = {
    Distortion.HALF_LIST: _halve,
    Distortion.DUPLICATE_ENTRIES: _double,
    Distortion.ROTATED_IDS: _rotate,
}
# Every other distortion is named for a value and its places: `zero_sizes`.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "unknown": _unknown,
    "short": _short,
    "empty": lambda _: "",
    "zero": lambda _: 0,
    "largest": lambda _: _LARGEST,
    "negative": lambda _: -_LARGEST,
    "huge": _huge,
    "control": lambda name: name + CONTROL_CHARACTERS,
    "hostile": lambda _: HOSTILE_PATH,
}
_LABELS = ("io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.container.name")
_PLACES: dict[str, tuple[str, ...]] = {
    "ids": ("id",),
    "sizes": ("size", "used_bytes.value", "inodes_used.value"),
    "times": ("created_at", "started_at", "finished_at", "timestamp"),
    "names": (
        "metadata.name",
        "metadata.namespace",
        *(f"labels.{label}" for label in _LABELS),
        "repo_tags",
    ),
    "paths": ("log_path", "fs_id.mountpoint"),
}
