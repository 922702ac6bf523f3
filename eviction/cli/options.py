"""Options that several subcommands share, in the kubelet's spelling, and the output on stdout and stderr."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from eviction.cli.progress import STDERR, Progress
from eviction.cli.progress import mention as mention
from eviction.cli.progress import print_words as print_words
from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.fingerprint import configuration_files
from eviction.configuration.kubelet import parse_pairs
from eviction.reporting.json_shapes import to_json
from eviction.reporting.log import Log, escaped, goes_to_journal
from reclaim.cri.client import EndpointError, socket_path
from reclaim.execution.workers import in_time
from signals.clock import SystemClock

if TYPE_CHECKING:
    from eviction.control.answer import Answer
    from eviction.node.node import Node  # which a light command does not load
    from eviction.types import Decision
    from signals.types import SignalObservations

CONFIGURATION_SECONDS = 10.0  # for all of it; each file has 2 s

# option -> field of the configuration file; what the help says
_TEXT_FLAGS = {
    "container-runtime-endpoint": ("containerRuntimeEndpoint", "the runtime's socket: unix:///path/to.sock"),
    "image-service-endpoint": ("imageServiceEndpoint", "the image service's socket, where it is another one"),
    "kubelet-config": ("kubeletConfig", "the node's kubelet configuration, read only; empty: none"),
    "root-dir": ("rootDirectory", "the kubelet's root directory; nodefs is the filesystem it is on"),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod", "how long a condition is reported"),
    "minimum-image-ttl-duration": ("imageMinimumGCAge", "how long an image must have been known to be removed"),
    "minimum-container-ttl-duration": ("minimumContainerTTLDuration", "the same for dead containers, from creation"),
}
_INT_FLAGS = {
    "image-gc-high-threshold": ("imageGCHighThresholdPercent", "of the periodic image GC; pressure ignores it"),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent", "of the periodic image GC; pressure ignores it"),
    "maximum-dead-containers-per-container": (
        "maximumDeadContainersPerContainer",
        "dead copies kept of each container",
    ),
    "maximum-dead-containers": ("maximumDeadContainers", "dead containers kept on the node; negative: no limit"),
}
_PAIR_FLAGS = {
    "eviction-hard": ("evictionHard", "for example nodefs.available<10%%,imagefs.inodesFree<5%%"),
    "eviction-soft": ("evictionSoft", "for example nodefs.available<15%%"),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", "for example nodefs.available=1m30s"),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim", "for example nodefs.available=1Gi"),
}
_FLAGS = _TEXT_FLAGS | _INT_FLAGS | _PAIR_FLAGS


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the configuration, as a group that the help shows after the command's own."""
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "--config",
        metavar="FILE",
        help="the configuration file; else $RECLAIMD_CONFIG, else the usual one; empty: none",
    )
    group.add_argument("--config-dir", metavar="DIR", help="drop-ins: *.conf, in the order of their names")
    for flag, (_, text) in _FLAGS.items():
        metavar = "PAIRS" if flag in _PAIR_FLAGS else "NUMBER" if flag in _INT_FLAGS else "VALUE"
        group.add_argument(f"--{flag}", metavar=metavar, type=whole_number if flag in _INT_FLAGS else str, help=text)


def whole_number(text: str) -> int:
    """A whole number from the command line. Raises ArgumentTypeError with what is allowed."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, but it was {text!r}") from None


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the form of the output."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="form of the answer")


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the log."""
    parser.add_argument("--logging-format", choices=("text", "json"), default="text", help="form of the log")
    parser.add_argument(
        "-v", "--verbosity", type=whole_number, default=0, metavar="N", help="1 and more: debug events too"
    )


def configuration_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """The configuration flags by name; None for those that were not given."""
    return {flag: getattr(arguments, flag.replace("-", "_")) for flag in _FLAGS}


