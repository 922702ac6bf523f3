"""Pages whose console blocks are commands with what they print: read, compared
with a run, and written anew.

In a block a line that begins with a prompt (`$ ` or `# `) is a command, which lines that begin with
`> ` continue, and the lines below it are what it prints. A line `…` among them stands for one other or more: those before the first `…` are
the first that were printed, those after the last one are the last, and those between two follow
each other somewhere in between.

Covers: blocks, the comparison, the page with other outputs. Does not cover: how a command is run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROMPTS = ("$ ", "# ")
CONTINUED = "> "
LEFT_OUT = "…"
BETWEEN = re.compile(f"^{LEFT_OUT}\n", re.MULTILINE)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = (
    (re.compile(r"\b(?:watch|interval)\b"), "LOOK"),  # whichever saw it first
    (re.compile(r"\b(object|inode)s\b"), r"\1"),  # as their number is
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{12,64}\b"), "ID"),
    (re.compile(r"linux_[a-z0-9_]+?(?=-cp)"), "PLATFORM"),
    (re.compile(r"(?:\d+(?:\.\d+)?(?:[KMGT]iB|B|us|ms|[hmsd%])?)+"), "#"),
)


@dataclass(frozen=True)
class Step:
    """A command of a page, without its prompt, and the lines that it is shown to print."""

    prompt: str
    command: str
    shown: tuple[str, ...]

    def text(self) -> str:
        """As it stands in the block."""
        typed = self.command.replace("\n", f"\n{CONTINUED}")
        return "".join(f"{line}\n" for line in (f"{self.prompt}{typed}", *self.shown))

    def is_what_was(self, printed: Sequence[str]) -> bool:
        """Whether the shown lines are those that were printed, but for what varies."""
        try:
            now = self.shortened(printed)
        except ValueError:
            return False
        return [*map(masked, now)] == [*map(masked, self.shown)]

    def shortened(self, printed: Sequence[str]) -> tuple[str, ...]:
        """What was printed, with as many of the first lines, of the last, and of each part between
        as are shown. A part is where all of its lines are, else where its first is. Raises
        ValueError if such a first line was not printed."""
        first, *others = self._parts()
        if not others:
            return tuple(printed)
        *middle, last = others
        kept, position = list(printed[: len(first)]), len(first)
        now, end = [*map(masked, printed)], len(printed) - len(last)
        for part in middle:
            wanted = [*map(masked, part)]
            found = next(
                (
                    place
                    for lines in (len(part), 1)
                    for place in range(position + 1, end)
                    if now[place : place + lines] == wanted[:lines]
                ),
                None,
            )
            if found is None:
                raise ValueError(f"{self.command} does not print: {part[0]}")
            position = found + len(part)
            kept += [LEFT_OUT, *printed[found:position]]
        if position >= end:  # there is nothing to leave out
            return tuple(printed)
        return (*kept, LEFT_OUT, *printed[end:])

    def _parts(self) -> list[tuple[str, ...]]:
        """The shown lines before, between and after the `…`."""
        text = "".join(f"{line}\n" for line in self.shown)
        return [tuple(part.splitlines()) for part in BETWEEN.split(text)]


def masked(line: str) -> str:
    """A line without what varies from run to run: amounts, times, ids, and how
    columns are padded.
    """
    for pattern, word in VARIES:
        line = pattern.sub(word, line)
    return " ".join(line.split())


def steps_of(page: Path) -> list[Step]:
    """The commands of all its blocks, in their order."""
    return [step for block in BLOCK.findall(page.read_text()) for step in _steps(block)]


def _steps(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith(PROMPTS):
            found.append(Step(line[:2], line[2:], ()))
        elif line.startswith(CONTINUED) and not found[-1].shown:
            continued = f"{found[-1].command}\n{line.removeprefix(CONTINUED)}"
            found[-1] = Step(found[-1].prompt, continued, ())
        else:
            found[-1] = Step(found[-1].prompt, found[-1].command, (*found[-1].shown, line))
    return found


def with_outputs(page: Path, outputs: Sequence[Sequence[str]]) -> str:
    """The text of a page in which each command, in their order, is shown to print this,
    as short as it was before.
    """
    left = iter(outputs)

    def block(match: re.Match[str]) -> str:
        steps = [
            Step(step.prompt, step.command, step.shortened(next(left))) for step in _steps(match[1])
        ]
        return f"```console\n{''.join(step.text() for step in steps)}```"

    return BLOCK.sub(block, page.read_text())
