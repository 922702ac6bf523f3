"""Commands and what they print, as one text that is compared whole with a file beside the test."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from tests.expected import expect
from tests.reclaimd_process import answer, reclaimd_here

VARIES = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
    (r"\b(sha256:)?[0-9a-f]{12,64}\b", "ID"),
    (r'("pid": )\d+', r"\1PID"),
    (r'(seconds": )[\d.e-]+', r"\1SECONDS"),
    (r"(?<![\w.])(\d+(\.\d+)? ?(ms|s|m|h|d))+\b", "AGE"),
    (r" \[Errno -?\d+\]| {2,}(?=\S)(?<!\n {2})", "  "),
)
"""What differs from run to run, and how columns are padded."""


def normalized(
    text: str, known: Mapping[str, str], varies: Sequence[tuple[str, str]] = VARIES
) -> str:
    """The text with a word in place of what varies. `known`: words for paths."""
    for name, path in known.items():
        text = text.replace(path, name)
    for pattern, word in varies:
        text = re.sub(pattern, word, text)
    return text


def console(
    known: Mapping[str, str],
    *commands: str,
    run: Callable[..., CompletedProcess[str]] = reclaimd_here,
    varies: Sequence[tuple[str, str]] = VARIES,
) -> str:
    """Each command with what it printed, stderr behind `! `, and its exit code if that is not 0.

    A document must be as its schema says. Words of `known` stand for paths in commands, too.
    """
    said = ""
    for command in commands:
        words = shlex.split(command)
        for name, path in known.items():
            words = [word.replace(name, path) for word in words]
        done = run(*words)
        if done.stdout.startswith("{"):
            answer(done)
        errors = "".join(f"! {line}\n" for line in done.stderr.splitlines())
        code = f"[exit {done.returncode}]\n" if done.returncode else ""
        said += f"$ reclaimd {command}\n{normalized(done.stdout + errors + code, known, varies)}\n"
    return said


def commands_in(path: Path) -> list[str]:
    """The commands of a file of such texts."""
    return re.findall(r"^\$ reclaimd (.*)$", path.read_text(), re.MULTILINE)


def expect_console(
    path: Path,
    known: Mapping[str, str],
    run: Callable[..., CompletedProcess[str]] = reclaimd_here,
    varies: Sequence[tuple[str, str]] = VARIES,
) -> None:
    """The commands that the file names print what it says."""
    expect(path, console(known, *commands_in(path), run=run, varies=varies))
