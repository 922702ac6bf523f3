"""HPACK: how HTTP/2 writes header fields.

Ours and not a library's, as the emergency hook starts with it and pays for every import. Fields are written plainly,
which every reader takes; what a server writes is read in all its forms.

Source: RFC 7541. The Huffman code of its Appendix B is canonical: the lengths of the codes say it all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

LARGEST_LIST_BYTES = 1024 * 1024
"""Of all fields of a block together: one byte can name a long value of the table, and a block has many bytes."""

_TABLE_BYTES = 4096  # what a server may assume where nothing else was asked for (RFC 7540, SETTINGS_HEADER_TABLE_SIZE)
_OVERHEAD_BYTES = 32  # what a field counts besides its text (RFC 7541, 4.1)
_LARGEST_NUMBER = 2**31 - 1
_LONGEST_PADDING_BITS = 7
_END_OF_STRING = 256

Field = tuple[bytes, bytes]
"""Name and value of a header field."""

_STATIC_TABLE = tuple(
    (name, value)
    for name, _, value in (
        entry.partition(b"=")
        for entry in (
            b":authority;:method=GET;:method=POST;:path=/;:path=/index.html;:scheme=http;:scheme=https;:status=200;"
            b":status=204;:status=206;:status=304;:status=400;:status=404;:status=500;accept-charset;"
            b"accept-encoding=gzip, deflate;accept-language;accept-ranges;accept;access-control-allow-origin;age;"
            b"allow;authorization;cache-control;content-disposition;content-encoding;content-language;content-length;"
            b"content-location;content-range;content-type;cookie;date;etag;expect;expires;from;host;if-match;"
            b"if-modified-since;if-none-match;if-range;if-unmodified-since;last-modified;link;location;max-forwards;"
            b"proxy-authenticate;proxy-authorization;range;referer;refresh;retry-after;server;set-cookie;"
            b"strict-transport-security;transfer-encoding;user-agent;vary;via;www-authenticate"
        ).split(b";")
    )
)
_CODE_BITS = (
    "13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28 "
    "6 10 10 12 13 6 8 11 10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10 "
    "13 6 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6 "
    "15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 15 11 14 13 28 "
    "20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24 "
    "22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22 23 "
    "26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26 28 27 27 27 "
    "20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26 "
    "30"
)


class HpackError(ValueError):
    """A block that cannot be read. What follows it on the connection cannot be read either: the tables now differ."""


def encoded(fields: Iterable[Field]) -> bytes:
    """A block with these fields, that changes no table: literals without indexing (RFC 7541, 6.2.2)."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


class Decoder:
    """Reads the blocks of one connection in their order, and keeps the table that they build."""

    def __init__(self) -> None:
        self._table: list[Field] = []  # the newest first
        self._bytes = 0
        self._limit = _TABLE_BYTES

    def decoded(self, block: bytes) -> list[Field]:
        """The fields of a block. Raises HpackError."""
        fields: list[Field] = []
        total = place = 0
        while place < len(block):
            first = block[place]
            if first & 0xE0 == 0x20:
                if fields:
                    raise HpackError("the size of the table changes after a field")
                place = self._resize(block, place)
                continue
            field, place = self._field(block, place)
            total += _size(field)
            if total > LARGEST_LIST_BYTES:
                raise HpackError(f"header fields are larger than {LARGEST_LIST_BYTES} bytes")
            fields.append(field)
        return fields

    def _field(self, block: bytes, place: int) -> tuple[Field, int]:
        first = block[place]
        if first & 0x80:
            index, place = _number(block, place, 7)
            return self._entry(index), place
        indexed = bool(first & 0x40)
        index, place = _number(block, place, 6 if indexed else 4)
        if index:
            name = self._entry(index)[0]
        else:
            name, place = _string(block, place)
        value, place = _string(block, place)
        if indexed:
            self._add((name, value))
        return (name, value), place

    def _entry(self, index: int) -> Field:
        """Field number `index`, from 1: the static table, then the one of this connection."""
        own = index - 1 - len(_STATIC_TABLE)
        if index == 0 or own >= len(self._table):
            raise HpackError(f"there is no header field {index}")
        return _STATIC_TABLE[index - 1] if own < 0 else self._table[own]

    def _add(self, field: Field) -> None:
        self._table.insert(0, field)
        self._bytes += _size(field)
        self._evict()

    def _resize(self, block: bytes, place: int) -> int:
        self._limit, place = _number(block, place, 5)
        if self._limit > _TABLE_BYTES:
            raise HpackError(f"a table of {self._limit} bytes is larger than {_TABLE_BYTES}")
        self._evict()
        return place

    def _evict(self) -> None:
        while self._bytes > self._limit:
            self._bytes -= _size(self._table.pop())


def _size(field: Field) -> int:
    return len(field[0]) + len(field[1]) + _OVERHEAD_BYTES


def _text(text: bytes) -> bytes:
    """A string literal, plain (RFC 7541, 5.2)."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    size, start = size - 0x7F, bytearray((0x7F,))
    while size >= 0x80:
        start.append(size & 0x7F | 0x80)
        size >>= 7
    start.append(size)
    return bytes(start) + text


def _number(block: bytes, place: int, bits: int) -> tuple[int, int]:
    """An integer whose first byte has it in its last `bits`, and the place after it (RFC 7541, 5.1)."""
    largest = (1 << bits) - 1
    value = block[place] & largest
    place += 1
    if value < largest:
        return value, place
    shift = 0
    while value <= _LARGEST_NUMBER and shift <= 28:
        if place >= len(block):
            raise HpackError("the block ends within a number")
        byte = block[place]
        place += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
    raise HpackError(f"a number is larger than {_LARGEST_NUMBER}")


def _string(block: bytes, place: int) -> tuple[bytes, int]:
    """A string literal and the place after it (RFC 7541, 5.2)."""
    if place >= len(block):
        raise HpackError("the block ends before a string")
    huffman = block[place] & 0x80
    size, place = _number(block, place, 7)
    end = place + size
    if end > len(block):
        raise HpackError("the block ends within a string")
    text = block[place:end]
    return _unpacked(text) if huffman else text, end


def _unpacked(packed: bytes) -> bytes:
    """The text of a Huffman code (RFC 7541, 5.2 and Appendix B)."""
    symbols, text = _symbols(), bytearray()
    code = length = 0
    for byte in packed:
        for shift in range(7, -1, -1):
            code, length = code << 1 | byte >> shift & 1, length + 1
            symbol = symbols.get((length, code))
            if symbol is None:
                continue
            if symbol == _END_OF_STRING:
                raise HpackError("a string has its own end within")
            text.append(symbol)
            code = length = 0
    if length > _LONGEST_PADDING_BITS or code != (1 << length) - 1:
        raise HpackError("a string ends within a symbol")
    return bytes(text)


@cache
def _symbols() -> dict[tuple[int, int], int]:
    """The symbol of each code, by the code's length in bits and its value."""
    lengths = [int(bits) for bits in _CODE_BITS.split()]
    table: dict[tuple[int, int], int] = {}
    code = before = 0
    for symbol in sorted(range(len(lengths)), key=lambda each: (lengths[each], each)):
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        table[before, code] = symbol
        code += 1
    return table
