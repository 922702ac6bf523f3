"""`reclaimd resume`: ends a pause."""

from __future__ import annotations

import argparse

from eviction.cli.options import add_configuration
from eviction.cli.pause import tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0, also without a pause; 3 when no daemon answers."""
    return tell(arguments, 0)
