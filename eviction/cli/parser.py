"""The argument parser and the help. The options of a subcommand come from the module of its name,
which is imported only to run it.

A module has `run`, and may have
* `OPTIONS`: rows of the help, as `Parser.add_rows` takes them;
* `add_arguments`: adds what no row can say, before these;
* `WITHOUT_CONFIGURATION`: it does not take the configuration's options;
* `GONE`: arguments that there were, each with what to use.

A help has at most 24 lines of 80 columns, whatever the terminal: usage, what the command does, its
own options, and the docstring of its `run`, which has its exit codes and an example. The options
that commands share are in argument groups, which `reclaimd help configuration` shows.
"""

import gc
import re
import textwrap
from argparse import Action, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module

from eviction.cli.commands import COMMANDS, GROUPS
from eviction.cli.streams import write_err, write_out
from eviction.exit_codes import EXIT_OK, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn

COLUMNS = 80
IMPORTED_OBJECTS = 30_000
WIDEST_NAME = 28
OUTPUT = {"-o, --output table|json|yaml": "output format"}
OBJECTS = {"-o, --output table|json|yaml|name": "output format; name: one object a line"}
PURPOSE = """\
usage: reclaimd [--version] COMMAND [OPTION ...]
Frees disk space on a Kubernetes node over CRI, before the kubelet evicts pods.
"""
AMOUNT_BELOW_0 = re.compile(r"-\.?[0-9]")  # such as -5Gi: a value, and no option
FIRST_STEPS = """\
reclaimd: which command? To begin with, those that remove nothing:

  reclaimd doctor    what is wrong or risky on this node, and what to do
  reclaimd plan      what may be removed, in which order; what is kept, and why
  reclaimd reclaim --dry-run --signal imagefs.available    one pass, no removals

Then systemctl enable --now reclaimd starts the daemon; all: reclaimd --help.
"""


