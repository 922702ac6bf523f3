"""Writes files that are made from the code and kept in `config`."""

from __future__ import annotations

import os
from collections.abc import Iterable


def write_made(directory: str, documents: Iterable[tuple[str, str]]) -> None:
    """Writes each text to its path below the directory."""
    for name, text in documents:
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
