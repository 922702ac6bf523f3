"""Texts that the kernel would not take: paths, sockets, addresses and names are checked where they are read.

A NUL ends a text for the kernel, and Python raises ValueError for it; a lone surrogate has no bytes in UTF-8 (a YAML
escape such as "\\ud800", or a byte of a flag or a variable that is not UTF-8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eviction.configuration.strict_yaml import quoted


def unfit_texts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """For each such text: its field (`evictionHard.nodefs.available`), and the end of a sentence about it."""
    for name, value in document.items():
        yield from _unfit(str(name), name)
        yield from _unfit(str(name), value)


def _unfit(field: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _unfit(field, key)
            yield from _unfit(f"{field}.{key}", each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _unfit(field, each)
    elif isinstance(value, str) and (what := _unfit_character(value)):
        yield field, f"must hold no {what}, but it was {quoted(value)}"


def _unfit_character(text: str) -> str:
    if "\0" in text:
        return "NUL"
    return "lone surrogate (a character that is not UTF-8)" if any("\ud800" <= c <= "\udfff" for c in text) else ""
