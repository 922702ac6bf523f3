"""Breaks one guard or rule of the product at a time, on purpose, and looks which test notices.

    python -m tests.broken_rules [NAME …] [--to FILE] [--after FILE]

Each break (`broken_rules.toml`) is one piece of text replaced in a copy of the repository, in which the rings of
tests then run until one fails: those of its own room first, then pure ones, real nodes last; before
all of them the test that noticed it in an earlier run. Two are tried at a time. A
break that no test notices is a test that is missing, or a rule that nobody needs. A text that
is not there any more, or that is there twice, is an error: the list is of the program as it is.
So is a test that has noticed something and also fails in a copy in which nothing is broken.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.repository import ROOT

RINGS: tuple[tuple[str, ...], ...] = (
    ("tests/pure",),
    ("tests/simulation", "tests/sockets"),
    ("tests/faults", "tests/drill", "tests/budgets", "tests/real_node"),
    ("-m", "house", "tests/lab"),
)
# they are no tests of the product
OF_THE_TESTS = ("tests/pure/test_pages.py", "tests/lab/test_tools.py")
# in a copy, nothing says that packaging, pages and the lab have not changed: they would run, for minutes
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-o", "timeout=90", "-m", "not house")
SIDE_BY_SIDE = 2  # changes; each has its own copy, and a process for its tests
MADE_HERE = shutil.ignore_patterns("*.egg-info")
# at the top of the repository
NOT_COPIED = re.compile(r"\.git|\.venv.*|\.\w+_cache|\.hypothesis|\.coverage.*|dist|report")
SECONDS = 1200.0  # of one ring: a break may make something wait for ever


@dataclass(frozen=True)
class Break:
    """One change: `new` in place of `old`, which the file has once."""

    name: str
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Noticed:
    """What became of one change. `by`: the first test that failed; empty: nobody has noticed it.
    `rings`: how many of them ran."""

    by: str
    rings: int
    seconds: float


BREAKS = tuple(
    Break(name, **fields)
    for name, fields in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
)


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a break was not noticed, 2 if one could not be made or a
    test fails without any.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.broken_rules")
    parser.add_argument("names", metavar="NAME", nargs="*", help="of breaks (all)")
    parser.add_argument("--to", type=Path, help="a file for what was found, as JSON")
    parser.add_argument("--after", type=Path, help="such a file: who noticed it then comes first")
    asked = parser.parse_args(arguments)
    if unknown := {*asked.names} - {each.name for each in BREAKS}:
        parser.error(f"no break has the name {min(unknown)!r}: see broken_rules.toml")
    earlier = json.loads(asked.after.read_text()) if asked.after else {}
    chosen = [each for each in BREAKS if not asked.names or each.name in asked.names]
    if wrong := [problem for each in chosen if (problem := problem_of(each))]:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    changes = {
        each.name: partial(tried, each, tests_of(earlier.get(each.name, {}))) for each in chosen
    }
    return tell(changes, asked.to)


def tell(changes: Mapping[str, Callable[[], Noticed]], to: Path | None) -> int:
    """Makes each change, by what it is, and prints a line for it, and what nobody has noticed at the
    end; goes on where the file ended. Returns 1 if there was such a change, and 2 if a test that
    has noticed one fails without any."""
    found = json.loads(to.read_text()) if to is not None and to.exists() else {}
    waiting = [name for name in changes if name not in found]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for name, one in zip(waiting, pool.map(lambda name: changes[name](), waiting), strict=True):
            found[name] = asdict(one)
            print(f"{name}: {one.by or 'NOBODY'}", flush=True)
            if to is not None:
                to.write_text(json.dumps(found, indent=1) + "\n")
    if failed := unbroken({test for each in found.values() for test in tests_of(each)}):
        print(f"fails without any change: {failed}", file=sys.stderr)
        return 2
    missed = [name for name in found if not found[name]["by"]]
    print(f"{len(found) - len(missed)} of {len(found)} were noticed")
    print("\n".join(f"not noticed: {name}" for name in missed))
    return 1 if missed else 0


def problem_of(each: Break) -> str:
    """Why a break cannot be made, as a sentence; empty: it can."""
    count = (ROOT / each.file).read_text().count(each.old)
    told = f"{each.name}: {each.file} has {each.old!r} {count} times, and not once"
    return "" if count == 1 else told


def tests_of(each: Mapping[str, Any]) -> list[str]:
    """The test that has noticed a change, if it is known by its name."""
    word, _, test = str(each.get("by", "")).partition(" ")
    return [test] if word in ("FAILED", "ERROR") else []


def tried(each: Break, first: Sequence[str] = ()) -> Noticed:
    """Makes the break in a copy: these tests come first, and then those of its room."""
    text = (ROOT / each.file).read_text().replace(each.old, each.new)
    return noticed(each.file, text.encode(), (first, of_its_room(each.file), *RINGS))


def of_its_room(file: str) -> list[str]:
    """The folders of tests whose name a file of the product has in its path."""
    folders = [path for ring in ("tests/pure", "tests/sockets") for path in (ROOT / ring).iterdir()]
    return sorted(
        str(path.relative_to(ROOT)) for path in folders if path.is_dir() and path.name in file
    )


def noticed(
    file: str, text: bytes, rings: Sequence[Sequence[str]], seconds: float = math.inf
) -> Noticed:
    """Writes this text to a file of a copy, and runs one ring after the other until a test fails, or
    so much time is over."""
    began, by, ran = time.monotonic(), "", 0
    with copied() as copy:
        (copy / file).write_bytes(text)
        for ring in filter(None, rings):
            left = seconds - (time.monotonic() - began)
            if by or left <= 0:
                break
            by = failure(copy, ring, min(left, SECONDS))
            ran += 1
    return Noticed(by, ran, round(time.monotonic() - began, 1))


def unbroken(tests: Iterable[str]) -> str:
    """The first of these that fails in a copy in which nothing is broken; empty: none does. It
    would notice anything."""
    with copied() as copy:
        return failure(copy, ("-m", "house or not house", *sorted(tests)))


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the repository, without what is made in it."""
    with tempfile.TemporaryDirectory(prefix="broken-") as directory:
        copy = Path(directory)
        copy.chmod(0o755)  # tests also run the program as another user
        for path in ROOT.iterdir():
            if NOT_COPIED.fullmatch(path.name):
                continue
            if path.is_dir():
                shutil.copytree(path, copy / path.name, ignore=MADE_HERE)
            else:
                shutil.copy(path, copy)
        yield copy


def failure(copy: Path, ring: Sequence[str], seconds: float = SECONDS) -> str:
    """The first test of a ring that fails in the copy, within this time; empty if all pass, and if
    there is none of this name. Programs that tests start run from it too.
    """
    environment = {**os.environ, "PYTHONPATH": str(copy), "PROPERTY_EXAMPLES": "25"}
    command = [sys.executable, "-m", "pytest", *OPTIONS]
    try:
        run = subprocess.run(
            [*command, *(f"--ignore={name}" for name in OF_THE_TESTS), *ring],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it does not end" if seconds == SECONDS else ""
    failed = re.search(r"^(FAILED|ERROR) .*?(?= - |$)", run.stdout, re.MULTILINE)
    if failed is None and run.returncode and "ERROR: not found: " not in run.stderr:
        return run.stdout[-300:] + run.stderr[-300:]
    return failed[0] if failed else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
