"""What a configuration is worth, told in `told/accepted.txt`, `refused.txt` and `inherited.txt`.

A story is our file, or several files: `@ NAME` begins another one, `whole` stands before one without
the head of its kind. `environment` and `flags` are what their names say, `process` is a kubelet with
these arguments, `search` looks for one. What comes of it follows after `=>`: the thresholds and
values that are not the defaults, where they are from, and warnings; or the sentence with which it
is refused, and whether the schema refuses it too. `UPDATE=1` writes that anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.kubelet import KUBELETS_DEFAULTS, KubeletFields
from eviction.configuration.strict_yaml import parse_document
from eviction.wording.configuration_warnings import configuration_warnings
from tests.expected import expect
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
            add_process(root, words, 100 + len(list(root.glob("proc/*"))))
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


@pytest.mark.parametrize("name", ["accepted", "refused", "inherited"])
def test_what_is_written_has_the_outcome_that_is_told(name: str, tmp_path: Path) -> None:
    """Whole: every value that differs from the default, and every sentence."""
    told = TOLD / f"{name}.txt"
    stories = re.sub("^=> .*\n", "", told.read_text(), flags=re.MULTILINE).split("\n\n")
    for number, written in enumerate(stories):
        root = tmp_path / str(number)
        root.mkdir()
        story = re.sub("^# .*\n", "", written + "\n", flags=re.MULTILINE)
        lines = outcome(story.replace("ROOT", str(root)), root)
        stories[number] = "\n".join(
            [
                written.rstrip("\n"),
                *(f"=> {line}".replace(str(root), "ROOT").rstrip() for line in lines),
            ]
        )
    text = "\n\n".join(stories) + "\n"
    expect(told, text)
    if name != "inherited":
        assert text.count("\n=> refused: ") == (len(stories) if name == "refused" else 0)
