"""The code of the guide "How to add a reclaim function" runs as it is printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reclaim.clock
import reclaim.execution.remover
import reclaim.execution.stages
import reclaim.functions
import reclaim.types
from reclaim.execution.executor import Executor
from reclaim.execution.stages import never_relieved
from reclaim.functions import FUNCTIONS, Collector, ReclaimContext
from reclaim.images.records import ImageRecords
from reclaim.types import Result
from tests.pages import RECLAIM, code_blocks
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, SteppedEvent

IMPORTED = (reclaim.clock, reclaim.execution.remover, reclaim.execution.stages, reclaim.functions, reclaim.types)


@dataclass(frozen=True)
class PoliciesWithBallast:
    """The field of Policies that the guide adds."""

    ballast_directory: str


def test_the_function_of_the_guide_removes_its_files(tmp_path: Path) -> None:
    """Its blocks, one after the other: the table has the new function, and a call of it removes both files."""
    names: dict[str, Any] = {"os": os, "Mapping": Mapping}
    for module in IMPORTED:
        names |= vars(module)
    for block in code_blocks(RECLAIM, "python"):
        exec(block, names)  # noqa: S102 # the code of our own page
    assert set(names["FUNCTIONS"]) == set(FUNCTIONS) | {"ReleaseBallast"}
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x")
    clock = SteppedClock()
    runtime = MemoryRuntime(clock)
    context = ReclaimContext(
        runtime,
        runtime,
        MemoryPods(),
        ImageRecords(),
        Executor(clock, SteppedEvent(clock)),
        clock,
        PoliciesWithBallast(str(tmp_path)),  # type: ignore[arg-type] # only what the guide's function reads
        None,  # type: ignore[arg-type] # it reads no logs
    )
    result = Collector(context, names["FUNCTIONS"]).call("ReleaseBallast", never_relieved)
    outcomes = [(outcome.verdict.id, outcome.result) for outcome in result.outcomes]
    assert (outcomes, result.error) == ([("a", Result.REMOVED), ("b", Result.REMOVED)], "")
    assert os.listdir(tmp_path) == []
