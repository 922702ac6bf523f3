"""What a program says it would remove: JSON lines, read strictly and within bounds.

One line is one object: `{"name": "…", "size": 1048576, "reason": "…"}`. `size` is in bytes and may be missing or null,
`reason` may be missing; other keys are ignored, so that there may be more of them one day. An empty object, `{}`, says
only that the question is known: a program that would remove nothing prints it, as one that prints nothing does not know
the question.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

MOST_BYTES = 1 << 20
MOST_LINES = 10_000
LONGEST_LINE = 4096  # bytes
LONGEST_WORDS = 200  # characters of a name or a reason that are shown
LARGEST_SIZE = 1 << 60


class PlannedObject(NamedTuple):
    """One object that a program would remove; `reason`: its own words, may be empty."""

    name: str
    size_bytes: int | None
    reason: str


class NoPlan(Exception):
    """What was printed is no plan. The message is the end of a sentence that begins with the program."""


class PlanOutput:
    """The output of a program that was asked for its plan, up to 1 MiB."""

    def __init__(self) -> None:
        self.printed = bytearray()

    def write(self, printed: bytes) -> bool:
        """False: it is too much, and the program has to be ended."""
        self.printed += printed[: MOST_BYTES + 1 - len(self.printed)]
        return len(self.printed) <= MOST_BYTES

    def end(self) -> None:
        """Nothing more comes."""

    @property
    def dropping(self) -> bool:
        """It is all of use."""
        return False


def planned_objects(printed: bytes) -> tuple[PlannedObject, ...]:
    """The objects of a plan, in its order. Raises NoPlan."""
    if len(printed) > MOST_BYTES:
        raise NoPlan(f"printed more than {MOST_BYTES} bytes")
    lines = [line for line in printed.split(b"\n") if line.strip()]
    if not lines:
        raise NoPlan("printed nothing")
    if len(lines) > MOST_LINES:
        raise NoPlan(f"printed {len(lines)} lines; allowed are {MOST_LINES}")
    return tuple(_planned_object(number, line) for number, line in enumerate(lines, 1) if line.strip() != b"{}")


def _planned_object(number: int, line: bytes) -> PlannedObject:
    if len(line) > LONGEST_LINE:
        raise NoPlan(f"printed a line {number} of {len(line)} bytes; allowed are {LONGEST_LINE}")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise NoPlan(f"printed a line {number} that is no JSON object")
    name, size, reason = value.get("name"), value.get("size"), value.get("reason", "")
    if not isinstance(name, str) or not name:
        raise NoPlan(f"printed a line {number} whose name is {_shown(name)}; allowed is a string")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LARGEST_SIZE):
        raise NoPlan(f"printed a line {number} whose size is {_shown(size)}; allowed is a whole number of bytes")
    if not isinstance(reason, str):
        raise NoPlan(f"printed a line {number} whose reason is {_shown(reason)}; allowed is a string")
    return PlannedObject(_cut(name), size, _cut(reason))


def _cut(words: str) -> str:
    """Without lone surrogates, which JSON can say and no output can print."""
    return words[:LONGEST_WORDS].encode(errors="backslashreplace").decode()


def _shown(value: Any) -> str:
    return _cut("missing" if value is None else json.dumps(value))
