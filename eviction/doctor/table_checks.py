"""Checks of the reclaim table and of the functions that the configuration adds."""

from __future__ import annotations

from collections.abc import Iterator

from eviction.doctor.findings import Finding, NodeFacts, RowFacts, Severity
from signals.types import FilesystemRole


def check_rows(facts: NodeFacts) -> Iterator[Finding]:
    """Rows that are empty, that nothing calls, or whose functions free space elsewhere."""
    marked = {threshold.signal for threshold in facts.thresholds}
    for row in facts.rows:
        if row.signal in marked and not row.functions:
            yield _empty(row)
        if row.signal not in marked and row.configured:
            yield Finding(
                "row-unused",
                Severity.RISK,
                f"nothing calls the row of {row.signal}",
                f"{row.signal} is in reclaimTable and has no threshold",
                f"set evictionHard {row.signal}, or remove the row",
            )
        yield from _elsewhere(row, facts)


def _empty(row: RowFacts) -> Finding:
    kubelets = row.signal.filesystem.kubelets and not row.configured
    return Finding(
        "row-empty",
        Severity.NOTE if kubelets else Severity.PROBLEM,
        f"nothing relieves {row.signal}: its row of the reclaim table is empty",
        "in this layout the kubelet's own row is empty too" if kubelets else "no function is in its row",
        f"name functions for {row.signal} in reclaimTable",
    )


def _elsewhere(row: RowFacts, facts: NodeFacts) -> Iterator[Finding]:
    """Only of configured rows: the built-in ones follow the layout."""
    here = _device(facts, row.signal.filesystem)
    for name, frees in row.functions if row.configured else ():
        there = None if frees is None else _device(facts, FilesystemRole(frees))
        if here is not None and there is not None and here != there:
            yield Finding(
                "row-elsewhere",
                Severity.RISK,
                f"{name} frees nothing where {row.signal} is short",
                f"it frees on {frees}, which is another filesystem than {row.signal.filesystem}",
                f"put it into a row of {frees}, or correct frees of {name}",
            )


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


def _device(facts: NodeFacts, role: FilesystemRole) -> int | None:
    found = facts.observations.filesystems.get(role)
    return None if found is None else found[0].device_id
