"""Refuses a number without a unit for an amount of a disk in our own configuration.

`margin: 5` was meant as 5 percent or as 5Gi, and would be five bytes. Inodes are counted, so `nodefs.inodesFree:
"1000"` is what it says; and zero is zero in any unit. In the kubelet's own file such a number is legal, and a small one
worth a warning (`eviction.reporting.configuration_warnings`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from eviction.configuration.strict_yaml import quoted
from eviction.configuration.threshold_config import LEFT_TO_KUBELET
from signals.quantity import LONGEST_TEXT
from signals.types import AVAILABLE

COUNT_OF_BYTES = 1 << 10  # from here on a number is one that somebody has counted
UNITS = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
MOST_PERCENT = {"margin": 50}  # that can be advised; of a mark 99, as 100% switches the signal off
_BARE = re.compile(r"\+?(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<part>[num]?)", re.ASCII)


def bare_numbers(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """For each such value of a source: its field, and the end of a sentence about it, with what is allowed."""
    if problem := bare_number("margin", document.get("margin")):
        yield "margin", problem
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        entries = document.get(name)
        for signal, value in entries.items() if isinstance(entries, Mapping) else ():
            if problem := bare_number(name, value, str(signal)):
                yield name, f"{signal}: {problem}"
    table = document.get("reclaimTable")
    for signal, row in table.items() if isinstance(table, Mapping) else ():
        for entry in row if isinstance(row, list) else ():
            below = entry.get("below") if isinstance(entry, Mapping) else None
            if problem := bare_number("below", below, str(signal)):
                yield "reclaimTable", f"{signal}: below: {problem}"


def bare_number(field: str, value: Any, signal: str = AVAILABLE) -> str:
    """The end of a sentence about a number without a unit for an amount of `signal`; empty if it is none."""
    if not signal.endswith(AVAILABLE) or signal in LEFT_TO_KUBELET or isinstance(value, bool):
        return ""
    text = str(value) if isinstance(value, int | str) else ""
    match = _BARE.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        return ""
    number = Fraction(match["number"])
    if match["part"]:
        return f"{quoted(value)} counts parts of a byte: {_allowed(field, number)}"
    return f"{quoted(value)} has no unit: {_allowed(field, number)}" if number else ""


def _allowed(field: str, number: Fraction) -> str:
    """What such a number may have been meant to be; a share of 1 is told as a percentage."""
    if number >= COUNT_OF_BYTES:
        return f"{_in_units(number)}?"
    percent = number * 100 if number < 1 else number
    if 0 < percent <= MOST_PERCENT.get(field, 99):
        return f"{_number(percent)}% or {_number(number)}Gi?"
    return f"{_number(number)}Mi or {_number(number)}Gi?"


def _in_units(number: Fraction) -> str:
    """So many bytes in the largest unit in which it is a whole number; if in none, about as many in the largest one."""
    sizes = [(1 << 10 * power, unit) for power, unit in enumerate(UNITS, 1) if number >= 1 << 10 * power]
    whole = [f"{number // size}{unit}" for size, unit in sizes if number % size == 0]
    size, unit = sizes[-1]
    return whole[-1] if whole else f"{float(number / size):.1f}{unit}"


def _number(number: Fraction) -> str:
    return f"{float(number):.10f}".rstrip("0").rstrip(".")
