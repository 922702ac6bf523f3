"""A plugin in memory: crates on a shelf, each of which can be told how to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reclaim.execution.executor import Executor, never_relieved
from reclaim.function import ReclaimFunction
from reclaim.functions import Call
from reclaim.plugins import Found, ReclaimPlugin
from reclaim.types import MeasureDisk, ReclaimResult
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, SteppedClock

NOTHING: Any = None
Answers = Mapping[str, Callable[[], Any]]


class Shelf:
    """Crates of 1 MiB, by name; a name that begins with `kept` stays. `checks`, `removals` and `presences`: what is
    answered for a crate instead of the truth. `removed`: what `remove` was called for."""

    def __init__(self, names: Iterable[str], *, checks: Answers = {}, removals: Answers = {}, presences: Answers = {}):  # noqa: B006 # never written
        self.kinds = ("crate", "box")
        self.names = list(names)
        self.removed: list[str] = []
        self._checks, self._removals, self._presences = checks, removals, presences

    def plan(self) -> Iterable[Found]:
        """All of them, by name."""
        for name in self.names:
            kept = name.startswith("kept")
            yield Found(name, not kept, "fragile" if kept else "dusty", size_bytes=MIB)

    def check(self, found: Found) -> bool | str:
        """Whether it is on the shelf."""
        return self._checks.get(found.id, lambda: found.id in self.names)()  # type: ignore[no-any-return]

    def remove(self, found: Found) -> bool | None:
        """Takes it down."""
        self.removed.append(found.id)
        if found.id in self._removals:
            return self._removals[found.id]()  # type: ignore[no-any-return]
        self.names.remove(found.id)
        return None

    def present(self, found: Found) -> bool:
        """Whether it is on the shelf."""
        return self._presences.get(found.id, lambda: found.id in self.names)()  # type: ignore[no-any-return]


def raised(error: BaseException) -> Callable[[], Any]:
    """An answer that is none."""

    def answer() -> Any:
        raise error

    return answer


def call(
    executor: Executor, clock: SteppedClock, function: ReclaimFunction, measure: MeasureDisk = never_relieved
) -> ReclaimResult:
    """One call of a function on a node without anything."""
    return Call(function, context_of(MemoryRuntime(clock), clock, executor=executor)).run(measure)


A_PLUGIN: ReclaimPlugin = Shelf(())  # to the type checker: what an author writes is a plugin
