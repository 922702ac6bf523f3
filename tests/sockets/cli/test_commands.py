"""What commands print on a small node, whole: by themselves, by the daemon, and without grpcio."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from signals.types import FsLayout, Signal
from tests.drill.documents import document
from tests.expected import expect
from tests.nodes.faults import Delay, Fail
from tests.nodes.small_node import MIB, SmallNode
from tests.printed import commands_in, console, expect_console
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.sockets.conftest import SmallNodeFactory

EXPECTED = Path(__file__).with_name("expected")
NODEFS = Signal.NODEFS_AVAILABLE


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


def located(file: str) -> bool:
    """Whether the daemon answers, and knows where images are."""
    status = reclaimd_here("status", "--config", file, "-o", "json")
    return status.returncode == 0 and answer(status)["layout"] is not None


def by_itself(*words: str) -> CompletedProcess[str]:
    """The command does the work."""
    return reclaimd_here(*words, *(["--standalone"] if words[0] in ("check", "reclaim") else []))


def by_daemon(*words: str) -> CompletedProcess[str]:
    """The daemon does it; which turn the request had is not said."""
    done = reclaimd_here(*words)
    assert "doing the work here" not in done.stderr
    done.stderr = re.sub(r"reclaimd: the daemon is .*; waiting for its turn\n", "", done.stderr)
    return done


@pytest.fixture
def without_grpcio(tmp_path: Path) -> str:
    """The PYTHONPATH of a process in which there is no grpc: Python imports sitecustomize as it
    starts."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['grpc'] = None")
    command = [sys.executable, "-c", "import grpc"]
    tried = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert b"ModuleNotFoundError: import of grpc halted" in tried.stderr, "it is really refused"
    return str(tmp_path)


# Above how many MiB more than now the node is under pressure, other fields, and the kinds of what
# the runtime has removed in the end.
PODS = ["container", "container", "sandbox"]
STORIES: dict[str, tuple[int | None, dict[str, Any], list[str]]] = {
    "check": (6, {}, []),
    "clear": (-1, {}, []),
    "plan": (6, {}, []),
    "plan-signal": (None, {}, []),
    "young": (6, {"imageMinimumGCAge": "2h"}, PODS),
    "reclaim": (6, {}, [*PODS, "image", "image"]),
    "not-enough": (50, {}, [*PODS, *["image"] * 3]),
    "all": (1, {}, [*PODS, *["image"] * 3]),
    "row": (None, {}, [*PODS, *["image"] * 3]),
    "until": (None, {}, [*PODS, *["image"] * 3]),
    "boot": (1, {"holdOffAfterStart": "1000000h"}, [*PODS, "image"]),
    "room": (None, {"extent": "all"}, [*PODS, *["image"] * 3]),
}
ALONE = ("plan", "plan-signal", "young", "boot")  # no request to a daemon, or of another answer
WHO: list[tuple[str, str]] = [
    *((each, "alone") for each in STORIES),
    *((each, "daemon") for each in STORIES if each not in ALONE),
    ("reclaim", "without grpcio"),
]


@pytest.mark.parametrize(("story", "who"), WHO)
def test_a_command_prints_the_same_whoever_does_the_work(
    crowded: SmallNode, without_grpcio: str, story: str, who: str
) -> None:
    """Tables, documents, sentences, exit codes, and what is removed: by itself, with and without
    grpcio, and by a daemon, which holds off for an hour, so that it removes only what it is asked
    for."""
    above, fields, removed = STORIES[story]
    directory = str(crowded.disk.parent)
    if who == "daemon":
        fields = {**fields, "holdOffAfterStart": "1h"}
    file = crowded.configuration(
        NODEFS if above else None, (above or 0) * MIB, controlSocket=f"{directory}/run/c", **fields
    )
    with ExitStack() as stack:
        if who == "daemon":
            stack.enter_context(Daemon("--config", file))
            assert came_true(lambda: located(file))
        run: Any = {
            "alone": by_itself,
            "daemon": by_daemon,
            "without grpcio": partial(reclaimd, PYTHONPATH=without_grpcio),
        }[who]
        expect_console(EXPECTED / f"{story}.txt", {"CONFIG": file, "DIRECTORY": directory}, run)
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


