"""What every injector has: the life of one fault on one bench."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench
    from tests.faults.matrix.program import Program


class Injector:
    """One resource of one bench, whole until `begin`.

    `fields`: of the configuration. `from_the_start`: the fault has to begin before the program,
    whatever its name. `undo`: what ends the fault, or lets go what still hangs.
    """

    from_the_start = False

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.row = bench.row
        self.fault = bench.row.fault
        self.fields: dict[str, Any] = {}
        self.undo, self.at_last = ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def prepare(self, program: Program) -> None:
        """Before the program starts: how it is started."""

    def begin(self) -> None:
        """The fault begins. The program runs already, except at `absent-at-start`."""
        raise NotImplementedError

    def end(self) -> None:
        """The fault ends."""
        self.undo.close()

    def problems(self) -> list[str]:
        """What is wrong with the resource itself after the fault, beside what
        every row promises.
        """
        return []

    def release(self) -> None:
        """Whatever still hangs is let go, and nothing is left behind. May be called twice."""
        self.undo.close()
        self.at_last.close()
