"""What commands print on a small node, whole: by themselves, by the daemon, and without grpcio; what
they refuse, with the exit code and one sentence that names the mistake; and what doctor finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from eviction.doctor.facts import inotify_instances
from signals.types import FsLayout, Signal
from tests.expected import expect
from tests.nodes.small_node import MIB, SmallNode
from tests.printed import expect_console, normalized
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
)
from tests.rows import rows, rows_of
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.passes import satisfied
from tests.sockets.stage import Stage, located

EXPECTED = Path(__file__).with_name("expected")
NODEFS = Signal.NODEFS_AVAILABLE
PODS = ["container", "container", "sandbox"]  # what is left of those that are over


@pytest.fixture
def crowded(small_node: SmallNode) -> SmallNode:
    """Three old images of 4 MiB, a running pod, a crashed one with two dead copies, one that is
    gone."""
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    crashed = small_node.run_pod("crashed")
    for attempt in range(2):
        small_node.exited(crashed, attempt=attempt)
    small_node.gone_pod("gone")
    return small_node


def by_itself(*words: str) -> CompletedProcess[str]:
    """The command does the work."""
    return reclaimd_here(*words, *(["--standalone"] if words[0] in ("check", "reclaim") else []))


def by_daemon(*words: str) -> CompletedProcess[str]:
    """The daemon does it; which turn the request had is not said."""
    done = reclaimd_here(*words)
    assert "doing the work here" not in done.stderr
    done.stderr = re.sub(r"reclaimd: the daemon is .*; waiting for its turn\n", "", done.stderr)
    return done


@pytest.fixture(scope="module")
def without_grpcio(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH of a process in which there is no grpc: Python imports sitecustomize as it
    starts."""
    directory = tmp_path_factory.mktemp("without")
    (directory / "sitecustomize.py").write_text("import sys; sys.modules['grpc'] = None")
    command = [sys.executable, "-c", "import grpc"]
    tried = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(directory)}, capture_output=True, check=False
    )
    assert b"ModuleNotFoundError: import of grpc halted" in tried.stderr, "it is really refused"
    return str(directory)


@rows(
    """
    story       | who            | above | fields                          | pods | images
    check       | itself         | 6     | {}                              |      | 0
    check       | daemon         | 6     | {}                              |      | 0
    clear       | itself         | -1    | {}                              |      | 0
    clear       | daemon         | -1    | {}                              |      | 0
    plan        | itself         | 6     | {}                              |      | 0
    plan-signal | itself         |       | {}                              |      | 0
    young       | itself         | 6     | {imageMinimumGCAge: 2h}         | go   | 0
    reclaim     | itself         | 6     | {}                              | go   | 2
    reclaim     | daemon         | 6     | {}                              | go   | 2
    reclaim     | without grpcio | 6     | {}                              | go   | 2
    not-enough  | itself         | 50    | {}                              | go   | 3
    not-enough  | daemon         | 50    | {}                              | go   | 3
    all         | itself         | 1     | {}                              | go   | 3
    all         | daemon         | 1     | {}                              | go   | 3
    row         | itself         |       | {}                              | go   | 3
    row         | daemon         |       | {}                              | go   | 3
    until       | itself         |       | {}                              | go   | 3
    until       | daemon         |       | {}                              | go   | 3
    boot        | itself         | 1     | {holdOffAfterStart: 1000000h}   | go   | 1
    room        | itself         |       | {extent: all}                   | go   | 3
    room        | daemon         |       | {extent: all}                   | go   | 3
    """
)
def test_a_command_prints_the_same_whoever_does_the_work(
    crowded: SmallNode,
    without_grpcio: str,
    story: str,
    who: str,
    above: int | None,
    fields: str,
    pods: bool,
    images: int,
) -> None:
    """Tables, documents, sentences, exit codes, and what is removed: by itself, with and without
    grpcio, and by a daemon, which holds off for an hour, so that it removes only what it is asked
    for. The node is so many MiB `above` what it has under pressure."""
    directory = str(crowded.disk.parent)
    given = {"controlSocket": f"{directory}/run/c", **yaml.safe_load(fields)}
    if who == "daemon":
        given["holdOffAfterStart"] = "1h"
    file = crowded.configuration(NODEFS if above else None, (above or 0) * MIB, **given)
    context: Any = Daemon("--config", file) if who == "daemon" else nullcontext()
    with context:
        assert who != "daemon" or came_true(lambda: located(file))
        run: Any = {
            "itself": by_itself,
            "daemon": by_daemon,
            "without grpcio": partial(reclaimd, PYTHONPATH=without_grpcio),
        }[who]
        expect_console(EXPECTED / f"{story}.txt", {"CONFIG": file, "DIRECTORY": directory}, run)
    removed = PODS * pods + ["image"] * images
    assert [each.kind for each in crowded.runtime.removals] == removed