def test_what_a_runtime_that_fails_leaves_is_said(crowded: SmallNode) -> None:
    """Its sentence in place of a plan, and exit 3, in a dry run too; 1 and 3 where a part is known,
    which is done or named."""
    lists = ("ListContainers", "ListImages", "ListPodSandbox")
    directory, said = str(crowded.disk.parent), ""
    known = {"CONFIG": crowded.configuration(NODEFS, 40 * MIB), "DIRECTORY": directory}
    for methods in (lists, ("ImageFsInfo",), ("ListContainers",), ("ListImages",)):
        said += f"# {', '.join(methods)} failed\n"
        for method in methods:
            crowded.failpoints[method] = Fail(message="the metadata store is closed")
        words = " --config CONFIG --standalone"
        last = "" if methods != lists else " --signal imagefs.available"
        said += console(
            known, "plan --config CONFIG", "df --config CONFIG", f"reclaim{words} --dry-run{last}"
        )
        assert crowded.removed() == []
        said += console(known, f"reclaim{words}")
        crowded.failpoints.clear()
    expect(EXPECTED / "failing-runtime.txt", said)
    assert [each.kind for each in crowded.runtime.removals] == PODS


def test_what_node_problem_detector_reads_is_one_short_line(crowded: SmallNode) -> None:
    """It cuts the message at 80 characters; 0, 1 and 4 are its OK, problem and unknown."""
    both = [f"{fs}.{unit}" for fs in ("nodefs", "imagefs") for unit in ("available", "inodesFree")]
    said = ""
    for marks in ({both[0]: "1Ti"}, dict.fromkeys(both, "1Ti"), {both[2]: "1%"}):
        if marks == {both[2]: "1%"}:
            crowded.server.stop()
        known = {"CONFIG": crowded.configuration(evictionHard=marks)}
        said += console(known, "check --npd --standalone --config CONFIG")
    expect(EXPECTED / "npd.txt", said)
    assert max(map(len, said.splitlines())) <= 80


def test_a_ballast_is_made_shown_and_removed(tmp_path: Path) -> None:
    """In the same words each time, by options or by the configuration's names; what is none stays,
    and more than half of what is available, or what would cross a mark, is not made."""
    found = os.statvfs(tmp_path)
    known = {"DIRECTORY": str(tmp_path)}
    function = {"name": "ReleaseBallast", "file": f"{tmp_path}/ballast", "size": "4Mi"}
    for name, mark in (("LOW", "1Mi"), ("HIGH", str(found.f_bavail * found.f_frsize - 1))):
        known[name] = str(
            write_configuration(
                tmp_path / f"{name}.yaml",
                containerRuntimeEndpoint="none",
                filesystems=[{"name": "data", "path": str(tmp_path)}],
                reclaimFunctions=[{**function, "frees": "data"}],
                evictionMinimumReclaim={"data.available": "0"},
                evictionHard={"data.available": mark},
            )
        )
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "sparse").touch(0o600)
    os.truncate(tmp_path / "sparse", 4 * MIB)
    before = set(os.listdir(tmp_path))
    text = console(known, *commands_in(EXPECTED / "ballast.txt"))
    expect(EXPECTED / "ballast.txt", re.sub(r"[\d.]+[GTP]iB", "MANY", text))
    assert set(os.listdir(tmp_path)) == before


