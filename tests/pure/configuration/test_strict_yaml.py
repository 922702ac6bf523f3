"""A file is read as it was written, or refused in one sentence that names it."""

from __future__ import annotations

import contextlib
import os
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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a: 012", "012"),
        ("a: yes", "yes"),
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: .nan", ".nan"),
        ("a: .inf", ".inf"),
        ("a: 1.5", "1.5"),
        ("a: 1e3", "1e3"),
        ("a: 1:30", "1:30"),
        ("a: 0x10", "0x10"),
        ("a: 0o17", "0o17"),
        ("a: 1_000", "1_000"),
        ("a: 2024-01-01", "2024-01-01"),
        ("a: True", "True"),
        ("a: 10%", "10%"),
        ("a: 2m", "2m"),
        ("a: '85'", "85"),
        ('a: "true"', "true"),
        ("a: 85", 85),
        ("a: -1", -1),
        ("a: 0", 0),
        ("a: true", True),
        ("a: false", False),
        ("a: null", None),
        ("a: ~", None),
        ("a:", None),
        ("a: ''", ""),
        ("a: [1, b]", [1, "b"]),
        ("a: {}", {}),
        ("a: {b: {c: 1}}", {"b": {"c": 1}}),
    ],
)
def test_only_plain_scalars_of_the_core_schema_have_a_type(written: str, read: object) -> None:
    """`012` is not 10 and `yes` is not true: whatever is not plainly a number or
    true, false, null is text.
    """
    found = parse_document(written, "f")["a"]
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null", "{}"])
def test_an_empty_document_is_an_empty_mapping(text: str) -> None:
    """A file may be empty."""
    assert parse_document(text, "f") == {}


@pytest.mark.parametrize("key", ["012", "yes", "1", "<<"])
def test_keys_are_the_texts_that_were_written(key: str) -> None:
    """No key is guessed to be a number, a truth value or a merge."""
    assert parse_document(f"{key}: x", "f") == {key: "x"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "f: not readable as YAML in line 3: the key 'a' occurs twice"),
        ("a: {b: 1, b: 2}", "f: not readable as YAML in line 1: the key 'b' occurs twice"),
        ("a: 1\n'a': 2", "f: not readable as YAML in line 2: the key 'a' occurs twice"),
        ("a: &x [1]\nb: *x", "f: not readable as YAML in line 2: aliases are not allowed"),
        ("<<: *x", "f: not readable as YAML in line 1: aliases are not allowed"),
        ("? [x]\n: 1", "f: not readable as YAML in line 1: keys must be texts"),
        ("null: x", "f: not readable as YAML in line 1: keys must be texts"),
        ("a: !mine x", "tags are not allowed"),
        ("a: !!python/name:os.system x", "tags are not allowed"),
        ("a: !!int '012'", "tags are not allowed"),
        ("a: !!bool foo", "tags are not allowed"),
        ("a: !!set {x}", "tags are not allowed"),
        ("!!map {a: 1}", "tags are not allowed"),
        ("a: b\n---\nc: d", "f: holds more than one document; one is allowed"),
        ("a: b\n---\n", "f: holds more than one document; one is allowed"),
        ("- a", "f: must be a mapping of fields to values, but it was ['a']"),
        ("text", "f: must be a mapping of fields to values, but it was 'text'"),
        ("12", "f: must be a mapping of fields to values, but it was 12"),
        ("a: 'open", "f: not readable as YAML in line 1: found unexpected end of stream"),
        ("\ta: 1", "f: not readable as YAML in line 1"),
        ("a: b: c", "f: not readable as YAML in line 1: mapping values are not allowed here"),
        ("a: [" + "[" * DEEPEST + "]" * (DEEPEST + 1), f"nested deeper than {DEEPEST}"),
        ("[" * 100_000, f"nested deeper than {DEEPEST}"),
    ],
)
def test_what_is_not_plain_is_refused(text: str, problem: str) -> None:
    """Duplicates, aliases, tags, several documents and depth: the sentence
    names file, line and problem.
    """
    with pytest.raises(ConfigurationError) as refused:
        parse_document(text, "f")
    assert problem in str(refused.value)
    assert str(refused.value).startswith("f: ")


