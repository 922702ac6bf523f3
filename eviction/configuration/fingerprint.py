"""Whether two processes were told the same configuration: what a command shows the daemon. Standard library only.

A daemon may do a command's work only if its configuration is the one that the command was told: the same files,
unchanged since the daemon read them, the same flags and the same endpoints in the environment. A command that was told
nothing asks for the daemon's own.

Covers: comparing. Does not cover: reading the files (`configuration`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLES = ("CONTAINER_RUNTIME_ENDPOINT", "IMAGE_SERVICE_ENDPOINT")

OTHER_CONFIGURATION = "it runs with another configuration, or with an older state of the same files"

Stamp = dict[str, list[list[object]]]
"""JSON: `files` (real path, time of change in ns, size), `flags` and `environment`, each sorted."""


def stamp(
    config: str | None, config_dir: str | None, flags: Mapping[str, object], environment: Mapping[str, str]
) -> Stamp:
    """What a process was told. Raises OSError for a file or directory that cannot be looked at."""
    paths = [] if config is None else [config]
    if config_dir is not None:
        paths += sorted(os.path.join(config_dir, name) for name in os.listdir(config_dir) if name.endswith(".conf"))
    files: list[list[object]] = []
    for path in paths:
        found = os.stat(path)
        files.append([os.path.realpath(path), found.st_mtime_ns, found.st_size])
    return {
        "files": files,
        "flags": [[name, flags[name]] for name in sorted(flags) if flags[name] is not None],
        "environment": [[name, environment[name]] for name in VARIABLES if environment.get(name)],
    }


def told_nothing(told: Stamp) -> bool:
    """Whether a process was told no configuration at all."""
    return not any(told.get(part) for part in ("files", "flags", "environment"))


def told_the_same(shown: object, told: Stamp) -> bool:
    """Whether the daemon, which was `told` this, may do the work of who shows that."""
    return isinstance(shown, dict) and (told_nothing(shown) or shown == told)
