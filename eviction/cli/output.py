"""The output of a command: its answer on stdout, as a document or as lines for people, and the
sentence with which it ends."""

import json
import os
import re
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from eviction.cli.progress import mention, print_message
from eviction.cli.streams import write_out
from eviction.exit_codes import EXIT_READING
from eviction.printable import escaped
from eviction.records.json_shapes import to_json
from eviction.types import Fields
from signals.quantity import reason_of

if TYPE_CHECKING:
    from eviction.surface.answer import Answer
    from signals.types import SignalObservations

# The first words of lines that are in colour, if a gap follows.
COLOUR_OF = {
    **dict.fromkeys(("kept", "keep", "spared", "ok"), "\x1b[32m"),  # green
    **dict.fromkeys(("removed", "planned", "WARNING"), "\x1b[33m"),  # yellow
    **dict.fromkeys(("failed", "NOT", "ERROR"), "\x1b[1;31m"),  # bold red
    "NOTE": "\x1b[2m",  # faint
}
color = "auto"  # of the command line
PLAIN = "\x1b[0m"
COLOURED = re.compile(rf"^(?:{'|'.join(COLOUR_OF)})(?=  )")


def exit_with(code: int, sentence: str) -> NoReturn:
    """Ends the process with an exit code and a sentence on stderr."""
    print_message(f"reclaimd: {sentence}")
    sys.exit(code)


def exit_unread(observations: "SignalObservations") -> NoReturn:
    """Ends the process with 4, and says why filesystems could not be read."""
    exit_with(
        EXIT_READING,
        "; ".join(dict.fromkeys(unread.reason for unread in observations.unavailable))
        or "no filesystem could be read",
    )


@contextmanager
def exit_on(
    code: int, errors: type[Exception] | tuple[type[Exception], ...], what: str = ""
) -> Iterator[None]:
    """Ends the process with this code if one of these errors is raised in the `with` block, and
    prints its message on stderr. `what`: the beginning of that sentence."""
    try:
        yield
    except errors as error:
        file = getattr(error, "filename", None)
        exit_with(code, f"{what}{f'{file}: ' if file else ''}{reason_of(error)}")


def answer(arguments: Namespace, record: Any, lines: Callable[[], Iterable[str]]) -> None:
    """Prints the answer of a command on stdout: the record as a document, or lines for
    people, which `lines` makes.
    """
    if arguments.output == "table":
        answer_lines(lines())
    else:
        answer_document(to_json(record), arguments.output)


def print_answer(given: "Answer", output: str) -> int:
    """Prints an answer such as the daemon gives. Returns its exit code."""
    mention(given.sentence)
    if given.document is not None:
        answer_document(given.document, output)
    else:
        answer_lines(given.lines)
    return given.exit_code


def answer_document(document: Any, output: str) -> None:
    """`output`: json, yaml, or name for a line for each of its objects, such as `image/app:1`."""
    text = json.dumps(document, indent=2)
    if output == "yaml":
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()
    if output == "name":
        text = "\n".join(map(escaped, names_of(document)))
    write_out(f"{text}\n" if text else "")


def names_of(document: Fields) -> Iterator[str]:
    """The objects that a document is about: those that go or went, and those of `why`."""
    if "verdict" in document:
        yield f"{document['kind']}/{document['name']}"
    for part in ("records", "removals", "objects", "went"):
        for each in document.get(part, ()):
            yield from names_of(each.get("removal", each))


def answer_lines(lines: Iterable[str]) -> None:
    """Prints lines for people on stdout, wrapped and with control characters escaped; on a terminal
    some of their first words are in colour."""
    coloured = in_colour()
    for line in wrap_lines(map(escaped, lines), columns()):
        if coloured:
            line = COLOURED.sub(lambda word: f"{COLOUR_OF[word[0]]}{word[0]}{PLAIN}", line)  # noqa: PLW2901
        write_out(f"{line}\n", flush=False)
    write_out("")  # a drill prints while it runs


def columns() -> int | None:
    """The width of the terminal on stdout; None if stdout is not a
    terminal, for lines of any length.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def in_colour() -> bool:
    """As `--color` says; auto: whether stdout is a terminal that shows colours, and NO_COLOR
    (https://no-color.org) is not set.
    """
    shows = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return color == "always" or (color == "auto" and shows and not os.environ.get("NO_COLOR"))


def wrap_lines(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """The lines; those wider than `width` continue on indented lines. A line with a word that is
    too long to fit is left whole, so that the word can be copied."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        if width is None or len(line) <= width or max(map(len, line.split())) > width - len(indent):
            yield line
        else:
            yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
