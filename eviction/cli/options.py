"""What subcommands share: options in the kubelet's spelling, the configuration,
the node, and the output.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from eviction.cli import write_out
from eviction.cli.ask_daemon import hint
from eviction.cli.progress import STDERR, Progress
from eviction.cli.progress import mention as mention
from eviction.cli.progress import print_message as print_message
from eviction.configuration.effective import (
    TRANSITION_PERIOD,
    Configuration,
    ConfigurationError,
    load,
)
from eviction.configuration.file import FIELDS
from eviction.configuration.fingerprint import (
    Fingerprint,
    configuration_files,
    drop_ins,
    fingerprint_of,
)
from eviction.configuration.kubelet import parse_pairs
from eviction.configuration.strict_yaml import LARGEST_BYTES
from eviction.exit_codes import EXIT_READING
from eviction.records.json_shapes import to_json
from eviction.wording.log import Log, escaped, goes_to_journal
from reclaim.types import RuntimeUnavailable
from reclaim.workers import in_time
from signals.clock import SystemClock

if TYPE_CHECKING:
    from eviction.engine.node import Node  # a light command does not load it
    from eviction.engine.view import NodeView
    from eviction.surface.answer import Answer
    from eviction.types import Decision
    from signals.types import SignalObservations

CONFIGURATION_SECONDS = 10.0  # for all of it; each file has 2 s
READ_DEADLINE_SECONDS = 2.0
ASKED = "asking the daemon on {control_socket}"

STYLES = {
    "plain": "",
    "faint": "\x1b[2m",
    "good": "\x1b[32m",
    "warning": "\x1b[33m",
    "bad": "\x1b[1;31m",
}
# The first words of lines that are in colour, if a gap follows.
STYLE_OF = {
    **dict.fromkeys(("kept", "keep", "spared", "ok"), "good"),
    **dict.fromkeys(("removed", "planned", "WARNING"), "warning"),
    **dict.fromkeys(("failed", "NOT", "ERROR"), "bad"),
    "NOTE": "faint",
}
COLOURED = re.compile(rf"^(?:{'|'.join(STYLE_OF)})(?=  )")

Value = TypeVar("Value")

# option -> field of the configuration file; what it takes; help text
_FLAGS = {
    "container-runtime-endpoint": (
        "containerRuntimeEndpoint",
        "SOCKET",
        "the runtime's: unix:///path/to.sock",
    ),
    "image-service-endpoint": (
        "imageServiceEndpoint",
        "SOCKET",
        "the image service's, if not the runtime's",
    ),
    "kubelet-config": (
        "kubeletConfig",
        "FILE",
        "the node's kubelet configuration, only read; empty: none",
    ),
    "root-dir": (
        "rootDirectory",
        "DIR",
        "the kubelet's root directory; nodefs is the filesystem it is on",
    ),
    "eviction-pressure-transition-period": (
        TRANSITION_PERIOD,
        "DURATION",
        "how long a condition is reported",
    ),
    "minimum-image-ttl-duration": (
        "imageMinimumGCAge",
        "DURATION",
        "how long an image must be known before it goes",
    ),
    "minimum-container-ttl-duration": (
        "minimumContainerTTLDuration",
        "DURATION",
        "the same for dead containers",
    ),
    "image-gc-high-threshold": (
        "imageGCHighThresholdPercent",
        "NUMBER",
        "where periodic image GC begins",
    ),
    "image-gc-low-threshold": (
        "imageGCLowThresholdPercent",
        "NUMBER",
        "where periodic image GC ends",
    ),
    "maximum-dead-containers-per-container": (
        "maximumDeadContainersPerContainer",
        "NUMBER",
        "dead instances kept",
    ),
    "maximum-dead-containers": (
        "maximumDeadContainers",
        "NUMBER",
        "all that are kept; negative: no limit",
    ),
    "eviction-hard": (
        "evictionHard",
        "PAIRS",
        "hard thresholds, like nodefs.available<10%%,imagefs.inodesFree<5%%",
    ),
    "eviction-soft": ("evictionSoft", "PAIRS", "soft thresholds, like nodefs.available<15%%"),
    "eviction-soft-grace-period": (
        "evictionSoftGracePeriod",
        "PAIRS",
        "how long they wait: nodefs.available=1m30s",
    ),
    "eviction-minimum-reclaim": (
        "evictionMinimumReclaim",
        "PAIRS",
        "minimum reclaim, like nodefs.available=1Gi",
    ),
}


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Adds the configuration's options, in a group of the help."""
    group = parser.add_argument_group("Of every command; they override the file")
    usual = "the file; default: $RECLAIMD_CONFIG, else /etc/reclaimd/reclaimd.yaml; empty: none"
    group.add_argument("--config", metavar="FILE", help=usual)
    group.add_argument(
        "--config-dir", metavar="DIR", help="drop-in directory: *.conf, in the order of their names"
    )
    for flag, (_, takes, text) in _FLAGS.items():
        group.add_argument(
            f"--{flag}", metavar=takes, type=whole_number if takes == "NUMBER" else str, help=text
        )


