"""The command line: one parser, one module a subcommand, imported when it is used.

Exit codes: 0 as asked; 1 pressure remains, a threshold is met, or an expectation failed; 2 usage or configuration;
3 the runtime cannot be reached; 4 a reading is unavailable; 75 another instance holds the node.
Data goes to stdout, words to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import NoReturn

COMMANDS = {
    "run": "the daemon: watch, and relieve pressure when a threshold is crossed",
    "reclaim": "the emergency hook: one pass, now",
    "check": "one look: signals, thresholds, headroom, layout",
    "plan": "what would be removed now, and why each other thing is kept",
    "status": "what the running daemon is doing, and its last passes",
    "top": "the same as status, live in the terminal",
    "config": "the effective configuration, the origin of every value, and the ladder of marks",
    "doctor": "what is wrong or risky on this node, each with what to do",
    "drill": "a test of eviction paths on an embedded node",
}

EXIT_OK, EXIT_NOT_RELIEVED, EXIT_USAGE, EXIT_RUNTIME, EXIT_READING, EXIT_HELD = 0, 1, 2, 3, 4, 75


class _Version(argparse.Action):
    """Looks the version up only when asked: importlib.metadata reads files."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"reclaimd {metadata.version('reclaimd')}")  # noqa: T201 # data on stdout
        parser.exit(EXIT_OK)


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        """Leaves with 2."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser with all subcommands; each one's own options come from its module only when it runs."""
    parser = Parser(
        prog="reclaimd",
        description="Relieves a Kubernetes node that runs full: the kubelet's disk pressure signals and reclaim "
        "table, over CRI, before the kubelet evicts pods.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        subparsers.add_parser(name, help=text, add_help=False, allow_abbrev=False)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code (argparse leaves with 2 by itself)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # gRPC writes lines of its own to stderr, among our events, when a runtime restarts. It reads this when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    command = next((word for word in arguments[:1] if word in COMMANDS), None)
    if command is None:
        build_parser().parse_args(arguments)
        return EXIT_USAGE
    module = import_module(f"eviction.cli.{command}")
    parser = Parser(prog=f"reclaimd {command}", description=COMMANDS[command], allow_abbrev=False)
    module.add_arguments(parser)
    try:
        return int(module.run(parser.parse_args(arguments[1:])))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has left; that is no failure of ours
        sys.stderr.close()
        return EXIT_OK
