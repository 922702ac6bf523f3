"""Reverts one mend or one guard at a time in a copy of the tree, and says
whether the simulation finds it.

    python -m tests.simulation.reverted [NAME …] [--seeds 200] [--hours 0.1]

They stand in `reverted.toml`. A text that is not there exactly once is an error: the list is of
the program as it is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.broken_rules import Noticed, copied, tell
from tests.repository import ROOT

Revert = dict[str, Any]
"""A table of `reverted.toml`."""

REVERTS: dict[str, Revert] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@contextmanager
def tree_with(revert: Revert) -> Iterator[Path]:
    """A copy of the tree with this one change, while the `with` block lasts.

    Raises ValueError if the text is not there exactly once.
    """
    with copied() as made:
        for file, text in changed(revert).items():
            (made / file).write_text(text, encoding="utf-8")
        yield made


def simulation(*arguments: str, tree: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation` in a tree, in a process with the order of sets that it has
    there."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(tree)}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def changed(revert: Revert) -> dict[str, str]:
    """Its files with the change. Raises ValueError if a text is not there exactly once."""
    texts: dict[str, str] = {}
    for change in (revert, *revert.get("also", ())):
        file, old = change["file"], change["old"]
        text = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{file}: {old!r} is there {text.count(old)} times")
        texts[file] = text.replace(old, change["new"])
    return texts


def found(revert: Revert, seeds: int, hours: float) -> Noticed:
    """What the simulation says of it, if anything."""
    arguments = ("--from", "1", "--runs", str(seeds), "--hours", str(hours), "--no-shrink")
    began = time.monotonic()
    with tree_with(revert) as tree:
        ran = simulation(*arguments, tree=tree)
    said = (ran.stdout.strip().splitlines() or [ran.stderr.strip()[-300:]])[0][:300]
    return Noticed(said if ran.returncode else "", 1, round(time.monotonic() - began, 1))


def main() -> int:
    """Exit code 1: something is not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.reverted", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", help="these alone")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--hours", type=float, default=0.1)
    given = parser.parse_args()
    chosen = {
        name: partial(found, revert, given.seeds, given.hours)
        for name, revert in REVERTS.items()
        if not given.names or name in given.names
    }
    return tell(chosen, None)


if __name__ == "__main__":
    sys.exit(main())
