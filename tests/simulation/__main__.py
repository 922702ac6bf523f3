"""Runs the whole daemon in simulated worlds.

    python -m tests.simulation                       seeds one after another, for a minute
    python -m tests.simulation --for 3600 --from 7   for an hour, from seed 7 on (--keep-going: whatever is found)
    python -m tests.simulation 7 --hours 0.5         one seed; prints the hash of its trace
    python -m tests.simulation 7 --trace             and the end of its trace

A seed that fails is printed with the command that repeats it, and made short.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter

from tests.simulation.run import Bench, Result
from tests.simulation.shrink import shrink

HOURS = 1.0
HASH_SEED = "0"  # of sets of texts, whose order a trace may show


def main() -> int:
    """Exit code 1: something was wrong."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])  # noqa: S606 # itself
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
    made = Bench()
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
        short = shrink(made, result, lambda progress: print(progress, flush=True))
        print(
            f"{len(short.entries)} of its {result.entries} entries are enough ({short.runs} runs):"
        )
        print("\n".join(map(str, short.entries)))
        print(f"then, after {short.result.at:.1f} s: {short.result.problem}")
    return 1


sys.exit(main())