def test_without_grpcio_the_daemon_relieves_and_a_drill_says_what_is_missing(
    small_node: SmallNode, without_grpcio: str, tmp_path: Path
) -> None:
    """One sentence before anything is made; what needs no embedded node goes on."""
    small_node.add_images(3)
    file = small_node.configuration(NODEFS, 2 * MIB, metricsAddress="127.0.0.1:0")
    with Daemon("--config", file, PYTHONPATH=without_grpcio) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert small_node.removed("image")
    known, run = {"DIRECTORY": str(tmp_path)}, partial(reclaimd, PYTHONPATH=without_grpcio)
    expect_console(EXPECTED / "without-grpcio.txt", known, run)
    assert not (tmp_path / "report").exists()
    scenario = tmp_path / "small.yaml"
    scenario.write_text(str(document(name="small")))
    observe = ["--observe", "--for", "200ms", "--config", file, "--report", f"{tmp_path}/report"]
    program = (
        "import sys; from eviction.cli.main import main;"
        " print([main(['drill', *words.split()]) for words in sys.argv[1:]])"
    )
    words = ["--list", f"--check {scenario}", " ".join(observe)]
    variables = {**ENVIRONMENT, "PYTHONPATH": without_grpcio}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0]"


def test_sigterm_during_reclaim_finishes_the_removal_in_flight(crowded: SmallNode) -> None:
    """The removal that was sent finishes, nothing else is started, the record is still printed."""
    crowded.failpoints["RemoveImage"] = Delay(2.0)
    command = [PROGRAM, "reclaim", "--config", crowded.configuration(NODEFS, 40 * MIB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT, text=True) as process:
        crowded.wait_for("RemoveImage")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1
    assert (len(crowded.removed("image")), crowded.failpoints.calls["RemoveImage"]) == (1, 1)
    assert [output.count(word) for word in ("\nremoved ", "  stopping  ")] == [4, 2]


def full(stream: str, *words: str) -> tuple[int, str]:
    """A command whose stdout or stderr is on a full disk: its exit code, and what the other has."""
    with open("/dev/full", "w") as disk:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = subprocess.run(
            [PROGRAM, *words], **{**streams, stream: disk}, text=True, env=ENVIRONMENT, check=False
        )
    return done.returncode, done.stdout or done.stderr or ""


UNWRITTEN = (
    "reclaimd: the output could not be written: No space left on device; what was done stays done\n"
)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("words", "stream", "code"),
    [
        *((words, "stdout", 74) for words in ("--help", "run --help", "help configuration")),
        *((words, "stdout", 74) for words in ("--version", "manifests", "check", "check -o json")),
        ("", "stderr", 2),
        ("no-such", "stderr", 2),
        ("status --config=", "stderr", 3),
        ("run --no-such", "stderr", 2),
    ],
)
def test_output_that_cannot_be_written_is_one_sentence_and_74(
    crowded: SmallNode, words: str, stream: str, code: int
) -> None:
    """Short or long, a table or JSON: not 1, which means pressure. Words on stderr that cannot be
    written change no exit code."""
    file = ["--config", crowded.configuration()] if words.startswith("check") else []
    said = UNWRITTEN if stream == "stdout" else ""
    assert full(stream, *words.split(), *file) == (code, said)


@pytest.mark.regression
@pytest.mark.parametrize("standalone", [True, False])
def test_a_reclaim_whose_output_cannot_be_written_relieves(
    crowded: SmallNode, standalone: bool
) -> None:
    """By itself or by the daemon: the image is gone, and 74 is not 1."""
    file = crowded.configuration(
        holdOffAfterStart="1h", controlSocket=f"{crowded.disk.parent}/run/c"
    )
    words = ["reclaim", "--now", "--all", "--signal", "imagefs.available", "--config", file]
    with ExitStack() as daemon:
        if not standalone:
            daemon.enter_context(Daemon("--config", file))
            assert came_true(lambda: located(file))
        alone = ["--standalone"] * standalone
        code, said = full("stdout", *words, *alone)
    # on a busy machine the daemon is asked while it looks: then it says that it waits
    assert (code, said.splitlines(keepends=True)[-1]) == (74, UNWRITTEN)
    assert len(crowded.removed("image")) == 3


def test_a_reader_of_stdout_that_ends_is_no_failure(crowded: SmallNode) -> None:
    """`reclaimd plan | head -1`."""
    command = f"{PROGRAM} plan --config {crowded.configuration()} | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, env=ENVIRONMENT)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")
