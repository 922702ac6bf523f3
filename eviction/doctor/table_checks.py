"""Checks of the reclaim table and of the functions that the configuration adds."""

from __future__ import annotations

from collections.abc import Iterator

from eviction.doctor.findings import Finding, NodeFacts, Severity
from eviction.reporting.table_problems import RowTrouble, row_problems


def check_rows(facts: NodeFacts) -> Iterator[Finding]:
    """Rows that are empty, that nothing calls, or whose functions free space elsewhere."""
    marked = {threshold.signal for threshold in facts.thresholds}
    for problem in row_problems(facts.rows, marked, facts.observations):
        level = Severity.PROBLEM if problem.trouble is RowTrouble.EMPTY else Severity.RISK
        level = Severity.NOTE if problem.kubelets else level
        yield Finding(f"row-{problem.trouble}", level, problem.sentence, problem.evidence, problem.remedy)


def check_functions(facts: NodeFacts) -> Iterator[Finding]:
    """Functions of the configuration that cannot be called as things are."""
    for name, problem in facts.function_problems:
        yield Finding(
            "function",
            Severity.PROBLEM,
            f"{name} cannot do anything",
            problem,
            f"correct it, or take {name} out of reclaimFunctions and reclaimTable",
        )
