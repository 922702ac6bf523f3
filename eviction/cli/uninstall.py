"""`reclaimd uninstall`: stops the service and removes what `reclaimd install` has placed; with
`--purge` also configuration, records and ballast.

Does not cover: the program, which is removed as it was installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from itertools import chain

from eviction.cli.below_root import exists, opened
from eviction.cli.install import OF_THE_NODE, UNITS, changing, replace_placed, root_of
from eviction.cli.options import answer_lines, configuration_of
from eviction.configuration.effective import ConfigurationError
from eviction.engine.ballast import read_ballast
from eviction.exit_codes import EXIT_OK
from reclaim.functions.ballast import BallastRefused, BallastSettings, remove_ballast
from reclaim.pod_logs.directories import remove_tree

OF_THE_OPERATOR = ("/etc", "/var/lib")  # in each a directory `reclaimd`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", metavar="DIR", default="/", help="below another root; nothing is stopped"
    )
    parser.add_argument(
        "--purge", action="store_true", help="also configuration, records and ballast"
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 a file cannot be removed; 2 somebody else may write below the root.

    Example: reclaimd uninstall --root /srv/look
    """
    root = root_of(arguments)
    with changing(root, *OF_THE_OPERATOR):
        answer_lines(replace_placed(root, {}))
        answer_lines(_leave(root, purge=arguments.purge))
    return EXIT_OK


def _leave(root: str, *, purge: bool) -> Iterator[str]:
    """What the operator may want to keep: ballast, configuration and records, unless
    they are purged; own units.
    """
    word = "gone" if purge else "left"
    with suppress(ConfigurationError, BallastRefused):
        found = configuration_of(OF_THE_NODE).ballast if root == "/" else None
        if (
            found is not None
            and read_ballast(settings := BallastSettings(found.path, found.size_bytes)) is not None
        ):
            if purge:
                remove_ballast(settings)
            yield f"{word}     {found.path} (ballast)"
    for directory in OF_THE_OPERATOR:
        if not exists(root, f"{directory}/reclaimd"):
            continue
        yield f"{word}     {directory}/reclaimd"
        if purge:
            with opened(root, directory) as above:
                removed = remove_tree(above, b"reclaimd")
            if removed.failed:
                raise OSError(f"{root.rstrip('/')}{directory}/{removed.sentence}")
    with suppress(FileNotFoundError), opened(root, UNITS) as units:
        own = chain(
            *(glob(pattern, dir_fd=units) for pattern in ("reclaimd*", "*.d/reclaimd*.conf"))
        )
        yield from (f"left     {UNITS}/{path}" for path in sorted(own))
