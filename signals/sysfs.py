"""Reads of sysfs: what is not there, or may not be read, is empty or None."""

from __future__ import annotations

import os

SYS = "/sys"


def names_in(directory: str) -> list[str]:
    """The names in a directory, sorted."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def text_of(path: str) -> str:
    """The text of an attribute without the line's end."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def number_of(path: str) -> int | None:
    """The number in an attribute."""
    try:
        return int(text_of(path))
    except ValueError:
        return None
