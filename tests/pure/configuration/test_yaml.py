"""A text is read as it was written, or as a kubelet reads it, or refused in one sentence.

`told/yaml.txt` has what becomes of the field `a`, or of the document, in our own files, the
kubelet's file and its drop-ins.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.strict_yaml import (
    DEEPEST,
    LARGEST_BYTES,
    ConfigurationError,
    parse_document,
    parse_kubelets_drop_in,
    parse_kubelets_file,
    read_document,
)
from tests.expected import expect
from tests.pure.configuration.test_told import TOLD

READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "ours": parse_document,
    "file": parse_kubelets_file,
    "drop-in": parse_kubelets_drop_in,
}


def outcome(parse: Callable[[str, str], dict[str, Any]], text: str) -> str:
    """What is read, with its types, or the sentence of the refusal."""
    try:
        document = parse(text, "f")
    except ConfigurationError as error:
        return f"refused: {error}"
    return repr(document.get("a", document))


def test_a_text_has_the_meaning_that_its_reader_gives_it() -> None:
    """For us `012` is not 10 and `yes` is not true, and duplicates, aliases, tags and several
    documents are refused; the kubelet's file has the values that it has for a kubelet."""
    told = TOLD / "yaml.txt"
    blocks = re.sub("^=> .*\n", "", told.read_text(), flags=re.MULTILINE).split("\n\n")
    for number, block in enumerate(blocks):
        text = re.sub("^# .*\n", "", block, flags=re.MULTILINE)
        by = {name: outcome(parse, text) for name, parse in READERS.items()}
        lines = [f"=> {name}: {what}" for name, what in by.items()]
        if len({*by.values()}) == 1:
            lines = [f"=> {by['ours']}"]
        blocks[number] = "\n".join([block.rstrip("\n"), *lines])
    expect(told, "\n\n".join(blocks) + "\n")


NESTED = f"nested deeper than {DEEPEST}"
TWICE_30 = f"x: &x {'[' * 30}{']' * 30}\na: {'[' * 30}*x{']' * 30}"
MANY_ALIASES = f"x: &x [{'1,' * 999}]\ny: &y [{'*x,' * 99}]\nz: [{'*y,' * 99}]"


@pytest.mark.parametrize("reader", READERS)
def test_what_would_cost_too_much_is_refused(reader: str) -> None:
    """Depth, and for a kubelet aliases of aliases, which go-yaml refuses as well."""
    depth = DEEPEST - 2
    within = f"a: {'[' * depth}{']' * depth}"
    assert outcome(READERS[reader], within) == "[" * depth + "]" * depth
    for text, problem in (
        (f"a: [{'[' * DEEPEST}{']' * (DEEPEST + 1)}", NESTED),
        ("[" * 100_000, NESTED),
        (TWICE_30, NESTED),
        (MANY_ALIASES, "comes from aliases"),
    ):
        told = outcome(READERS[reader], text)
        assert told.startswith("refused: f: ")
        assert (problem if reader != "ours" or "*" not in text else "aliases are not") in told


@given(st.text(max_size=60) | st.text(alphabet="ab01:-[]{},&*!|>'\"#%@`? \n\t<", max_size=40))
def test_any_text_is_read_or_refused_by_each(text: str) -> None:
    """Nothing but ConfigurationError comes out; what a drop-in may hold, the file may hold."""
    with contextlib.suppress(ConfigurationError):
        assert isinstance(parse_document(text, "f"), dict)
    with contextlib.suppress(ConfigurationError):
        drop_in = parse_kubelets_drop_in(text, "f")
        assert repr(parse_kubelets_file(text, "f")) == repr(drop_in)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: grün\n".encode(), {"a": "grün"}),
        ("a: grün\n".encode("utf-8-sig"), {"a": "grün"}),
        (b"#" * LARGEST_BYTES, {}),
        (b"#" * (LARGEST_BYTES + 1), "larger than 1.0MiB, the largest allowed"),
        (b"a: \xff\n", "not UTF-8 at byte 3"),
    ],
    ids=["utf-8", "with a byte order mark", "1 MiB", "over 1 MiB", "latin-1"],
)
def test_a_file_is_read(tmp_path: Path, content: bytes, told: object) -> None:
    """UTF-8 of at most 1 MiB."""
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    try:
        assert read_document(str(path)) == told
    except ConfigurationError as error:
        assert str(error) == f"{path}: {told}"  # noqa: PT017 # or it is read


def test_what_is_no_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    """A FIFO without a writer would block for ever."""
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (
        ("none", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("pipe", "is not a regular file"),
    ):
        with pytest.raises(ConfigurationError, match=f"{problem}$"):
            read_document(str(tmp_path / name))
