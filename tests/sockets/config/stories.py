"""Stories of the shell: what each command prints stands behind it in a file, compared whole."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.expected import expect

TOLD = Path(__file__).with_name("told")


def stories_in(*names: str) -> list[Any]:
    """Parameters: each story of these files, by its place; its id is its first line, and with
    `(soak)` at the end of that it waits for a soak."""
    by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    found = []
    for name in names:
        for number, story in enumerate((TOLD / name).read_text().split("\n\n")):
            title = story.splitlines()[0].removeprefix("# ")
            marks = [by_root] * ("chown" in story) + [pytest.mark.soak] * title.endswith("(soak)")
            found.append(pytest.param(name, number, id=title, marks=marks))
    return found


def in_shell(directory: Path, variables: Mapping[str, str]) -> Callable[[str], tuple[int, str]]:
    """What runs a line of the shell there, with these variables and those of the tests: its exit
    code, and what it prints on both outputs."""

    def run(line: str) -> tuple[int, str]:
        process = subprocess.run(
            ["sh", "-uc", f"exec 2>&1\n{line}"],
            cwd=directory,
            env={**os.environ, "LC_ALL": "C", **variables},
            stdout=subprocess.PIPE,
            text=True,
            umask=0o022,
        )
        return process.returncode, process.stdout

    return run


def assert_told(
    name: str, number: int, run: Callable[[str], tuple[int, str]], hidden: Mapping[str, str]
) -> None:
    """The story's commands have the outcome that is told there. `UPDATE=1` writes it anew.

    `run`: runs a line of the shell; its exit code, and what it prints on both outputs. `hidden`:
    pattern -> what stands for it in the file.
    """
    stories = (TOLD / name).read_text().rstrip("\n").split("\n\n")
    lines = []
    for line in stories[number].splitlines():
        if not line.startswith("  "):
            lines.append(line)
        if line.startswith("$ "):
            code, printed = run(line.removeprefix("$ "))
            for pattern, placeholder in hidden.items():
                printed = re.sub(pattern, placeholder, printed)
            lines += [f"  {each}".rstrip() for each in printed.splitlines() if each.strip()]
            lines += [f"  exit {code}"] * bool(code)
    stories[number] = "\n".join(lines)
    expect(TOLD / name, "\n\n".join(stories) + "\n")
