"""`reclaimd uninstall`: stops the service and removes what `reclaimd install` has placed; with
`--purge` also configuration, records and ballast.

Does not cover: the program, which is removed as it was installed.
"""

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from itertools import chain

from eviction.cli.below_root import exists, proven, remove_tree
from eviction.cli.install import ROOT, UNITS, changing, of_the_service, replace_placed, root_of
from eviction.cli.output import answer_lines, exit_with
from eviction.exit_codes import EXIT_OK, EXIT_USAGE
from eviction.types import EvictionError

WITHOUT_CONFIGURATION = True
OPTIONS = {**ROOT, "--purge": "also configuration, records and ballast"}
OF_THE_OPERATOR = ("/etc", "/var/lib")  # in each a directory `reclaimd`


def run(arguments: Namespace) -> int:
    """Exit 0; 1 a file cannot be removed; 2 somebody else may write below the root.

    Example: reclaimd uninstall --root /srv/look
    """
    root = root_of(arguments)
    if not os.path.isdir(root):
        exit_with(EXIT_USAGE, f"--root: there is no directory {root}")
    with changing(root, *OF_THE_OPERATOR):
        answer_lines(replace_placed(root, {}))
        answer_lines(_leave(root, purge=arguments.purge))
    return EXIT_OK


def _leave(root: str, *, purge: bool) -> Iterator[str]:
    """What the operator may want to keep: ballast, configuration and records, unless
    they are purged; own units.
    """
    word = "gone" if purge else "left"
    with suppress(EvictionError):
        if root == "/" and (ballast := of_the_service().leave_ballast(purge=purge)):
            yield f"{word}     {ballast} (ballast)"
    for directory in OF_THE_OPERATOR:
        path = f"{directory}/reclaimd"
        if exists(root, path):
            yield f"{word}     {path}"
            if purge:
                remove_tree(root, path)
    with suppress(FileNotFoundError):
        units = proven(root, UNITS)
        own = chain(
            *(glob(pattern, root_dir=units) for pattern in ("reclaimd*", "*.d/reclaimd*.conf"))
        )
        yield from (f"left     {UNITS}/{path}" for path in sorted(own))