def whole_number(text: str) -> int:
    """A whole number from the command line. Raises ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, but it was {text!r}") from None


def reading(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """The type of an option whose text `read` reads, as in the file.

    `read` raises ValueError with what is allowed.
    """

    def read_option(text: str) -> Value:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_option


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="output format"
    )


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the log, in a group of the help."""
    verbosity = (
        "run: 1 or more: debug events, too; drill: 1: every pass, object and expectation, 2 or"
        " more: its log, too"
    )
    group = parser.add_argument_group("Of run and drill")
    group.add_argument(
        "--logging-format", choices=("text", "json"), default="text", help="log format"
    )
    group.add_argument(
        "-v", "--verbosity", type=whole_number, default=0, metavar="N", help=verbosity
    )


def configuration_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """The configuration flags by name; None for those that are not given."""
    return {flag: getattr(arguments, flag.replace("-", "_"), None) for flag in _FLAGS}


def configuration_of(arguments: argparse.Namespace, *, asks_version: bool = False) -> Configuration:
    """The effective configuration. Raises ConfigurationError, on which every command exits with 2.

    `asks_version`: as in `load`.
    """
    flags = fields_of_flags(arguments)
    file, directory = configuration_files(arguments.config, arguments.config_dir, os.environ)
    try:
        read = partial(
            load,
            file,
            os.environ,
            flags,
            directory=directory,
            root="/",
            asks_version=asks_version,
        )
        return in_time(read, CONFIGURATION_SECONDS)
    except OSError as error:
        what = ", ".join(filter(None, (file, directory))) or "the kubelet's files"
        raise ConfigurationError(
            f"{what}: a file or directory of the configuration hangs: {error.strerror}"
        ) from None


