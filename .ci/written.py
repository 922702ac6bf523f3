"""Writes generated files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


def write(what: str, documents: Iterable[tuple[str, str]]) -> None:
    """Writes files, (path, text), below the directory that the command line names.

    `what`: a sentence for --help.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument(
        "directory", metavar="DIRECTORY", type=Path, help="the files are written below it"
    )
    directory = parser.parse_args().directory
    for path, text in documents:
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
