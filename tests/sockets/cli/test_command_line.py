"""The commands as scripts use them: exit codes, one document on stdout, and a
small node behind the socket.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest

from signals.types import KUBELET_SIGNALS, FsLayout, Signal
from tests.nodes.faults import Delay, Fail
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, answer, reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory

OBSERVATION = {"signal", "available", "capacity", "time", "stale", "filesystem"}
THRESHOLD = {"signal", "value", "effective", "min_reclaim", "hard", "grace_seconds", "origin"}
PASS = {
    "id", "started", "trigger", "observations", "conditions", "thresholds_met", "acted_on", "row", "removals",
    "measured", "nominal", "result", "reason", "timings",
}  # fmt: skip
OUTCOME = {
    "kind", "id", "name", "size", "age_seconds", "verdict", "reason", "result", "error", "duration_seconds",
}  # fmt: skip
TIMINGS = {"detect_seconds", "list_seconds", "plan_seconds", "remove_seconds", "total_seconds"}


@pytest.fixture
def crowded(small_node: SmallNode) -> SmallNode:
    """Three old images of 4 MiB, a running pod, a crashed one with two dead
    copies, and one that is gone.
    """
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    crashed = small_node.run_pod("crashed")
    for attempt in range(2):
        small_node.exited(crashed, attempt=attempt)
    small_node.gone_pod("gone")
    return small_node


def went(record: dict[str, Any], kind: str = "image") -> list[str]:
    """Ids of what a printed record says was removed."""
    return [
        each["id"]
        for each in record["removals"]
        if each["kind"] == kind and each["result"] == "removed"
    ]


def test_check_prints_signals_and_thresholds_and_is_read_only(crowded: SmallNode) -> None:
    """The signals with their thresholds as one JSON document; 0 when clear,
    1 when a threshold is met.
    """
    clear = reclaimd_here(
        "check",
        "--config",
        crowded.configuration(Signal.NODEFS_AVAILABLE, above=-MIB),
        "-o",
        "json",
    )
    met = reclaimd(
        "check", "--config", crowded.configuration(Signal.NODEFS_AVAILABLE, above=MIB), "-o", "json"
    )
    assert (clear.returncode, met.returncode) == (0, 1)
    assert (clear.stderr, met.stderr) == ("", "")
    document = answer(met)
    assert document["layout"] == "single"
    assert {each["signal"] for each in document["observations"]} == {
        str(each) for each in KUBELET_SIGNALS
    }
    for observation in document["observations"]:
        assert set(observation) >= OBSERVATION
        assert isinstance(observation["available"], int)
        assert datetime.fromisoformat(observation["time"]).utcoffset() is not None
        assert observation["filesystem"]["type"] == "tmpfs"
    threshold, derived = document["thresholds_met"]
    assert (derived["signal"], derived["origin"]) == (
        "containerfs.available",
        "derived from nodefs.available",
    )
    assert set(threshold) >= THRESHOLD
    assert threshold["signal"] == "nodefs.available"
    assert (
        threshold["effective"] == int(threshold["value"]) if threshold["value"].isdigit() else True
    )
    assert threshold["hard"] is True
    (filesystem,) = document["filesystems"]
    assert filesystem["filesystems"] == ["nodefs", "imagefs", "containerfs"]
    assert (filesystem["type"], filesystem["reserve"]) == ("tmpfs", 0)
    assert {option.partition("=")[0] for option in filesystem["options"]} == {"size", "nr_inodes"}
    assert answer(clear)["thresholds_met"] == []
    assert crowded.removed() == []


@pytest.mark.parametrize("state", ["clear", "one", "all", "unknown"])
def test_check_for_node_problem_detector_is_one_line_of_at_most_80_characters(
    crowded: SmallNode, state: str
) -> None:
    """The detector cuts the message there; 0, 1 and 4 are its OK, problem and unknown."""
    everything = {
        f"{fs}.{unit}": "1Ti"
        for fs in ("nodefs", "imagefs")
        for unit in ("available", "inodesFree")
    }
    marks = {
        "clear": {},
        "one": {"nodefs.available": "1Ti"},
        "all": everything,
        "unknown": {"imagefs.available": "1%"},
    }
    if state == "unknown":
        crowded.server.stop()
    run = reclaimd if state == "unknown" else reclaimd_here
    process = run("check", "--npd", "--config", crowded.configuration(evictionHard=marks[state]))
    assert process.returncode == {"clear": 0, "one": 1, "all": 1, "unknown": 4}[state]
    assert process.stdout.count("\n") == 1
    assert len(process.stdout.rstrip("\n")) <= 80
    assert process.stdout.startswith(
        {"clear": "no disk pressure", "unknown": "unknown"}.get(state, "pressure")
    )


def test_plan_shows_every_object_with_its_reason_and_is_read_only(crowded: SmallNode) -> None:
    """Removable objects in their order, and why each other object is kept; the
    reasons are a closed list.
    """
    process = reclaimd("plan", "--config", crowded.configuration(), "-o", "json")
    assert (process.returncode, process.stderr) == (0, "")
    record = answer(process)
    assert set(record) >= PASS
    outcomes = record["removals"] + record["kept"]
    assert all(set(outcome) >= OUTCOME for outcome in outcomes)
    ids = [outcome["id"] for outcome in outcomes]
    assert len(ids) == len(set(ids)) == len(crowded.images()) + len(crowded.containers()) + 4
    assert {outcome["result"] for outcome in record["removals"]} == {"planned"}
    assert {outcome["reason"] for outcome in outcomes} == {
        "pod_gone", "older_copy", "unused", "running", "newest_of_live_pod", "ready", "in_use", "sandbox_image",
    }  # fmt: skip
    assert record["result"] == "dry_run"
    assert crowded.removed() == []
    text = reclaimd_here("plan", "--config", crowded.configuration())
    assert "newest_of_live_pod" in text.stdout
    assert "registry.example/old/0:1" in text.stdout


def test_reclaim_relieves_and_prints_the_pass(crowded: SmallNode) -> None:
    """One pass: dead containers first, then as many images as are needed; exit 0,
    and the record on stdout.
    """
    configuration = crowded.configuration(Signal.NODEFS_AVAILABLE, above=6 * MIB)
    before = crowded.available()
    process = reclaimd("reclaim", "--config", configuration, "-o", "json")
    record = answer(process)
    assert (process.returncode, process.stderr) == (0, "")
    assert set(record) >= PASS
    assert set(record["timings"]) >= TIMINGS
    assert record["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert (record["result"], record["trigger"]) == ("satisfied", "request")
    assert went(record) == crowded.removed("image")
    assert len(went(record)) == 2
    assert went(record, "container") == crowded.removed("container")
    assert abs(record["measured"]["bytes"] - (crowded.available() - before)) <= MIB
    assert record["nominal"]["bytes"] == 8 * MIB
    again = reclaimd_here("reclaim", "--config", configuration, "-o", "json")
    assert (again.returncode, answer(again)["result"], answer(again)["removals"]) == (0, "idle", [])


def test_reclaim_that_is_not_enough_exits_with_1(crowded: SmallNode) -> None:
    """Everything removable was removed and the pressure remains:

    1, and the reason says what is left.
    """
    process = reclaimd(
        "reclaim", "--config", crowded.configuration(Signal.NODEFS_AVAILABLE, above=50 * MIB)
    )
    assert process.returncode == 1
    assert "not_enough: " in process.stdout
    assert "nodefs.available" in process.stdout
    assert len(crowded.removed("image")) == 3


def test_a_dry_run_lists_removals_and_removes_nothing(crowded: SmallNode) -> None:
    """--dry-run runs the same code without the removals."""
    configuration = crowded.configuration(Signal.NODEFS_AVAILABLE, above=6 * MIB)
    dry = reclaimd_here("reclaim", "--config", configuration, "--dry-run", "-o", "json")
    assert (dry.returncode, answer(dry)["result"]) == (0, "dry_run")
    assert crowded.removed() == []
    wet = reclaimd_here("reclaim", "--config", configuration, "-o", "json")
    assert [each["id"] for each in answer(dry)["removals"]] == [
        each["id"] for each in answer(wet)["removals"]
    ]


def test_signal_acts_on_a_row_whatever_the_pressure(crowded: SmallNode) -> None:
    """--signal without a mark goes to the end of its row; without --signal
    nothing is under pressure.
    """
    configuration = crowded.configuration()
    idle = reclaimd_here("reclaim", "--config", configuration)
    assert (idle.returncode, crowded.removed()) == (0, [])
    assert "nothing is under pressure" in idle.stdout
    process = reclaimd_here(
        "reclaim", "--config", configuration, "--signal", "imagefs.available", "-o", "json"
    )
    assert (process.returncode, answer(process)["result"]) == (0, "satisfied")
    assert len(crowded.removed("image")) == 3


def test_signal_acts_on_the_row_of_its_layout(make_small_node: SmallNodeFactory) -> None:
    """In the split layout --signal nodefs.available calls the containers only."""
    small = make_small_node(FsLayout.SPLIT)
    small.add_images(1)
    dead = small.gone_pod("gone")
    process = reclaimd_here(
        "reclaim", "--config", small.configuration(), "--signal", "nodefs.available", "-o", "json"
    )
    assert process.returncode == 0
    assert answer(process)["row"] == ["DeleteAllUnusedContainers"]
    assert (small.removed("container"), small.removed("image")) == ([dead], [])


def test_until_sets_the_mark_to_reach(crowded: SmallNode) -> None:
    """With --until as many images are removed as the mark needs; exit 1 if it is out of reach."""
    mark = str(crowded.available() + 2 * MIB)
    arguments = ("reclaim", "--config", crowded.configuration(), "--signal", "nodefs.available")
    process = reclaimd_here(*arguments, "--until", mark, "-o", "json")
    assert (process.returncode, len(went(answer(process)))) == (0, 1)
    assert crowded.available() >= int(mark)
    assert reclaimd_here(*arguments, "--until", "100%").returncode == 1


def test_all_runs_to_the_end_of_the_row(crowded: SmallNode) -> None:
    """--all removes all that the kubelet would; without pressure it does nothing."""
    assert reclaimd_here("reclaim", "--all", "--config", crowded.configuration()).returncode == 0
    assert crowded.removed() == []
    process = reclaimd_here(
        "reclaim", "--all", "--config", crowded.configuration(Signal.NODEFS_AVAILABLE, above=MIB)
    )
    assert process.returncode == 0
    assert len(crowded.removed("image")) == 3


def test_reclaim_shortly_after_a_boot_is_held_off(crowded: SmallNode) -> None:
    """Exit 1 and a sentence; --dry-run and --now are not held off."""
    configuration = crowded.configuration(
        Signal.NODEFS_AVAILABLE, above=MIB, holdOffAfterStart="1000000h"
    )
    held = reclaimd_here("reclaim", "--config", configuration)
    assert held.returncode == 1
    assert held.stderr.count("\n") == 1
    assert "held off" in held.stderr
    assert reclaimd_here("reclaim", "--config", configuration, "--dry-run").returncode == 0
    assert crowded.removed() == []
    assert reclaimd_here("reclaim", "--config", configuration, "--now").returncode == 0
    assert crowded.removed()


@pytest.mark.parametrize("command", ["reclaim", "plan"])
@pytest.mark.parametrize("method", ["ImageFsInfo", "ListImages", "ListContainers"])
def test_a_runtime_that_answers_with_an_error_is_3(
    crowded: SmallNode, command: str, method: str
) -> None:
    """Under pressure its error message is printed, and nothing is removed."""
    crowded.failpoints[method] = Fail(message="the metadata store is closed")
    run = reclaimd if method == "ImageFsInfo" and command == "reclaim" else reclaimd_here
    process = run(
        command, "--config", crowded.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    )
    words = process.stdout + process.stderr
    assert method in words or "metadata store is closed" in words
    if method == "ListImages" and command == "reclaim":
        assert process.returncode == 1, "the containers are removed, the images could not be listed"
        assert crowded.removed("image") == []
    else:
        assert process.returncode == 3
        assert crowded.removed() == []


def test_sigterm_during_reclaim_finishes_the_removal_in_flight(crowded: SmallNode) -> None:
    """The removal that was sent finishes, nothing else is started, and the
    record is still printed.
    """
    crowded.failpoints["RemoveImage"] = Delay(2.0)
    configuration = crowded.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    with subprocess.Popen(
        [PROGRAM, "reclaim", "--config", configuration], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        crowded.wait_for("RemoveImage")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1
    assert len(crowded.removed("image")) == 1
    assert crowded.failpoints.calls["RemoveImage"] == 1
    assert b"removed" in output
    assert b"stopping" in output


def test_a_reader_of_stdout_that_ends_is_no_failure(crowded: SmallNode) -> None:
    """`reclaimd plan | head -1` ends without a traceback."""
    done = subprocess.run(
        ["sh", "-c", f"{PROGRAM} plan --config {crowded.configuration()} | head -1"],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
        env=ENVIRONMENT,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.regression
@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "run --help",
        "help configuration",
        "manifests",
        "check --config",
        "check -o json --config",
    ],
)
def test_output_that_cannot_be_written_is_one_sentence_and_74(
    crowded: SmallNode, arguments: str
) -> None:
    """Short or long, a table or JSON: not 1, which means pressure."""
    words = [
        *arguments.split(),
        *([crowded.configuration()] if arguments.endswith("--config") else []),
    ]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
    assert done.returncode == 74
    assert (
        done.stderr
        == "reclaimd: the output could not be written: No space left on device; what was done stays"
        " done\n"
    )


@pytest.mark.regression
@pytest.mark.parametrize("standalone", [True, False])
def test_a_reclaim_whose_output_cannot_be_written_relieves(
    crowded: SmallNode, standalone: bool
) -> None:
    """By itself or by the daemon: the image is gone, and 74 is not 1."""
    file = crowded.configuration(holdOffAfterStart="1h")
    words = ["reclaim", "--now", "--all", "--signal", "imagefs.available", "--config", file]
    with ExitStack() as daemon, open("/dev/full", "w") as full:
        if standalone:
            words.append("--standalone")
        else:
            daemon.enter_context(Daemon("--config", file)).wait_for(
                lambda event: "started on" in event["message"]
            )
        done = subprocess.run(
            [PROGRAM, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (74, 1)
    assert len(crowded.removed("image")) == 3


@pytest.mark.regression
@pytest.mark.parametrize(
    ("arguments", "code"), [("", 2), ("no-such", 2), ("status --config=", 3), ("run --no-such", 2)]
)
def test_words_that_cannot_be_written_change_no_exit_code(arguments: str, code: int) -> None:
    """With stderr on a full disk."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, *arguments.split()],
            stdout=subprocess.PIPE,
            stderr=full,
            env=ENVIRONMENT,
            check=False,
        )
    assert (done.returncode, done.stdout) == (code, b"")
