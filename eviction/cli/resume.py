"""`reclaimd resume`: ends a pause."""

from __future__ import annotations

import argparse

from eviction.cli.pause import run as run  # without a length


def add_arguments(_: argparse.ArgumentParser) -> None:
    """It has no options of its own."""
