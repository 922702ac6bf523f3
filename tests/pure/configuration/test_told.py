"""What a configuration is worth, told in `told/accepted.txt`, `refused.txt` and `inherited.txt`.

A story is our file, or several files: `@ NAME` begins another one, `whole` stands before one
without the head of its kind. `environment` and `flags` are what their names say, `process` is a
kubelet with these arguments, in /proc otherwise as written below; `search` looks for one. What
comes of it follows after `=>`: the thresholds and values that are not the defaults, where they are
from, and warnings; or the sentence with which it is refused, and whether the schema refuses it too.

A text is read as it was written, or as a kubelet reads it, or refused in one sentence:
`told/yaml.txt` has what becomes of the field `a`, or of the document, in our own files, the
kubelet's file and its drop-ins. `UPDATE=1` writes all anew."""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.kubelet import KUBELETS_DEFAULTS, KubeletFields
from eviction.configuration.strict_yaml import (
    DEEPEST,
    LARGEST_BYTES,
    parse_document,
    parse_kubelets_drop_in,
    parse_kubelets_file,
    read_document,
)
from eviction.wording.configuration_warnings import configuration_warnings
from tests.expected import expect
from tests.rows import rows
from tests.schemas import problems, validator

TOLD = Path(__file__).with_name("told")
OURS = "apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\n"
KUBELETS = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
HEAD = ("apiVersion", "kind")
DEFAULTS = load(None, {}, {})
SHOWN_OTHERWISE = (
    *("thresholds", "left_to_kubelet", "kubelet", "kubelet_remark", "origins", "effective"),
    *("eviction_hard", "eviction_soft", "eviction_soft_grace_period", "eviction_minimum_reclaim"),
)


