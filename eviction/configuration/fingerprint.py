"""Which configuration files a process reads, and the fingerprint of its configuration.

Standard library only.

Unless its command line says otherwise, every command reads what the daemon reads: a hook that is
run by hand in an emergency must not forget the keep-list.

The daemon does a command's work only if both have the same fingerprint: the same files, unchanged
since the daemon read them, the same flags, and the same endpoints in the environment. A command
that names no configuration accepts the daemon's.

Does not cover: reading the files (`effective`).
"""

import os
from collections.abc import Mapping

USUAL_FILE = "/etc/reclaimd/reclaimd.yaml"
USUAL_DIRECTORY = "/etc/reclaimd/reclaimd.conf.d"
DROP_IN_SUFFIX = ".conf"
VARIABLE = "RECLAIMD_CONFIG"
VARIABLES = ("CONTAINER_RUNTIME_ENDPOINT", "IMAGE_SERVICE_ENDPOINT")

OTHER_CONFIGURATION = (
    "it runs with another configuration, or with an older version of the same files"
)

Fingerprint = dict[str, list[list[object]]]
"""JSON: `files` (real path, time of change in ns, size), `flags` and `environment`, each sorted.

Empty: unknown. No command has it.
"""


def configuration_files(
    config: str | None, config_dir: str | None, environment: Mapping[str, str], *, root: str = "/"
) -> tuple[str | None, str | None]:
    """The configuration file and the drop-in directory; None: none.

    `config` and `config_dir` are those of the command line: None if not given, empty for none. The
    default file is $RECLAIMD_CONFIG, else the usual one if it exists. The usual directory belongs
    to the usual file only. `root`: where to look for the usual ones.
    """
    file = config if config is not None else environment.get(VARIABLE)
    directory = config_dir
    if file is None:
        usual_file = os.path.join(root, USUAL_FILE.lstrip("/"))
        usual_directory = os.path.join(root, USUAL_DIRECTORY.lstrip("/"))
        if os.path.lexists(usual_file):
            file = usual_file
        if directory is None and os.path.isdir(usual_directory):
            directory = usual_directory
    return file or None, directory or None


def drop_ins(directory: str) -> list[str]:
    """The `*.conf` files of a drop-in directory by name. Raises OSError."""
    return [
        os.path.join(directory, name)
        for name in sorted(os.listdir(directory))
        if name.endswith(DROP_IN_SUFFIX)
    ]


def fingerprint_of(
    config: str | None,
    config_dir: str | None,
    flags: Mapping[str, object],
    *,
    environment: Mapping[str, str],
) -> Fingerprint:
    """The fingerprint of a file, a drop-in directory, flags and the environment. Raises OSError."""
    paths = [] if config is None else [config]
    if config_dir is not None:
        paths += drop_ins(config_dir)
    files: list[list[object]] = []
    for path in paths:
        status = os.stat(path)
        files.append([os.path.realpath(path), status.st_mtime_ns, status.st_size])
    return {
        "files": files,
        "flags": [[name, flag] for name, flag in sorted(flags.items()) if flag is not None],
        "environment": [[name, environment[name]] for name in VARIABLES if environment.get(name)],
    }


def same_configuration(requested: object, fingerprint: Fingerprint) -> bool:
    """Whether the daemon may do the work of a command that sent `requested`, untrusted JSON.

    A command that names no configuration accepts the daemon's.
    """
    if not isinstance(requested, dict):
        return False
    names_none = not any(map(requested.get, ("files", "flags", "environment")))
    return names_none or requested == fingerprint
