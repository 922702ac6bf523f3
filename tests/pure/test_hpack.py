"""Header fields of HTTP/2: against the examples of the RFC, and against another implementation of it."""

from __future__ import annotations

import contextlib

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri.hpack import LARGEST_LIST_BYTES, Decoder, Field, HpackError, encoded

SMALL_TABLE = bytes.fromhex("3fe101")  # a table of 256 bytes, as the examples of the RFC's responses have it

RESPONSES = [
    [
        (b":status", b"302"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ],
    [
        (b":status", b"307"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ],
    [
        (b":status", b"200"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT"),
        (b"location", b"https://www.example.com"),
        (b"content-encoding", b"gzip"),
        (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]
PLAIN = [  # RFC 7541, C.5
    (
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f"
        "2f7777772e6578616d706c652e636f6d"
    ),
    "4803333037c1c0bf",
    (
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b"
        "425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31"
    ),
]
HUFFMAN = [  # RFC 7541, C.6
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
    (
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af2708"
        "7f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
    ),
]

names = st.binary(min_size=1, max_size=20)
values = st.binary(max_size=60) | st.builds(bytes.__mul__, st.binary(min_size=1, max_size=3), st.integers(0, 900))
fields = st.tuples(names, values)
blocks = st.lists(st.tuples(st.lists(fields, max_size=6), st.booleans(), st.none() | st.integers(0, 4096)), max_size=12)


@pytest.mark.parametrize("blocks", [PLAIN, HUFFMAN], ids=["plain", "huffman"])
def test_the_examples_of_the_rfc_are_read_as_they_are_meant(blocks: list[str]) -> None:
    """Three responses on one connection, with a table so small that entries fall out of it."""
    decoder = Decoder()
    assert decoder.decoded(SMALL_TABLE) == []
    assert [decoder.decoded(bytes.fromhex(block)) for block in blocks] == RESPONSES


@given(blocks)
def test_what_another_implementation_writes_is_read(
    blocks: list[tuple[list[Field], bool, int | None]],
) -> None:
    """Indexed or not, by Huffman or not, whatever size it gives its table, over a whole connection."""
    encoder, decoder = hpack.Encoder(), Decoder()
    for written, huffman, table_bytes in blocks:
        if table_bytes is not None:
            encoder.header_table_size = table_bytes
        assert decoder.decoded(encoder.encode(written, huffman=huffman)) == written


@given(st.lists(st.tuples(names, values | st.binary(min_size=120, max_size=140)), max_size=6))
def test_what_is_written_is_read_by_another_implementation(written: list[Field]) -> None:
    """Also where the length of a text takes more than one byte."""
    assert [tuple(field) for field in hpack.Decoder().decode(encoded(written), raw=True)] == written


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_bytes_of_any_kind_are_fields_or_refused(blocks: list[bytes]) -> None:
    """No other error, whatever a server sends."""
    decoder = Decoder()
    for block in blocks:
        with contextlib.suppress(HpackError):
            assert all(isinstance(part, bytes) for field in decoder.decoded(block) for part in field)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"\x80", "no header field 0"),
        (b"\xbe", "no header field 62"),
        (b"\x00\x05ab", "ends within a string"),
        (b"\x00", "ends before a string"),
        (b"\x7f", "ends within a number"),
        (b"\x7f\xff\xff\xff\xff\xff\x7f", "a number is larger than"),
        (b"\x3f\xe2\x1f", "a table of 4097 bytes is larger than 4096"),
        (b"\x82\x20", "changes after a field"),
        (b"\x00\x81\x00\x00", "ends within a symbol"),  # padding that is not the beginning of the end of a string
        (b"\x00\x84\xff\xff\xff\xff\x00", "its own end within"),
    ],
)
def test_a_block_that_breaks_the_rules_is_refused_in_a_sentence(block: bytes, words: str) -> None:
    """Each rule of the RFC that a server can break."""
    with pytest.raises(HpackError, match=words):
        Decoder().decoded(block)


def test_a_few_bytes_cannot_become_gibibytes() -> None:
    """One byte names an entry of 4 KiB: a block of them ends at 1 MiB of fields, not at a full memory."""
    decoder = Decoder()
    assert len(decoder.decoded(encoded([(b"a", b"b")]) * 3)) == 3
    long = hpack.Encoder().encode([(b"x", b"y" * 4000)])
    assert decoder.decoded(long) == [(b"x", b"y" * 4000)]
    with pytest.raises(HpackError, match=f"larger than {LARGEST_LIST_BYTES} bytes"):
        decoder.decoded(b"\xbe" * 1_000_000)