def configuration_of(arguments: argparse.Namespace) -> Configuration:
    """The effective configuration. Raises ConfigurationError with one sentence, with which a command exits with 2."""
    flags: dict[str, Any] = {}
    for flag, value in configuration_flags(arguments).items():
        if value is not None:
            operator = "<" if flag in ("eviction-hard", "eviction-soft") else "="
            flags[_FLAGS[flag][0]] = parse_pairs(flag, value, operator) if flag in _PAIR_FLAGS else value
    if getattr(arguments, "shadow", False):
        flags["dryRun"] = True
    file, directory = configuration_files(arguments.config, arguments.config_dir, os.environ)
    try:
        configuration = in_time(lambda: load(file, os.environ, flags, directory, root="/"), CONFIGURATION_SECONDS)
    except OSError as error:
        what = ", ".join(filter(None, (file, directory))) or "the kubelet's files"
        raise ConfigurationError(f"{what}: a file or directory of the configuration hangs: {error.strerror}") from None
    for field in ("containerRuntimeEndpoint", "imageServiceEndpoint") if configuration.has_runtime else ():
        try:
            if endpoint := configuration.effective[field]:
                socket_path(endpoint)
        except EndpointError as error:
            raise ConfigurationError(f"{configuration.origins[field]}: {field}: {error}") from None
    return configuration


def observe(node: Node) -> tuple[str | None, SignalObservations, Decision]:
    """Why the runtime cannot be reached, or None; what was observed; and what follows from it.

    Progress, and why records could not be restored, go to stderr.
    """
    mention(node.restore_image_records())
    with Progress("asking the runtime where the images are"):
        problem = node.locate()
    with Progress("looking at the filesystems"):
        observations, decision = node.responder.synchronize()
    return problem, observations, decision


def log_of(arguments: argparse.Namespace) -> Log:
    """The log on stderr, as the options say."""
    return Log(
        SystemClock().wall,
        as_json=arguments.logging_format == "json",
        verbosity=arguments.verbosity,
        journal=goes_to_journal(os.environ, STDERR),
    )


def exit_with(code: int, sentence: str) -> NoReturn:
    """Ends the process with an exit code and a sentence on stderr."""
    print_words(f"reclaimd: {sentence}")
    sys.exit(code)


@contextmanager
def exit_on(code: int, errors: type[Exception] | tuple[type[Exception], ...], what: str = "") -> Iterator[None]:
    """Ends the process with this code where one of these errors is raised in the `with` block, with its sentence on
    stderr. `what`: the beginning of the sentence."""
    try:
        yield
    except errors as error:
        exit_with(code, f"{what}{error}")


def answer_json(document: Any) -> None:
    """Prints a document on stdout."""
    print(json.dumps(document, indent=2))  # noqa: T201 # data on stdout


def answer(arguments: argparse.Namespace, record: Any, lines: Iterable[str]) -> None:
    """Prints the answer of a command on stdout: the document of a record, or these lines for people."""
    if arguments.output == "json":
        answer_json(to_json(record))
    else:
        answer_lines(lines)


def print_answer(given: Answer) -> int:
    """Prints an answer of the form that the daemon gives. Returns its exit code."""
    mention(given.sentence)
    if given.document is not None:
        answer_json(given.document)
    else:
        answer_lines(given.lines)
    return given.exit_code


def columns() -> int | None:
    """The width of the terminal on stdout; None where stdout is no terminal, for lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def answer_lines(lines: Iterable[str]) -> None:
    """Prints lines for people on stdout, wrapped and with control characters escaped."""
    for line in wrap_lines(map(escaped, lines), columns()):
        print(line)  # noqa: T201 # data on stdout


def wrap_lines(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """The lines, with those wider than `width` continued on indented lines. A line with a word that is too long for a
    line is kept whole, so that the word can be copied."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        if width is None or len(line) <= width or max(map(len, line.split())) > width - len(indent):
            yield line
        else:
            yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
