"""Faults of single methods as values: how a method misbehaves.

Does not cover: injecting faults; see `Failpoints` in `server`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

CODES = {code.name: code for code in grpc.StatusCode if code is not grpc.StatusCode.OK}


def first_half(answer: Any) -> Any:
    """A copy of the answer with the first half of its list."""
    changed = copy.deepcopy(answer)
    for known, entries in changed.ListFields():
        if known.name != "info" and hasattr(entries, "add"):
            del entries[(len(entries) + 1) // 2 :]
    return changed


@dataclass(frozen=True)
class Failpoint:
    """What happens to the next `times` calls (None: to all): a call starts `seconds` late (None:
    when the failpoint is deleted or replaced), acts or does nothing (`acts`), and gets a wrong
    answer (`change` makes it of the true one), an error (`code`), or, with both, the wrong
    answer and then the error."""

    acts: bool = field(default=True, init=False)
    seconds: float | None = field(default=0.0, init=False)
    change: Callable[[Any], Any] | None = field(default=None, init=False)
    code: grpc.StatusCode | None = field(default=None, init=False)
    message: str = field(default="", init=False)
    times: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Fail(Failpoint):
    """Calls fail and do nothing."""

    acts = False
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "failed on purpose"


@dataclass(frozen=True)
class ActThenFail(Failpoint):
    """Calls act and then answer with an error: that does not mean that nothing was done."""

    code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED
    message: str = "done, and failed on purpose"


@dataclass(frozen=True)
class Pretend(Failpoint):
    """Calls do nothing and report success: the caller must not conclude that anything was done."""

    acts = False


@dataclass(frozen=True)
class Delay(Failpoint):
    """Calls start `seconds` late, or at once when the failpoint is deleted or replaced."""

    seconds: float


@dataclass(frozen=True)
class Hang(Failpoint):
    """Calls start only when the failpoint is deleted or replaced."""

    seconds = None


@dataclass(frozen=True)
class Cut(Failpoint):
    """Calls act, send the first half of their list, and end with an error."""

    change = staticmethod(first_half)
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "the stream was cut on purpose"
