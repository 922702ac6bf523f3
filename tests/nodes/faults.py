"""Ways in which a method misbehaves, each with a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from eviction.drill import runtime
from eviction.drill.runtime import first_half

CODES = {code.name: code for code in grpc.StatusCode if code is not grpc.StatusCode.OK}


@dataclass
class Failpoint(runtime.Failpoint):
    """The base of those: a subclass says what happens."""

    acts: bool = field(default=True, init=False)
    seconds: float | None = field(default=0.0, init=False)
    change: Callable[[Any], Any] | None = field(default=None, init=False)
    code: grpc.StatusCode | None = field(default=None, init=False)
    message: str = field(default="", init=False)


@dataclass
class Fail(Failpoint):
    """Calls fail and do nothing."""

    acts = False
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "failed on purpose"


@dataclass
class ActThenFail(Failpoint):
    """Calls act and then answer with an error: that does not mean that nothing was done."""

    code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED
    message: str = "done, and failed on purpose"


@dataclass
class Pretend(Failpoint):
    """Calls do nothing and report success: the caller must not conclude that anything was done."""

    acts = False


@dataclass
class Delay(Failpoint):
    """Calls start `seconds` late, or at once when the failpoint is deleted or replaced."""

    seconds: float


@dataclass
class Hang(Failpoint):
    """Calls start only when the failpoint is deleted or replaced."""

    seconds = None


@dataclass
class Cut(Failpoint):
    """Calls act, send the first half of their list, and end with an error."""

    change = staticmethod(first_half)
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "the stream was cut on purpose"
