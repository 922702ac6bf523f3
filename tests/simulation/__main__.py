"""Runs the whole daemon in simulated worlds.

    python -m tests.simulation                       seeds one after another, for a minute
    python -m tests.simulation --for 3600 --from 7   for an hour, from seed 7 on (--keep-going: whatever is found)
    python -m tests.simulation 7 --hours 0.5         one seed; prints the hash of its trace
    python -m tests.simulation 7 --trace             and the end of its trace

A seed that fails is printed with the command that repeats it, and made short: fewer entries of its
time line, then shorter times, as long as it fails the same way. By delta debugging (Zeller and
Hildebrandt, Simplifying and Isolating Failure-Inducing Input): whole halves first.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.run import Bench, Result
from tests.simulation.timeline import Entry, timeline

HOURS = 1.0
MOST_RUNS = 150
_NUMBERS = re.compile(r"\(.*|\b[0-9a-f]*\d[\w.]*|\bp[0-9a-f]+\b")
HASH_SEED = "0"  # of sets of texts, whose order a trace may show


def main(made: Bench) -> int:
    """Exit code 1: something was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Simulates the whole daemon."
    )
    parser.add_argument("seed", type=int, nargs="?", help="run this one alone")
    parser.add_argument(
        "--hours", type=float, default=HOURS, help="how long a run lasts in its own time"
    )
    parser.add_argument(
        "--for", type=float, default=60.0, dest="seconds", help="begin runs for so many seconds"
    )
    parser.add_argument("--runs", type=int, default=0, help="so many runs, however long that takes")
    parser.add_argument(
        "--from", type=int, dest="first", help="the first seed; a random one otherwise"
    )
    parser.add_argument("--trace", action="store_true", help="print the end of the trace")
    parser.add_argument("--no-shrink", action="store_true", help="leave a failing run as it is")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failing run")
    given = parser.parse_args()
    if given.seed is not None:
        result = made.run(given.seed, given.hours)
        print(f"seed {given.seed}: {result.hash}")
        if given.trace:
            print("\n".join(result.tail))
        print(_in_words(result.counts))
        return _tell(made, result, shorten=not given.no_shrink) if result.problem else 0
    first = random.SystemRandom().randrange(1 << 32) if given.first is None else given.first
    return _run_many(made, given, first)


def _run_many(made: Bench, given: argparse.Namespace, first: int) -> int:
    began, seed, counts, hours, violations = time.monotonic(), first, Counter[str](), 0.0, 0
    trace = ""
    while (seed - first < given.runs) if given.runs else (time.monotonic() - began < given.seconds):
        result = made.run(seed, given.hours)
        counts += result.counts
        trace = result.hash
        hours += result.at / 3600
        seed += 1
        if result.problem:
            violations += 1
            print(f"{hours:.2f} hours: ", end="")
            _tell(made, result, shorten=not given.no_shrink)
            if not given.keep_going:
                return 1
    minutes = (time.monotonic() - began) / 60
    speed = hours / max(minutes, 1e-9)
    print(
        f"seeds {first} to {seed - 1}: {hours:.1f} hours, {speed:.0f} a minute, {violations}"
        f" violations; the last trace {trace}"
    )
    print(_in_words(counts))
    return 1 if violations else 0


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def _tell(made: Bench, result: Result, *, shorten: bool) -> int:
    print(f"seed {result.seed}, after {result.at:.1f} s: {result.problem}")
    print(f"again: python -m tests.simulation {result.seed} --hours {result.hours:g}", flush=True)
    if shorten:
        short = shrink(made, result)
        print(
            f"{len(short.entries)} of its {result.entries} entries are enough ({short.runs} runs):"
        )
        print("\n".join(map(str, short.entries)))
        print(f"then, after {short.result.at:.1f} s: {short.result.problem}")
    return 1


def the_same(result: Result) -> str:
    """What is wrong, without what differs from run to run."""
    return f"{result.kind} {_NUMBERS.sub('#', result.problem)[:40]}"


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The shortest run that was found, its entries, and how many runs that took."""

    result: Result
    entries: tuple[Entry, ...]
    runs: int


def shrink(bench: Bench, failed: Result) -> Shrunk:
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
    while len(entries) > 1 and runs < MOST_RUNS:
        size = max(len(entries) // parts, 1)
        for start in range(0, len(entries), size):
            rest = entries[:start] + entries[start + size :]
            if runs < MOST_RUNS and fails(rest):
                entries, parts = rest, max(parts - 1, 2)
                print(f"{len(entries)} entries are enough", flush=True)
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
                and runs < MOST_RUNS
                and fails((*entries[:place], shorter, *entries[place + 1 :]))
            ):
                entries = (*entries[:place], shorter, *entries[place + 1 :])
                break
    return Shrunk(best, entries, runs)


if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])  # noqa: S606 # itself
with tempfile.TemporaryDirectory(prefix="reclaimd-simulation-") as directory:
    sys.exit(main(Bench(Path(directory))))