def test_the_row_is_that_of_the_layout(make_small_node: SmallNodeFactory) -> None:
    """Of nodefs containers alone in the split layout, and nothing beside a dedicated imagefs: no
    image goes for room there."""
    split, dedicated = make_small_node(FsLayout.SPLIT), make_small_node(FsLayout.DEDICATED_IMAGEFS)
    for small in (split, dedicated):
        small.add_images(1)
        small.gone_pod("gone")
    (dedicated.disk / "taken").write_bytes(bytes(MIB))
    known = {
        "SPLIT": split.configuration(),
        "DEDICATED": dedicated.configuration(),
        "DIRECTORY": str(split.disk.parents[1]),
    }
    expect_console(EXPECTED / "layouts.txt", known)
    assert (split.removed("image"), dedicated.removed()) == ([], [])


def test_what_node_problem_detector_reads_is_one_short_line(stage: Stage) -> None:
    """It cuts the message at 80 characters; 0, 1 and 4 are its OK, problem and unknown."""
    printed = [line for line in stage.plays() if not line.startswith("$ ")]
    assert max(map(len, printed)) <= 80


def test_without_grpcio_the_daemon_relieves_and_a_drill_says_what_is_missing(
    small_node: SmallNode, without_grpcio: str, tmp_path: Path
) -> None:
    """One sentence before anything is made."""
    small_node.add_images(3)
    file = small_node.configuration(NODEFS, 2 * MIB, metricsAddress="127.0.0.1:0")
    with Daemon("--config", file, PYTHONPATH=without_grpcio) as daemon:
        daemon.wait_for(satisfied)
    assert small_node.removed("image")
    known, run = {"DIRECTORY": str(tmp_path)}, partial(reclaimd, PYTHONPATH=without_grpcio)
    expect_console(EXPECTED / "without-grpcio.txt", known, run)
    assert not (tmp_path / "report").exists()


def test_a_reclaim_whose_output_cannot_be_written_relieves(stage: Stage) -> None:
    """By itself or by the daemon: the image is gone, and 74 is not 1, which means pressure."""
    stage.plays()


# ---- invalid and hostile input

HEAD = "apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\n"

HOSTILE = "evil\n2026-01-01T00:00:00Z info started\x1b[2J\x1b]0;owned\x07\u202e"


def test_a_wrong_command_line_is_one_sentence(small_node: SmallNode, tmp_path: Path) -> None:
    """1 for what is there, 2 for what was written, 3 without the runtime, 4 where nothing can be read; nothing on stdout
    and nothing removed, although the node is under pressure."""
    small_node.add_images(2)
    (tmp_path / "wrong.yaml").write_text("kind: KubeletConfiguration\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "bell.yaml").write_text("extent: \a\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "scenario.yaml").write_text('{"name": "../../etc/x"}')
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    expected = EXPECTED / "refusals.txt"
    known = {"CONFIG": file, "DIRECTORY": str(tmp_path)}
    expect_console(expected, known, varies=[(r"choose from [^)]*", "choose from …")])
    for each in expected.read_text().strip().split("\n\n"):
        assert re.fullmatch(r"\$ .*\n! reclaimd\b.*: .*\n\[exit [1-4]\]", each)
    assert small_node.removed() == []
    assert not (tmp_path / "report").exists()


