"""The options that commands share, in the kubelet's spelling, and the configuration they make."""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

from eviction.cli.client import COLORS
from eviction.cli.progress import STDERR
from eviction.configuration.effective import (
    TRANSITION_PERIOD,
    Configuration,
    ConfigurationError,
    load,
)
from eviction.configuration.fingerprint import Fingerprint, configuration_files, fingerprint_of
from eviction.configuration.kubelet import parse_pairs
from eviction.types import Json
from eviction.wording.log import Log, goes_to_journal
from reclaim.workers import in_time
from signals.clock import SystemClock

CONFIGURATION_SECONDS = 10.0  # for all of it; each file has 2 s

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


def add_configuration(parser: ArgumentParser) -> None:
    """Adds the configuration's options, in a group of the help."""
    group = parser.add_argument_group("Of every command; they override the file")
    group.add_argument(
        "--color",
        choices=COLORS,
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )
    usual = "the file; default: $RECLAIMD_CONFIG, else /etc/reclaimd/reclaimd.yaml; empty: none"
    group.add_argument("--config", metavar="FILE", help=usual)
    group.add_argument(
        "--config-dir", metavar="DIR", help="drop-in directory: *.conf, in the order of their names"
    )
    for flag, (_, takes, text) in _FLAGS.items():
        group.add_argument(
            f"--{flag}", metavar=takes, type=whole_number if takes == "NUMBER" else str, help=text
        )


def number(
    allowed: str, *, read: Callable[[str], float] = int, least: float = -inf, most: float = inf
) -> Callable[[str], Any]:
    """The type of an option that takes a number. `allowed`: which, for the message."""

    def read_number(text: str) -> float:
        with suppress(ValueError):
            if least <= (value := read(text)) <= most:
                return value
        raise ArgumentTypeError(f"must {allowed}, but it was {text!r}")

    return read_number


whole_number = number("be a whole number")


def reading(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """The type of an option whose text `read` reads, as in the file.

    `read` raises ValueError with what is allowed.
    """

    def read_option(text: str) -> Value:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read_option


def add_logging(parser: ArgumentParser) -> None:
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


def configuration_flags(arguments: Namespace) -> Json:
    """The configuration flags by name; None for those that are not given."""
    return {flag: getattr(arguments, flag.replace("-", "_"), None) for flag in _FLAGS}


def files_of(arguments: Namespace) -> tuple[str | None, str | None]:
    """The configuration file and the drop-in directory, or None."""
    return configuration_files(arguments.config, arguments.config_dir, os.environ)


def configuration_of(arguments: Namespace, *, asks_version: bool = False) -> Configuration:
    """The effective configuration. Raises ConfigurationError, on which every command exits with 2.

    `asks_version`: as in `load`.
    """
    flags = fields_of_flags(arguments)
    file, directory = files_of(arguments)
    read = partial(load, file, os.environ, flags, directory=directory, root="/")
    try:
        return in_time(partial(read, asks_version=asks_version), CONFIGURATION_SECONDS)
    except OSError as error:
        what = ", ".join(filter(None, (file, directory))) or "the kubelet's files"
        raise ConfigurationError(
            f"{what}: a file or directory of the configuration hangs: {error.strerror}"
        ) from None


def fields_of_flags(arguments: Namespace) -> Json:
    """The fields that flags set, with their values. Raises ConfigurationError."""
    fields: Json = {}
    for flag, value in configuration_flags(arguments).items():
        if value is not None:
            field, takes, _ = _FLAGS[flag]
            operator = "<" if flag in ("eviction-hard", "eviction-soft") else "="
            fields[field] = parse_pairs(flag, value, operator) if takes == "PAIRS" else value
    if getattr(arguments, "shadow", False):
        fields["dryRun"] = True
    return fields


def fingerprint_of_command(arguments: Namespace) -> Fingerprint:
    """The fingerprint of the files and flags as they are now.

    Raises OSError, also if a file hangs.
    """
    flags = configuration_flags(arguments)
    return in_time(lambda: fingerprint_of(*files_of(arguments), flags, environment=os.environ))


def log_of(arguments: Namespace) -> Log:
    """The log on stderr, as the options say."""
    return Log(
        SystemClock().wall,
        as_json=arguments.logging_format == "json",
        verbosity=arguments.verbosity,
        journal=goes_to_journal(os.environ, STDERR),
    )