def fields_of_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields that flags set, with their values. Raises ConfigurationError."""
    flags: dict[str, Any] = {}
    for flag, value in configuration_flags(arguments).items():
        if value is not None:
            field, takes, _ = _FLAGS[flag]
            operator = "<" if flag in ("eviction-hard", "eviction-soft") else "="
            flags[field] = parse_pairs(flag, value, operator) if takes == "PAIRS" else value
    if getattr(arguments, "shadow", False):
        flags["dryRun"] = True
    return flags


@dataclass(frozen=True, slots=True)
class Places:
    """Where a daemon is asked, and its files are read: all that some commands
    need of the configuration.

    `problem`: why that cannot be used; empty if it can. The places are then what its files seem to
    say, else the defaults: good for asking and reading, for nothing else. Whoever may write the
    files, a socket or file of somebody else's is not used.
    """

    control_socket: str
    history_file: str
    state_file: str
    problem: str = ""


def places_of(arguments: argparse.Namespace, doing: str) -> Places:
    """The places, also of a configuration that cannot be used, which is then mentioned. `doing`:
    what is done instead of ending, with the names of places in braces. Raises ConfigurationError
    for flags that are no pairs."""
    fields_of_flags(arguments)
    try:
        found = configuration_of(arguments)
        return Places(found.control_socket, found.history_file, found.state_file)
    except ConfigurationError as error:
        texts, problem = list(_texts(arguments)), str(error)

    def seems(field: str) -> str:
        path = hint(texts, field, "")
        return path if path.startswith("/") else str(FIELDS[field].get_default())

    places = Places(seems("controlSocket"), seems("historyFile"), seems("stateFile"), problem)
    mention(f"the configuration cannot be used ({problem}); {doing.format_map(asdict(places))}")
    return places


def _texts(arguments: argparse.Namespace) -> Iterator[str]:
    """What can be read of the files of the configuration, whoever may write them."""

    def read(path: str) -> str:
        opener = lambda name, flags: os.open(name, flags | os.O_NONBLOCK)  # noqa: E731 # a FIFO must not block
        with open(path, encoding="utf-8", errors="replace", opener=opener) as file:
            return file.read(LARGEST_BYTES)

    file, directory = configuration_files(arguments.config, arguments.config_dir, os.environ)
    paths = [] if file is None else [file]
    with suppress(OSError):
        paths += [] if directory is None else in_time(partial(drop_ins, directory))
    for path in paths:
        with suppress(OSError):
            yield in_time(partial(read, path))


def fingerprint_of_command(arguments: argparse.Namespace) -> Fingerprint:
    """The fingerprint of the files and flags as they are now.

    Raises OSError, also if a file hangs.
    """
    files = configuration_files(arguments.config, arguments.config_dir, os.environ)
    flags = configuration_flags(arguments)
    return in_time(lambda: fingerprint_of(*files, flags, environment=os.environ))


def mention_other_configuration(
    arguments: argparse.Namespace, control_socket: str, status: dict[str, Any] | None = None
) -> None:
    """Mentions a daemon that has loaded another configuration than this command. Silent if no
    daemon answers, and for a command whose own flags make the difference.

    `status`: the daemon's answer, if the command has it; else the daemon is asked.
    """
    flags = configuration_flags(arguments)
    if not os.path.exists(control_socket) or any(value is not None for value in flags.values()):
        return
    # only where there may be a daemon
    from eviction.surface.control_socket import ControlUnavailable, ask

    try:
        loaded = (ask(control_socket, "brief") if status is None else status).get("configuration")
        own = fingerprint_of_command(arguments)
    except (ControlUnavailable, OSError):
        return
    if loaded is not None and loaded != own:  # an older daemon does not report it
        mention(
            "a daemon runs here with another configuration, or with an older version of the same"
            " files"
        )


@contextmanager
def view_of(configuration: Configuration) -> Iterator[tuple[NodeView, str | None]]:
    """The node, and why the runtime cannot be reached, or None. Shows progress meanwhile."""
    from eviction.engine.view import NodeView  # not for a light command

    doing = "asking the runtime where the images are, and reading the filesystems"
    with (
        closing(NodeView(configuration, read_deadline_seconds=READ_DEADLINE_SECONDS)) as node,
        Progress(doing),
    ):
        yield node, node.locate()


def observe(node: Node) -> tuple[str | None, SignalObservations, Decision]:
    """Why the runtime cannot be reached, or None; what was observed; and the decision.

    For a dry run, what images hold on the disk is asked, too; relief does not wait for that. Shows
    progress, and mentions why records could not be restored.
    """
    mention(node.restore_image_records())
    with Progress("asking the runtime where the images are"):
        problem = node.locate()
    if node.dry_run and node.summary.paths.imagefs is not None:
        with Progress("asking the runtime what its images hold"), suppress(RuntimeUnavailable):
            node.inventory.learn_layers(node.inventory.images(node.clock.monotonic()))
    with Progress("reading the filesystems"):
        observations, decision = node.look()
    return problem, observations, decision


def log_of(arguments: argparse.Namespace) -> Log:
    """The log on stderr, as the options say."""
    return Log(
        SystemClock().wall,
        as_json=arguments.logging_format == "json",
        verbosity=arguments.verbosity,
        journal=goes_to_journal(os.environ, STDERR),
    )


def exit_unread(observations: SignalObservations) -> NoReturn:
    """Ends the process with 4, and says why filesystems could not be read."""
    reasons = dict.fromkeys(each.reason for each in observations.unavailable)
    exit_with(EXIT_READING, "; ".join(reasons) or "no filesystem could be read")


def exit_with(code: int, sentence: str) -> NoReturn:
    """Ends the process with an exit code and a sentence on stderr."""
    print_message(f"reclaimd: {sentence}")
    sys.exit(code)


@contextmanager
def exit_on(
    code: int, errors: type[Exception] | tuple[type[Exception], ...], what: str = ""
) -> Iterator[None]:
    """Ends the process with this code if one of these errors is raised in the `with` block, and
    prints its message on stderr. `what`: the beginning of that sentence."""
    try:
        yield
    except errors as error:
        exit_with(code, f"{what}{error}")


def answer_json(document: Any) -> None:
    write_out(f"{json.dumps(document, indent=2)}\n")


def answer(arguments: argparse.Namespace, record: Any, lines: Callable[[], Iterable[str]]) -> None:
    """Prints the answer of a command on stdout: the record as a document, or lines for
    people, which `lines` makes.
    """
    if arguments.output == "json":
        answer_json(to_json(record))
    else:
        answer_lines(lines())


def print_answer(given: Answer) -> int:
    """Prints an answer such as the daemon gives. Returns its exit code."""
    mention(given.sentence)
    if given.document is not None:
        answer_json(given.document)
    else:
        answer_lines(given.lines)
    return given.exit_code


def columns() -> int | None:
    """The width of the terminal on stdout; None if stdout is not a
    terminal, for lines of any length.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def answer_lines(lines: Iterable[str]) -> None:
    """Prints lines for people on stdout, wrapped and with control characters escaped; on a terminal
    some of their first words are in colour."""
    coloured = in_colour()
    for line in wrap_lines(map(escaped, lines), columns()):
        shown = (
            COLOURED.sub(lambda found: styled(found[0], STYLE_OF[found[0]]), line)
            if coloured
            else line
        )
        write_out(f"{shown}\n", flush=False)
    write_out("")  # a drill prints while it runs


def in_colour() -> bool:
    """Whether stdout is a terminal that shows colours, and NO_COLOR
    (https://no-color.org) is not set.
    """
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def styled(text: str, style: str) -> str:
    """A text in a style of `STYLES`, for a terminal in colour."""
    return f"{STYLES[style]}{text}\x1b[0m"


def wrap_lines(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """The lines; those wider than `width` continue on indented lines. A line with a word that is
    too long to fit is left whole, so that the word can be copied."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        if width is None or len(line) <= width or max(map(len, line.split())) > width - len(indent):
            yield line
        else:
            yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
