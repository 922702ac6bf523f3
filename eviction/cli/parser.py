"""The argument parser. The options of a subcommand come from its module, which is imported only to run it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from eviction.cli import COMMANDS
from eviction.exit_codes import EXIT_OK, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn

SHARED_MODULES = {"resume": "pause", "top": "status"}


class _Version(argparse.Action):
    """Prints the version. Imports importlib.metadata only then: that takes as long as the rest of the startup."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        print(f"reclaimd {metadata.version('reclaimd')}")  # noqa: T201 # data on stdout
        parser.exit(EXIT_OK)


class Parser(argparse.ArgumentParser):
    """A parser whose error message is one sentence."""

    def error(self, message: str) -> NoReturn:
        """Exits with 2."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    """The parser that lists all subcommands, without their options."""
    parser = Parser(
        prog="reclaimd",
        description="Relieves a Kubernetes node whose disk is filling up, before the kubelet evicts pods: with the "
        "kubelet's own disk pressure signals and reclaim functions, over CRI.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        subparsers.add_parser(name, help=text, add_help=False, allow_abbrev=False)
    return parser


def command_of(name: str) -> tuple[Parser, ModuleType]:
    """The parser of a subcommand, with its options, and the module that runs it."""
    module = import_module(f"eviction.cli.{SHARED_MODULES.get(name, name)}")
    parser = Parser(prog=f"reclaimd {name}", description=COMMANDS[name], allow_abbrev=False)
    module.add_arguments(parser)
    return parser, module


def run_command(arguments: Sequence[str]) -> int:
    """Runs the subcommand that is the first argument; returns its exit code, or exits with 2."""
    if not arguments or arguments[0] not in COMMANDS:
        build_parser().parse_args(arguments)
        return EXIT_USAGE
    parser, module = command_of(arguments[0])
    words = (action.metavar or action.dest for action in parser._actions if not action.option_strings)  # noqa: SLF001 # as in .ci/manual.py
    parser.usage = " ".join(("%(prog)s [OPTION ...]", *map(str, words)))
    parsed = parser.parse_args(arguments[1:])
    from eviction.cli.options import exit_on  # not for --help
    from eviction.configuration.effective import ConfigurationError
    from eviction.configuration.threshold_config import FieldError
    from eviction.control.answer import RequestRefused
    from eviction.types import FunctionUnusable

    with exit_on(EXIT_USAGE, (ConfigurationError, FunctionUnusable, RequestRefused, FieldError)):
        return int(module.run(parsed))