def test_a_wrong_file_is_one_sentence_with_its_name(tmp_path: Path) -> None:
    """Exit 2 before anything else is read. The page has what stands in each file below the head."""
    path, said = tmp_path / "reclaimd.yaml", ""
    expected = EXPECTED / "wrong-files.txt"
    for story in expected.read_text().strip().split("\n\n"):
        text, _, _ = story.partition("\n! ")
        path.write_text(f"{HEAD}{text}\n")
        done = reclaimd_here("check", "--config", str(path))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        said += f"{text}\n! {normalized(done.stderr, {'FILE': str(path)}, ())}\n"
    expect(expected, said)


def test_hostile_names_stay_one_line_in_tables(small_node: SmallNode) -> None:
    """A pod named with newlines and escape sequences adds no line to a table and sends no commands
    to a terminal; a document has it as it is."""
    small_node.add_images(1)
    small_node.gone_pod(HOSTILE.replace("/", "_"))
    file = small_node.configuration()
    lines = reclaimd_here("plan", "--config", file).stdout.splitlines()
    assert sum("evil" in line for line in lines) == 2, "its container and its sandbox"
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert not set("\x1b\x07\u202e") & set("".join(lines))
    plan = answer(reclaimd_here("plan", "--config", file, "-o", "json"))
    assert sum(HOSTILE in each["name"] for each in plan["removals"] + plan["kept"]) == 2


# ---- doctor, which looks for caches on the whole machine, for two seconds: so there are few


TROUBLES = """
    check                 | level   | evidence
    containerd-frees-late | risk    | containerd 2.0.2
    sandbox-image         | problem |
    keep-unmatched        | risk    | keepImages: 'registry.example/misspelt'
    thresholds-none       | problem |
    history               | risk    | /history is left alone: it is not a regular file
"""


def test_troubles_of_a_node_are_found_together(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """An old containerd that neither pins nor names the sandbox image, a misspelt keep, no
    thresholds, something else in the place of the history, which is left alone: exit 1, and the
    worst comes first."""
    history = tmp_path / "history"
    os.mkfifo(history)
    node = make_small_node(
        runtime_version="2.0.2", pins_sandbox_image=False, reports_sandbox_image=False
    )
    keeps = ["registry.example/misspelt", "registry.example/app"]
    file = node.configuration(keepImages=keeps, historyFile=str(history))
    done = reclaimd_here("doctor", "--config", file, "-o", "json")
    findings = answer(done)["findings"]
    found = {finding["check"]: finding for finding in findings}
    assert done.returncode == 1
    for each in rows_of(TROUBLES):
        assert found[each["check"]]["level"] == each["level"]
        assert each["evidence"] in found[each["check"]]["evidence"]
    levels = [finding["level"] for finding in findings]
    assert levels == sorted(levels, key=["problem", "risk", "note"].index)
    assert history.is_fifo()
    shown = reclaimd_here("doctor", "--config", file).stdout
    assert shown.startswith("PROBLEM  ")
    assert "  do:   update to containerd 2.0.5 or later" in shown


def test_inotify_instances_of_this_user_are_counted(tmp_path: Path) -> None:
    """From the links of descriptors in /proc; processes that may not be read are skipped."""
    for process, links in (
        ("7", ("anon_inode:inotify", "socket:[1]", "anon_inode:inotify")),
        ("8", ()),
        ("self", ()),
    ):
        (tmp_path / process / "fd").mkdir(parents=True)
        for number, link in enumerate(links):
            (tmp_path / process / "fd" / str(number)).symlink_to(link)
    (tmp_path / "9").mkdir()
    assert inotify_instances(str(tmp_path)) == 2
