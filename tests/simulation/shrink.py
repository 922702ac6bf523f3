"""Makes a failing run short: fewer entries of its time line, then shorter times, as long
as it fails the same way.

Delta debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
Input): whole halves first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.run import Bench, Result
from tests.simulation.timeline import Entry, timeline

MOST_RUNS = 150
_NUMBERS = re.compile(r"\(.*|\b[0-9a-f]*\d[\w.]*|\bp[0-9a-f]+\b")


def the_same(result: Result) -> str:
    """What is wrong, without what differs from run to run."""
    return f"{result.kind} {_NUMBERS.sub('#', result.problem)[:40]}"


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The shortest run that was found, its entries, and how many runs that took."""

    result: Result
    entries: tuple[Entry, ...]
    runs: int


def shrink(
    bench: Bench,
    failed: Result,
    say: Callable[[str], object] = lambda _: None,
    most_runs: int = MOST_RUNS,
) -> Shrunk:
    """The same failure with as little as possible around it."""
    hours = failed.hours
    if failed.at < hours * 3600:  # what comes later has nothing to do with it
        hours = failed.at / 3600 + 1e-6
    entries = tuple(each for each in timeline(failed.seed, failed.hours) if each.at <= hours * 3600)
    wrong, runs, best = the_same(failed), 0, failed

    def fails(some: Sequence[Entry]) -> bool:
        nonlocal runs, best
        runs += 1
        result = bench.run(failed.seed, hours, some)
        if result.problem and the_same(result) == wrong:
            best = result
            return True
        return False

    parts = 2
    while len(entries) > 1 and runs < most_runs:
        size = max(len(entries) // parts, 1)
        for start in range(0, len(entries), size):
            rest = entries[:start] + entries[start + size :]
            if runs < most_runs and fails(rest):
                entries, parts = rest, max(parts - 1, 2)
                say(f"{len(entries)} entries are enough")
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(entries))
    for place, entry in enumerate(entries):
        for factor in (0.1, 0.5):
            shorter = entry._replace(seconds=entry.seconds * factor)
            if (
                entry.seconds > 1.0
                and runs < most_runs
                and fails((*entries[:place], shorter, *entries[place + 1 :]))
            ):
                entries = (*entries[:place], shorter, *entries[place + 1 :])
                break
    return Shrunk(best, entries, runs)
