"""The command line: one module for each subcommand, of its name, imported when it is used. Data
goes to stdout, messages to stderr.

A command reaches the node only through `client.Client`, the daemon, or `local_node.LocalNode`,
without one. To add one: a module with `add_arguments` and `run`, and its line in `COMMANDS`.

This module imports nothing but the exit codes: `reclaimd reclaim` and `reclaimd check` ask the
daemon first, and an emergency must not wait for imports (`tests/budgets` counts them).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from eviction.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTPUT

COMMANDS = {
    "run": "the daemon: watch, and relieve pressure when a threshold is crossed",
    "reclaim": "the emergency hook: one pass, now",
    "check": "one observation: signals, thresholds, headroom, layout",
    "plan": "what would be removed now, and why everything else is kept",
    "why": "whether one object would be removed now, by which rule, and when",
    "status": "what the running daemon is doing, and its last passes",
    "pause": "stop all removals for a while; ends automatically",
    "resume": "end a pause",
    "reload": "the daemon reads its configuration again; ends once it is in force",
    "top": "the same as status, live in the terminal",
    "history": "every pass and every removal of the last weeks, from a file",
    "config": "the values in force, where each of them comes from, and all marks",
    "doctor": "what is wrong or risky on this node, and what to do about it",
    "ballast": "create, show or remove the file that is released on a full disk",
    "install": "place units, manual, completions and a configuration",
    "uninstall": "stop the service, and remove what install has placed",
    "manifests": "the manifests of the DaemonSet, for kubectl apply -f -",
    "drill": "test eviction paths, on an embedded node or on a real one",
    "help": "the help of a command; help configuration: all options and fields",
}


class OutputLost(Exception):
    """The output cannot be written. The message is one sentence. It is no OSError, so that no
    command takes it for an error of its own work."""


def write_out(text: str, *, flush: bool = True) -> None:
    """Writes data on stdout, as everything does that prints there. Raises OutputLost, and
    BrokenPipeError if whoever read it is gone."""
    try:
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        sentence = f"the output could not be written: {error.strerror}; what was done stays done"
        raise OutputLost(sentence) from None


def write_err(text: str) -> None:
    """Writes on stderr, if that can be written: words that nobody can read end no work."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # a full disk, or it is closed
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. Exits with 2 for arguments that argparse rejects."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments[:1] in (["reclaim"], ["check"]):
            from eviction.cli.client import ask_daemon

            code = ask_daemon(arguments[0], arguments[1:])
            if code is not None:
                return code
        from eviction.cli.parser import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output is gone, which is not a failure
        sys.stderr.close()
        return EXIT_OK
    except OutputLost as error:
        from eviction.cli.progress import print_message

        # or Python tries again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print_message(f"reclaimd: {error}")
        return EXIT_OUTPUT
