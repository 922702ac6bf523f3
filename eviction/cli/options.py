"""The options that commands share, in the kubelet's spelling, and the configuration they make."""

import os
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from eviction.cli.progress import STDERR
from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.fingerprint import Fingerprint, configuration_files, fingerprint_of
from eviction.configuration.kubelet import FLAGS, parse_pairs
from eviction.types import Json
from eviction.wording.log import Log, goes_to_journal
from reclaim.workers import in_time
from signals.clock import SystemClock

CONFIGURATION_SECONDS = 10.0  # for all of it; each file has 2 s


def number(
    allowed: str, *, read: Callable[[str], float] = int, least: float = -inf, most: float = inf
) -> Callable[[str], Any]:
    """What reads the value of an option that takes a number. `allowed`: which, for the message."""

    def read_number(text: str) -> float:
        with suppress(ValueError):
            if least <= (value := read(text)) <= most:
                return value
        raise ValueError(f"must {allowed}, but it was {text!r}")

    return read_number


whole_number = number("be a whole number")


_FLAGS: dict[str, Any] = {
    "--container-runtime-endpoint SOCKET": "the runtime's: unix:///path/to.sock",
    "--image-service-endpoint SOCKET": "the image service's, if not the runtime's",
    "--kubelet-config FILE": "the node's kubelet configuration, only read; empty: none",
    "--root-dir DIR": "the kubelet's root directory; nodefs is the filesystem it is on",
    "--eviction-pressure-transition-period DURATION": "how long a condition is reported",
    "--minimum-image-ttl-duration DURATION": "how long an image must be known before it goes",
    "--minimum-container-ttl-duration DURATION": "the same for dead containers",
    "--image-gc-high-threshold NUMBER": ("where periodic image GC begins", whole_number),
    "--image-gc-low-threshold NUMBER": ("where periodic image GC ends", whole_number),
    "--maximum-dead-containers-per-container NUMBER": ("dead instances kept", whole_number),
    "--maximum-dead-containers NUMBER": ("all that are kept; negative: no limit", whole_number),
    "--eviction-hard PAIRS": "hard thresholds, like nodefs.available<10%%,imagefs.inodesFree<5%%",
    "--eviction-soft PAIRS": "soft thresholds, like nodefs.available<15%%",
    "--eviction-soft-grace-period PAIRS": "how long they wait: nodefs.available=1m30s",
    "--eviction-minimum-reclaim PAIRS": "minimum reclaim, like nodefs.available=1Gi",
}
OF_EVERY_COMMAND = (
    {
        "--color auto|always|never": "auto: on a terminal, unless NO_COLOR is set",
        "--config FILE": (
            "the file; default: $RECLAIMD_CONFIG, else /etc/reclaimd/reclaimd.yaml; empty: none"
        ),
        "--config-dir DIR": "drop-in directory: *.conf, in the order of their names",
        **_FLAGS,
    },
    "Of every command; they override the file",
)
FIELDS = {
    **FLAGS,
    "kubelet-config": "kubeletConfig",
    "root-dir": "rootDirectory",
    "minimum-container-ttl-duration": "minimumContainerTTLDuration",
    "maximum-dead-containers-per-container": "maximumDeadContainersPerContainer",
    "maximum-dead-containers": "maximumDeadContainers",
}
"""Flag -> the field of the configuration file, in the kubelet's spelling."""
LOGGING = (
    {
        "--logging-format text|json": "log format",
        "-v, --verbosity N": (
            (
                "run: 1 or more: debug events, too; drill: 1: every pass, object and expectation,"
                " 2 or more: its log, too"
            ),
            whole_number,
            0,
        ),
    },
    "Of run and drill",
)


def configuration_flags(arguments: Namespace) -> Json:
    """The configuration flags by name; None for those that are not given."""
    flags = [row.partition(" ")[0].removeprefix("--") for row in _FLAGS]
    return {flag: getattr(arguments, flag.replace("-", "_"), None) for flag in flags}


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
            field = FIELDS[flag]
            fields[field] = (
                parse_pairs(flag, value, field) if f"--{flag} PAIRS" in _FLAGS else value
            )
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