def add_process(root: Path, arguments: list[str], pid: int = 100, /, **other: str) -> Path:
    """A process below `root`/proc: a kubelet of the node, but for what is `other`."""
    entry = root / "proc" / str(pid)
    entry.mkdir(parents=True)
    fields = {
        "comm": "kubelet",
        "argv0": "/usr/bin/kubelet",
        "exe": "/usr/bin/kubelet",
        "root": "/",
    }
    fields |= {"cwd": f"{root}/kubelets", "uids": f"{os.geteuid()}\t" * 4, "pids": str(pid)}
    fields |= {"parent": "1", **other}
    (entry / "comm").write_text(f"{fields['comm']}\n")
    words = (fields["argv0"], *arguments)
    (entry / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (entry / "status").write_text(
        f"PPid:\t{fields['parent']}\nUid:\t{fields['uids']}\nNSpid:\t{fields['pids']}\n"
    )
    for name in ("exe", "root", "cwd"):
        if fields[name]:
            (entry / name).symlink_to(fields[name])
    return entry


def configuration_of(story: str, root: Path) -> Configuration:
    """What is in force where a story is laid out, below `root`."""
    if not story.startswith("@ "):
        story = f"@ reclaimd.yaml\n{story}"
    parts = [part.partition("\n") for part in re.split("^@ ", story, flags=re.MULTILINE)[1:]]
    given: dict[str, dict[str, Any]] = {"environment": {}, "flags": {}}
    ours = root / "reclaimd.yaml"
    for place, _, text in parts:
        what, *words = place.split()
        if what in given:
            given[what] = parse_document(text, what)
        elif what == "process":
            other = yaml.safe_load(text) or {}
            add_process(root, words, 100 + len(list(root.glob("proc/*"))), **other)
        elif what != "search":
            path = root / (words or [what])[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            head = KUBELETS if what.startswith(("kubelet", "var")) else OURS
            path.write_text(text if what == "whole" else head + text)
    named = {"kubeletConfig": root / "kubelet.yaml", "kubeletConfigDir": root / "kubelet.d"}
    fields = [f"{name}: {path}\n" for name, path in named.items() if path.exists()]
    if fields:
        ours.write_text((ours.read_text() if ours.exists() else OURS) + "".join(fields))
    drop_ins = root / "reclaimd.d"
    searches = re.search("^@ (process|search|var)", story, re.MULTILINE)
    return load(
        str(ours) if ours.exists() else None,
        given["environment"],
        given["flags"],
        directory=str(drop_ins) if drop_ins.exists() else None,
        root=str(root) if searches else None,
    )


def in_force(found: Configuration) -> Iterator[str]:
    """Whatever is not as by default."""
    if found.thresholds != DEFAULTS.thresholds:
        yield f"{len(found.thresholds)} thresholds"
    for one in found.thresholds:
        if one not in DEFAULTS.thresholds:
            grace = f" for {one.grace_seconds:g}s" if one.grace_seconds else ""
            yield f"{one.signal} {one.text()}{grace}, {one.min_reclaim} more, from {one.origin}"
    if found.left_to_kubelet != DEFAULTS.left_to_kubelet:
        yield f"left to the kubelet: {found.left_to_kubelet}"
    own = [name for name in type(found).model_fields if name not in SHOWN_OTHERWISE]
    kubelets = KubeletFields.model_fields if found.kubelet else ()
    for whose, names, here, default in (
        ("", own, found, DEFAULTS),
        ("the kubelet's ", kubelets, found.kubelet, KUBELETS_DEFAULTS),
    ):
        for name in names:
            if getattr(here, name) != getattr(default, name):
                yield f"{whose}{name} = {getattr(here, name)}"
    for name, origin in found.origins.items():
        field, _, key = name.partition(".")
        value = found.effective[field][key] if key else found.effective[field]
        if origin not in ("default", DEFAULTS.origins.get(name)) and name not in HEAD:
            yield f"{name}: {value!r} from {origin}"
    if found.expects_kubelet:
        yield "a kubelet that is silent is warned of"
    for warning in configuration_warnings(found):
        yield f"warning: {warning}"


def outcome(story: str, root: Path) -> Iterator[str]:
    """What is in force in a story, or why nothing is."""
    refused = None
    try:
        yield from in_force(configuration_of(story, root))
    except ConfigurationError as error:
        refused = f"refused: {error}"
        yield refused
    if not story.startswith("@ "):
        document = parse_document(OURS + story.partition("\n@ ")[0], "")
        wrong = problems(validator("configuration"), document)
        if refused and not wrong:
            yield "the schema accepts it"
        assert refused or wrong == []


def tell(told: Path, lines_of: Callable[[int, str], Iterable[str]]) -> str:
    """Expects behind each story of the file what comes of it; what begins with `#` is for
    readers."""
    stories = re.sub("^=> .*\n", "", told.read_text(), flags=re.MULTILINE).split("\n\n")
    for number, written in enumerate(stories):
        story = re.sub("^# .*\n", "", written + "\n", flags=re.MULTILINE)
        lines = (f"=> {line}".rstrip() for line in lines_of(number, story))
        stories[number] = "\n".join([written.rstrip("\n"), *lines])
    text = "\n\n".join(stories) + "\n"
    expect(told, text)
    return text


@pytest.mark.parametrize("name", ["accepted", "refused", "inherited"])
def test_what_is_written_has_the_outcome_that_is_told(name: str, tmp_path: Path) -> None:
    """Whole: every value that differs from the default, and every sentence."""

    def lines_of(number: int, story: str) -> Iterator[str]:
        root = tmp_path / str(number)
        root.mkdir()
        for line in outcome(story.replace("ROOT", str(root)), root):
            yield line.replace(str(root), "ROOT")

    text = tell(TOLD / f"{name}.txt", lines_of)
    if name != "inherited":
        refused = text.count("\n\n") + 1 if name == "refused" else 0
        assert text.count("\n=> refused: ") == refused


# ---- texts

READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "ours": parse_document,
    "file": parse_kubelets_file,
    "drop-in": parse_kubelets_drop_in,
}


def read_as(parse: Callable[[str, str], dict[str, Any]], text: str) -> str:
    """What is read, with its types, or the sentence of the refusal."""
    try:
        document = parse(text, "f")
    except ConfigurationError as error:
        return f"refused: {error}"
    return repr(document.get("a", document))


def test_a_text_has_the_meaning_that_its_reader_gives_it() -> None:
    """For us `012` is not 10 and `yes` is not true, and duplicates, aliases, tags and several
    documents are refused; the kubelet's file has the values that it has for a kubelet."""

    def lines_of(_: int, text: str) -> Iterable[str]:
        by = {name: read_as(parse, text.removesuffix("\n")) for name, parse in READERS.items()}
        if len({*by.values()}) == 1:
            return [by["ours"]]
        return [f"{name}: {what}" for name, what in by.items()]

    tell(TOLD / "yaml.txt", lines_of)


NESTED = f"nested deeper than {DEEPEST}"
TWICE_30 = f"x: &x {'[' * 30}{']' * 30}\na: {'[' * 30}*x{']' * 30}"
MANY_ALIASES = f"x: &x [{'1,' * 999}]\ny: &y [{'*x,' * 99}]\nz: [{'*y,' * 99}]"


@pytest.mark.parametrize("reader", READERS)
def test_what_would_cost_too_much_is_refused(reader: str) -> None:
    """Depth, and for a kubelet aliases of aliases, which go-yaml refuses as well."""
    depth = DEEPEST - 2
    within = f"a: {'[' * depth}{']' * depth}"
    assert read_as(READERS[reader], within) == "[" * depth + "]" * depth
    for text, problem in (
        (f"a: [{'[' * DEEPEST}{']' * (DEEPEST + 1)}", NESTED),
        ("[" * 1_500, NESTED),
        (TWICE_30, NESTED),
        (MANY_ALIASES, "comes from aliases"),
    ):
        told = read_as(READERS[reader], text)
        assert told.startswith("refused: f: ")
        assert (problem if reader != "ours" or "*" not in text else "aliases are not") in told


@given(st.text("ab01:-[]{},&*!|>'\"#%@`? \n\t<\\", max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused_by_each(text: str) -> None:
    """Nothing but ConfigurationError comes out, in one line; what a drop-in may hold, the file may
    hold."""
    told = {name: read_as(parse, text) for name, parse in READERS.items()}
    refused = {name for name, what in told.items() if what.startswith("refused: f: ")}
    assert not any("\n" in what for what in told.values())
    assert "drop-in" in refused or told["drop-in"] == told["file"]


def test_a_file_is_utf_8_of_at_most_one_mebibyte(tmp_path: Path) -> None:
    """With a byte order mark or without."""
    path, text = tmp_path / "c.yaml", "a: grün\n"
    for content in (text.encode(), text.encode("utf-8-sig"), text.encode().ljust(LARGEST_BYTES)):
        path.write_bytes(content)
        assert read_document(str(path)) == {"a": "grün"}


@rows(r"""
    commands              | problem
    truncate -s 1048577 f | larger than 1.0MiB, the largest allowed
    printf 'a: \377' >f   | not UTF-8 at byte 3
    true                  | cannot be read: No such file or directory
    mkdir f               | cannot be read: Is a directory
    mkfifo f              | is not a regular file
""")
def test_what_is_no_file_of_text_is_refused(tmp_path: Path, commands: str, problem: str) -> None:
    """A FIFO without a writer would block for ever."""
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True)
    with pytest.raises(ConfigurationError, match=f"{problem}$"):
        read_document(f"{tmp_path}/f")
