"""Splits the response of a list call into its entries, so that 50 000 containers are never all held as messages.

The responses of CRI's list calls have their entries in field 1, and no other field is needed. Each message of their
streaming variants (KEP-5825) has one entry in field 1.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

_ENTRIES = 1
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10  # bytes


class MalformedList(ValueError):
    """Bytes that are no response of a list call."""


def entries(answer: bytes | bytearray) -> Iterator[bytes]:
    """The bytes of each entry of a response, in order; other fields are skipped. Raises MalformedList."""
    place, end = 0, len(answer)
    while place < end:
        tag, place = _varint(answer, place)
        kind = tag & 7
        if kind == _VARINT:
            _, place = _varint(answer, place)
        elif kind in _FIXED:
            place += _FIXED[kind]
        elif kind == _LENGTH:
            size, place = _varint(answer, place)
            if place + size > end:
                raise MalformedList(f"an entry of {size} bytes ends after the answer")
            if tag >> 3 == _ENTRIES:
                yield bytes(answer[place : place + size])
            place += size
        else:
            raise MalformedList(f"wire type {kind} is unknown")
    if place > end:
        raise MalformedList("a field ends after the answer")


def _varint(answer: bytes | bytearray, place: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = 0
    for count in range(_LONGEST_VARINT):
        if place >= len(answer):
            raise MalformedList("the answer ends within a number")
        byte = answer[place]
        place += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place
    raise MalformedList(f"a number has more than {_LONGEST_VARINT} bytes")