def test_nesting_up_to_the_limit_is_read() -> None:
    """48 lists in one field are below the limit of 50 nodes."""
    depth = DEEPEST - 2
    found: Any = parse_document("a: " + "[" * depth + "]" * depth, "f")["a"]
    for _ in range(depth - 1):
        (found,) = found
    assert found == []


@given(st.text(max_size=60) | st.text(alphabet="ab01:-[]{},&*!|>'\"#%@`? \n\t", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but ConfigurationError comes out of a text."""
    with contextlib.suppress(ConfigurationError):
        assert isinstance(parse_document(text, "f"), dict)


KUBELETS: list[tuple[str, object]] = [
    *(
        (f"a: {text}", True)
        for text in ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE")
    ),
    *(
        (f"a: {text}", False)
        for text in ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE")
    ),
    *((f"a: {text}", None) for text in ("", "~", "null", "Null", "NULL", "!!null ''")),
    *(
        (f"a: {text}", 91)
        for text in ("91", "91.0", "0x5B", "0o133", "0133", "0b1011011", "+91", "9_1", "9.1e1")
    ),
    *(
        (f"a: {text}", 91)
        for text in ("!!int '91'", "!!float 91", "&x 91", "91\t", "91\t# why", "91.")
    ),
    *((f"a: {text}", 0) for text in ("0", "-0", "-0.0", "0x0", "00")),
    *(
        (f"a: {text}", text)
        for text in ("tRue", "oui", "1:30", "2024-01-01", "10%", "1Gi", "1e400", "=", "0o9", "nan")
    ),
    *((f"a: {text}", text) for text in ("unix:///run/x.sock", "a:b", "<<", "-1m")),
    *(
        (f"a: {text}", "91")
        for text in ("'91'", '"91"', "!!str 91", "!mine 91", "!!binary OTE=", "|-\n 91")
    ),
    ("a: 08", 8),
    ("a: -5", -5),
    ("a: 91.5", 91.5),
    ("a: 9223372036854775807", 2**63 - 1),
    ("a: 99999999999999999999", 10**20),
    ("a: [yes, 'no', {b: 0x10}]", [True, "no", {"b": 16}]),
    ("a: {yes: 1, 0x10: 2, 1.5: 3, '4': 4}", {"true": 1, "16": 2, "1.5": 3, "4": 4}),
    ("a:\t{\n\t\tb:\t1,\n\t\t}", {"b": 1}),
    ("x: &x {b: 1, c: 2}\na: *x", {"b": 1, "c": 2}),
    ("x: &x 7\na: *x", 7),
    ("x: &x {b: 1, c: 2}\na: {<<: *x, d: 3}", {"b": 1, "c": 2, "d": 3}),
    ("a: {'<<': {b: 1}}", {"<<": {"b": 1}}),
    ("a: 1\n---\na: [", 1),
    ("a: 1\n...\na: 2", 1),
]
LENIENT: list[tuple[str, object]] = [
    ("a: 1\na: 2", 2),
    ("a: [1]\na: x", "x"),
    ("a: {b: 1, b: 2}", {"b": 2}),
    ("a: {yes: 1, on: 2}", {"true": 2}),
    ("x: &x {b: 1}\na: {<<: *x, b: 2}", {"b": 2}),
    ("x: &x {b: 1}\na: {b: 2, <<: *x}", {"b": 1}),
    ("x: &x {b: 1}\ny: &y {b: 2, c: 3}\na: {<<: [*x, *y]}", {"b": 1, "c": 3}),
    ("x: &x {b: 1}\ny: &y {b: 2, c: 3}\na: {<<: *x, <<: *y}", {"b": 2, "c": 3}),
]


@pytest.mark.regression
@pytest.mark.parametrize(("text", "read"), KUBELETS + LENIENT)
def test_the_kubelets_file_has_the_values_that_it_has_for_a_kubelet(
    text: str, read: object
) -> None:
    """What kubelet 1.36's own decoder (DecodeKubeletConfiguration) made of each of them."""
    found = parse_kubelets_file(text, "f")["a"]
    assert (found, type(found)) == (read, type(read))


@pytest.mark.regression
@pytest.mark.parametrize(("text", "read"), KUBELETS)
def test_so_has_a_drop_in(text: str, read: object) -> None:
    """DecodeKubeletConfigurationIntoJSON."""
    assert parse_kubelets_drop_in(text, "f")["a"] == read


@pytest.mark.regression
@pytest.mark.parametrize("text", [text for text, _ in LENIENT])
def test_a_key_that_is_set_twice_is_refused_in_a_drop_in_as_by_a_kubelet(text: str) -> None:
    """There is no lenient decoder for drop-ins."""
    with pytest.raises(
        ConfigurationError, match=r"f: not readable as YAML in line \d: the key '\w+' occurs twice$"
    ):
        parse_kubelets_drop_in(text, "f")


@pytest.mark.regression
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: .nan", ".nan is not a number that JSON has"),
        ("a: [-.inf]", "-.inf is not a number that JSON has"),
        ("a: {null: 1}", "keys must be texts, numbers or truth values"),
        ("? [a]\n: 1", "keys must be texts, numbers or truth values"),
        ("a: {<<: 1}", "a merge key needs a mapping, or a list of them"),
        ("a: {<<: [1]}", "a merge key needs a mapping, or a list of them"),
        ("a: *x", "found undefined alias"),
        ("a: &x [*x]", f"nested deeper than {DEEPEST}"),
        ("a: &x {<<: *x}", f"nested deeper than {DEEPEST}"),
        ("a: b: c", "mapping values are not allowed here"),
        ("\ta: 1", "cannot start any token"),
        ("[" * 100_000, f"nested deeper than {DEEPEST}"),
        (f"x: &x {'[' * 30}{']' * 30}\na: {'[' * 30}*x{']' * 30}", f"nested deeper than {DEEPEST}"),
        (
            "x: &x [" + "1," * 999 + "]\ny: &y [" + "*x," * 99 + "]\nz: [" + "*y," * 99 + "]",
            "comes from aliases",
        ),
        ("- a", "must be a mapping of fields to values"),
    ],
)
def test_what_a_kubelet_does_not_read_either_is_refused(text: str, problem: str) -> None:
    """Or what would cost too much: depth, and aliases of aliases, which go-yaml refuses as well."""
    with pytest.raises(ConfigurationError) as refused:
        parse_kubelets_file(text, "f")
    assert problem in str(refused.value)
    assert str(refused.value).startswith("f: ")


