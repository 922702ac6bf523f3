"""What is wrong with rows of the reclaim table, as the node is now. Pure.

Covers: rows that are empty, that nothing calls, or whose functions free space elsewhere. Does not cover: names that
nothing has, which the configuration refuses, and functions that cannot be called (`node.node`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from signals.types import FilesystemRole, Signal, SignalObservations, in_order


class RowTrouble(StrEnum):
    """`empty`: no function relieves the signal. `unused`: it has no threshold. `elsewhere`: a function frees on another
    filesystem."""

    EMPTY = "empty"
    UNUSED = "unused"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class RowFacts:
    """The row of a signal: each function with the role of the filesystem on which it frees (None: on any).
    `configured`: whether it is the configuration's."""

    signal: Signal
    functions: tuple[tuple[str, str | None], ...]
    configured: bool = False


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One problem: a sentence, what shows it, and what to do. `kubelets`: the row is as the kubelet's own."""

    trouble: RowTrouble
    sentence: str
    evidence: str
    remedy: str
    kubelets: bool = False


def rows_of(
    rows: Mapping[Signal, tuple[str, ...]], configured: Collection[Signal], frees: Mapping[str, str | None]
) -> tuple[RowFacts, ...]:
    """The facts of these rows. `frees`: by the name of each function, the filesystem on which it frees."""
    return tuple(
        RowFacts(signal, tuple((name, frees.get(name)) for name in rows[signal]), configured=signal in configured)
        for signal in in_order(rows)
    )


def row_problems(
    rows: Iterable[RowFacts], marked: Collection[Signal], observations: SignalObservations
) -> Iterator[RowProblem]:
    """The problems of these rows. `marked`: the signals that have a threshold."""
    for row in rows:
        if row.signal in marked and not row.functions:
            yield _empty(row)
        if row.signal not in marked and row.configured:
            yield RowProblem(
                RowTrouble.UNUSED,
                f"nothing calls the row of {row.signal}",
                f"{row.signal} is in reclaimTable and has no threshold",
                f"set evictionHard {row.signal}, or remove the row",
            )
        yield from _elsewhere(row, observations)


def _empty(row: RowFacts) -> RowProblem:
    kubelets = row.signal.filesystem.kubelets and not row.configured
    return RowProblem(
        RowTrouble.EMPTY,
        f"nothing relieves {row.signal}: its row of the reclaim table is empty",
        "in this layout the kubelet's own row is empty too" if kubelets else "no function is in its row",
        f"name functions for {row.signal} in reclaimTable",
        kubelets,
    )


def _elsewhere(row: RowFacts, observations: SignalObservations) -> Iterator[RowProblem]:
    """Only of configured rows: the built-in ones follow the layout."""
    here = _device(observations, row.signal.filesystem)
    for name, frees in row.functions if row.configured else ():
        there = None if frees is None else _device(observations, FilesystemRole(frees))
        if here is not None and there is not None and here != there:
            yield RowProblem(
                RowTrouble.ELSEWHERE,
                f"{name} frees nothing where {row.signal} is short",
                f"it frees on {frees}, which is another filesystem than {row.signal.filesystem}",
                f"put it into a row of {frees}, or correct frees of {name}",
            )


def _device(observations: SignalObservations, role: FilesystemRole) -> int | None:
    found = observations.filesystems.get(role)
    return None if found is None else found[0].device_id
