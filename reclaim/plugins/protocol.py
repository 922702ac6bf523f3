"""What a reclaim function of another distribution is: it plans, checks, removes, and looks whether the object is gone.

Everything else is the engine's: which function runs when, the order of calls, threads, measuring the disk, stopping
when it is relieved, the dry run, the record. A distribution names its class in the entry-point group
`reclaimd.reclaim_functions`; the class is called with the `options` of the configuration.

These names are stable: they change only with a major version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

ENTRY_POINT_GROUP: Final = "reclaimd.reclaim_functions"
MOST_OBJECTS: Final = 100_000
"""The most objects of one plan. Where there are more, a plan names those that would go first; a later plan the rest."""

MOST_KINDS: Final = 8
MOST_REASONS: Final = 32  # different ones of one plan; they are labels of metrics
LONGEST_ID: Final = 4096  # characters: PATH_MAX
LARGEST: Final = 2**63 - 1
A_WORD: Final = "a word of at most 32 characters: a-z, 0-9 and _, beginning with a letter"

_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)


def is_word(value: object) -> bool:
    """Whether it can be a kind or a reason: these are labels of metrics."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Found:
    """One object that a plan has found. Raises ValueError for a value that is not allowed.

    `id`: which one it is, different for each object of a plan, at most 4096 characters. `remove`: whether it may go.
    `reason`: why, in one word; a plan has at most 32 different ones. `size_bytes`: what its removal promises to free;
    None: not known. `name`: for people; empty: the id. `kind`: one of the plugin's `kinds`; empty: the first.
    `age_seconds`: where the decision depended on its age. `eligible_in_seconds`: of an object that is kept, when time
    alone will let it go. `data`: the plugin's own; it comes back with the object, and nobody else looks at it.
    """

    id: str
    remove: bool
    reason: str
    size_bytes: int | None = None
    name: str = ""
    kind: str = ""
    age_seconds: float | None = None
    eligible_in_seconds: float | None = None
    data: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not _is_text(self.id) or not self.id:
            raise ValueError(f"the id of an object is {shown(self.id)}; allowed is {_TEXT}, not empty")
        for name, value, allowed, what in (
            ("name", self.name, _is_text(self.name), _TEXT),
            ("kind", self.kind, self.kind == "" or is_word(self.kind), A_WORD),
            ("remove", self.remove, isinstance(self.remove, bool), "True or False"),
            ("reason", self.reason, is_word(self.reason), A_WORD),
            ("size_bytes", self.size_bytes, _is_size(self.size_bytes), "None, or an int from 0 to 2^63 - 1"),
            ("age_seconds", self.age_seconds, _is_seconds(self.age_seconds), _SECONDS),
            ("eligible_in_seconds", self.eligible_in_seconds, _is_seconds(self.eligible_in_seconds), _SECONDS),
        ):
            if not allowed:
                raise ValueError(f"{name} of object {shown(self.id)} is {shown(value)}; allowed is {what}")


class ReclaimPlugin(Protocol):
    """A reclaim function. It is constructed once, with its options, and then used until reclaimd ends or is reloaded.

    The constructor gets the `options` of the configuration as they stand there (text, integers, booleans, lists and
    mappings; an empty mapping if there are none) and raises ValueError, with a sentence, for those that it refuses.

    `plan` is called on one thread at a time; `check`, `remove` and `present` on several, at the same time for different
    objects. Whatever any of them raises is reported, and ends nothing else. A call that does not end is left behind:
    `plan` after a minute without any progress, a removal after `removalPatience`; it is never interrupted.
    """

    @property
    def kinds(self) -> Sequence[str]:
        """One to eight words for what it removes, as `("cache_file",)`; labels of metrics. They never change."""

    def plan(self) -> Iterable[Found]:
        """Every object that it knows of, at most `MOST_OBJECTS`, each with its verdict; those that may go in the order
        in which they go. Removes nothing: commands, dry runs and the daemon call it at any time."""

    def check(self, found: Found, /) -> bool | str:
        """Right before its removal: whether the object may still go. True: it may. A word: it is kept for that reason.
        False: it is not the object that was planned any more, or is gone."""

    def remove(self, found: Found, /) -> bool | None:
        """Removes the object, and returns when that is done. False: there was no such object any more. Not called in a
        dry run, nor before `check` has returned True within the last second."""

    def present(self, found: Found, /) -> bool:
        """Whether the object is still there: asked after every removal, however that ended. Another object that has
        taken its name is not it."""


_TEXT = f"text of at most {LONGEST_ID} characters that can be the name of a file"
_SECONDS = "None, or a number of seconds from 0 to 2^63 - 1"


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_ID:
        return False
    try:
        value.encode("utf-8", "surrogateescape")  # how Python gives the name of a file that is not UTF-8
    except UnicodeEncodeError:
        return False
    return True


def _is_size(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST)


def _is_seconds(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST)


def shown(value: object) -> str:
    """A value in a sentence, cut to a bounded length."""
    if isinstance(value, str | bytes):
        return repr(value[:60])
    if value is None or isinstance(value, int | float):
        return repr(value)[:60]
    return f"of type {type(value).__name__}"