def sentence(text: str) -> str:
    """A text that begins in lower case, as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a docstring, each as one line."""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def wrapped(name: str, text: str, indent: int = 0) -> list[str]:
    """A name, and what it means `indent` columns from the left, in lines of 80 columns."""
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=name.ljust(indent),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def table_of(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Names, and beside or below them what they mean."""
    rows = list(rows)
    indent = 4 + max(len(name) for name, _ in rows if len(name) <= WIDEST_NAME)
    lines = []
    for name, text in rows:
        above = [f"  {name}"] if len(name) > WIDEST_NAME else []
        lines += [*above, *wrapped("" if above else f"  {name}", text, indent)]
    return lines


def reading(read: "Callable[[str], Any]") -> "Callable[[str], Any]":
    """The type of an option whose text `read` reads."""

    def read_option(text: str) -> "Any":
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read_option


class Parser(ArgumentParser):
    """A parser whose error message is one sentence."""

    def error(self, message: str) -> "NoReturn":
        """Exits with 2."""
        write_err(f"{self.prog}: {message} (see {self.prog} --help)\n")
        self.exit(EXIT_USAGE)

    def print_help(self, file: object = None) -> None:  # noqa: ARG002 # --help names no file
        write_out(self.format_help())

    def add_rows(self, rows: "Mapping[str, Any]", group: str = "") -> None:
        """Adds options as the help shows them, each with its text: `--until VALUE`, `--all`, and
        `-o, --output table|json|yaml`, of which the first is the default. An argument has no
        dashes: `name NAME`, `topic? TOPIC` (at most one), `directories* DIR` (any number).

        With the text may be what reads the value, as in the file (it raises ValueError with what is
        allowed), or None, and the default. `group`: of the help, for options that commands share.
        """
        to = self.add_argument_group(group) if group else self
        for row, told in rows.items():
            text, read, default = (told, None, None) if isinstance(told, str) else (*told, None)[:3]
            *others, last = row.split(", ")
            name, _, value = last.partition(" ")
            takes: dict[str, Any] = {"action": "store_true"}
            if "|" in value:
                takes = {"choices": value.split("|"), "default": value.partition("|")[0]}
            elif value:
                takes = {"metavar": value, "type": read and reading(read), "default": default}
            if name[-1] in "?*":
                takes["nargs"] = name[-1]
            to.add_argument(*others, name.rstrip("?*"), help=text, **takes)

    def refuse(self, argument: str) -> "NoReturn":
        """Exits with 2: there is no such argument."""
        own = [action.option_strings[-1] for action in self.groups()[""] if action.option_strings]
        known = self._option_string_actions
        self.error(
            unknown(
                "argument",
                argument,
                known,
                otherwise=f"its own options are {', '.join(own)}" if own else "",
            )
        )

    def groups(self) -> dict[str, list[Action]]:
        """The arguments and options by the title of their group; "" for
        those of the command itself.
        """
        positional, optional, *shared = self._action_groups
        found = {str(group.title): group._group_actions for group in shared}  # noqa: SLF001 # nothing public lists them
        return {"": [*positional._group_actions, *optional._group_actions[1:]], **found}  # noqa: SLF001 # without --help

    def format_help(self) -> str:
        groups = self.groups()
        own = groups.pop("")
        words = (value_of(action) for action in own if not action.option_strings)
        rows = list(map(row_of, own))
        if groups:
            rows.append(("--config FILE, ...", "see reclaimd help configuration"))
        lines = [
            " ".join((f"usage: {self.prog} [OPTION ...]", *words)),
            "",
            *wrapped("", self.description or ""),
            "",
            *table_of(rows),
            "",
        ]
        for paragraph in paragraphs(self.epilog or ""):
            lines += wrapped("", paragraph)
        return "\n".join([*lines, ""])


def value_of(action: Action) -> str:
    """What an argument or option takes, as the help shows it; empty if nothing."""
    choices = "|".join(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else choices or action.dest.upper()
    return metavar if action.nargs != 0 else ""


def row_of(action: Action) -> tuple[str, str]:
    """The spellings of an argument or option with what it takes; and its help text."""
    name = " ".join(filter(None, (", ".join(action.option_strings), value_of(action))))
    return name, (action.help or "").replace("%%", "%")


def command_of(name: str) -> "tuple[Parser, ModuleType]":
    """The parser of a subcommand, with its options, and the module that runs it."""
    usual = gc.get_threshold()
    # else garbage is looked for all the time: a tenth of a start, for nothing
    gc.set_threshold(IMPORTED_OBJECTS)
    module = import_module(f"eviction.cli.{name.replace('-', '_')}")
    gc.freeze()
    gc.set_threshold(*usual)
    parser = Parser(
        f"reclaimd {name}", None, sentence(COMMANDS[name]), module.run.__doc__, allow_abbrev=False
    )
    parser._negative_number_matcher = AMOUNT_BELOW_0  # noqa: SLF001 # nothing public says what is a value
    if not hasattr(module, "WITHOUT_CONFIGURATION"):
        # not for the help that lists all subcommands
        from eviction.cli.options import OF_EVERY_COMMAND

        parser.add_rows(*OF_EVERY_COMMAND)
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    parser.add_rows(getattr(module, "OPTIONS", {}))
    return parser, module


def help_of_all() -> str:
    """The help that lists all subcommands, without importing their modules."""
    rows = [(f"{GROUPS.get(name, ''):8}{name}", text) for name, text in COMMANDS.items()]
    return "\n".join([PURPOSE, *table_of(rows), ""])


def run_command(arguments: Sequence[str]) -> int:
    """Runs the subcommand that is the first argument; returns its exit code, or exits with 2."""
    match arguments[:1]:
        case []:
            write_err(FIRST_STEPS)
            return EXIT_USAGE
        case ["-h" | "--help"]:
            write_out(help_of_all())
            return EXIT_OK
        case ["--version"]:
            from importlib import metadata  # takes as long as the rest of the startup

            write_out(f"reclaimd {metadata.version('reclaimd')}\n")
            return EXIT_OK
        case [name] if name not in COMMANDS:
            Parser(prog="reclaimd").error(unknown("command", name, COMMANDS))
    parser, module = command_of(arguments[0])
    gone = getattr(module, "GONE", {})
    for argument in arguments[1:]:
        name = argument.partition("=")[0]
        if name in gone:
            parser.error(f"there is no {name} any more: {gone[name]}")
    parsed, others = parser.parse_known_args(arguments[1:])
    if others:
        parser.refuse(others[0].partition("=")[0])
    for action in parser.groups()[""]:
        value = getattr(parsed, action.dest)
        if value != action.default and ("" in value if isinstance(value, list) else value == ""):
            parser.error(f"argument {row_of(action)[0]}: must not be empty")
    from eviction.cli import output  # not for --help
    from eviction.configuration.strict_yaml import ConfigurationError
    from eviction.surface.answer import OptionRefused

    output.color = getattr(parsed, "color", "auto")
    with output.exit_on(EXIT_USAGE, (ConfigurationError, OptionRefused)):
        return int(module.run(parsed))


def unknown(what: str, name: str, allowed: Collection[str], *, otherwise: str = "") -> str:
    """A sentence about a word that is not allowed: the nearest that are, or else `otherwise`."""
    from eviction.configuration import strict_yaml  # only for this sentence

    return strict_yaml.unknown(what, name, allowed, otherwise=otherwise)