@given(st.text(max_size=60) | st.text(alphabet="ab01:-[]{},&*!|>'\"#%@`? \n\t<", max_size=40))
def test_any_text_of_a_kubelets_is_read_or_refused(text: str) -> None:
    """Nothing but ConfigurationError comes out; what a drop-in may hold, the file may hold."""
    with contextlib.suppress(ConfigurationError):
        drop_in = parse_kubelets_drop_in(text, "f")
        assert repr(parse_kubelets_file(text, "f")) == repr(drop_in)


def test_a_file_is_read(tmp_path: Path) -> None:
    """UTF-8, with or without a byte order mark."""
    path = tmp_path / "c.yaml"
    path.write_bytes("a: grün\n".encode())
    assert read_document(str(path)) == {"a": "grün"}
    path.write_bytes("a: grün\n".encode("utf-8-sig"))
    assert read_document(str(path)) == {"a": "grün"}


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that was named must be there."""
    with pytest.raises(
        ConfigurationError, match=r"/none\.yaml: cannot be read: No such file or directory$"
    ):
        read_document(str(tmp_path / "none.yaml"))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory in the place of a file."""
    with pytest.raises(ConfigurationError, match=r": cannot be read: Is a directory$"):
        read_document(str(tmp_path))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The sentence names the byte."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigurationError, match=r"c\.yaml: not UTF-8 at byte 3$"):
        read_document(str(path))


def test_a_file_over_1_mib_is_refused(tmp_path: Path) -> None:
    """It is not even parsed."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"#" * (LARGEST_BYTES + 1))
    with pytest.raises(
        ConfigurationError, match=r"c\.yaml: larger than 1048576 bytes, the largest allowed$"
    ):
        read_document(str(path))
    path.write_bytes(b"#" * LARGEST_BYTES)
    assert read_document(str(path)) == {}


def test_a_pipe_in_the_place_of_a_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    """A FIFO without a writer would block for ever."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        read_document(str(path))
