"""`reclaimd history` on a small node: what daemon and command removed is listed by
name, also on a full disk.
"""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eviction.records.store import SLOT_BYTES, contents_of
from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
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

EARLIER = Path(__file__).parent.with_name("records") / "history_0_1.gz"


def history_of(file: str, *arguments: str) -> list[dict[str, Any]]:
    """The records, from the command."""
    process = reclaimd_here("history", "--config", file, "-o", "json", *arguments)
    assert process.returncode == 0, process.stderr
    records: list[dict[str, Any]] = answer(process)["records"]
    return records


def removed_names(records: list[dict[str, Any]]) -> list[str]:
    """The names of all removals that succeeded, in their order."""
    return [
        each["name"]
        for record in records
        for each in record.get("removals", ())
        if each["result"] == "removed"
    ]


def test_what_the_daemon_removed_is_listed_by_name_and_survives_it(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Two images of 4 MiB for 6 MiB; while it runs and after its end; the pass is the one of the
    log, and the log names them too."""
    path = tmp_path / "state" / "history"
    small_node.add_images(6)
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, above=6 * MIB, historyFile=str(path), historySize="1Mi"
    )
    with Daemon("--config", file) as daemon:
        record = daemon.wait_for(lambda event: "record" in event)["record"]
        names = [removal["name"] for removal in record["removals"]]
        assert len(names) == 2
        assert came_true(lambda: removed_names(history_of(file)) == names)
        assert not daemon.logged(f"removed image {names[0]}"), "in JSON the record has them"
        assert daemon.stop() == 0
    started, passed, stopped = history_of(file)
    assert (started["kind"], stopped["kind"]) == ("started", "stopped")
    for name in (
        "id",
        "started",
        "trigger",
        "result",
        "reason",
        "measured",
        "removals",
        "acted_on",
        "row",
    ):
        assert passed[name] == record[name]
    lines = reclaimd_here("history", "--config", file).stdout.splitlines()
    assert [line.split()[2] for line in lines[1:]] == [
        "started",
        "removed",
        "removed",
        "satisfied",
        "stopped",
    ]
    assert [line.split()[4] for line in lines[2:4]] == names
    assert removed_names(history_of(file, "--object", names[1])) == names[1:]
    assert history_of(file, "--limit", "1") == [stopped]
    assert history_of(file, "--since", "1h") == [started, passed, stopped]
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (MIB, 0o600)


def test_regret_counts_the_removals_of_daemon_and_commands(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """One image comes back after the daemon has removed it, and again after a command
    beside it has. Without a state file nobody remembers what is gone; without a
    history nothing was removed."""
    state = tmp_path / "images.json"
    fields: dict[str, Any] = {
        "historyFile": str(tmp_path / "history"),
        "historySize": "1Mi",
        "stateFile": str(state),
    }
    fields |= {"controlSocket": str(tmp_path / "control.sock"), "holdOffAfterStart": "1h"}
    nothing = reclaimd_here("history", "--regret", "--config", small_node.configuration(**fields))
    assert (nothing.returncode, nothing.stdout.splitlines()[1].split()[:2]) == (0, ["all", "0"])
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -MIB, **fields)
    signal = ("reclaim", "--config", file, "--signal", "nodefs.available")

    def regret(*arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = answer(
            reclaimd_here("history", "--regret", "--config", file, "-o", "json", *arguments)
        )
        return found

    def lists_the_images() -> bool:
        return reclaimd(*signal, "--dry-run").returncode == 0

    def has_returned(times: int) -> bool:
        return came_true(
            lambda: lists_the_images() and regret()["returned"] == times, every_seconds=0.3
        )

    with Daemon("--config", file):
        assert came_true(lambda: state.exists() and (tmp_path / "control.sock").exists()), (
            "it knows the images"
        )
        for times, standalone in ((1, ()), (2, ("--standalone",))):
            assert reclaimd(*signal, "--all", "--now", *standalone).returncode == 0
            assert lists_the_images(), "which shows the daemon what a command has removed"
            small_node.add_images(1)
            assert has_returned(times)
    found = regret()
    assert (found["removed"], found["within"]["1h"]["returned"]) == (5, 2), (
        "three images and the node's own, one twice"
    )
    assert regret("--object", "old/0")["removed"] == 2
    assert len(regret("--limit", "1")["images"]) == 1
    file = small_node.configuration(**{**fields, "stateFile": ""})
    assert regret()["within"]["1h"] == {
        "returned": 2,
        "not_returned": 0,
        "not_over": 0,
        "unknown": 3,
    }


@pytest.mark.regression
def test_the_text_log_names_the_first_32_and_counts_the_others(small_node: SmallNode) -> None:
    """In a line of its own, with the pass; the result follows."""
    small_node.add_images(35, size_bytes=64 * 1024)
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, above=64 * MIB, extent="all", parallelRemovals=1
    )
    command = [PROGRAM, "run", "--config", file]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        line = next(line for line in lines if " removed image " in line)
        after = next(lines)
        process.terminate()
        process.communicate(timeout=60.0)
    text = line.partition(" removed ")[2]
    names, _, rest = text.rpartition(" and ")
    assert len(names.split(", ")) == 32
    assert all(name.startswith("image ") for name in names.split(", "))
    assert rest.split()[0] == str(len(small_node.removed("image")) - 32)
    assert f"pass={rest.rpartition('pass=')[2].strip()}" in after


def test_the_command_that_does_the_work_itself_records_it(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Without a daemon and beside one that holds off; a dry run and a pass with
    nothing to do leave no trace.
    """
    path = tmp_path / "history"
    small_node.add_images(6)
    fields: dict[str, Any] = {
        "historyFile": str(path),
        "historySize": "1Mi",
        "holdOffAfterStart": "1h",
    }
    idle = small_node.configuration(**fields)
    assert reclaimd_here("reclaim", "--config", idle, "--standalone", "--now").returncode == 0
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB, **fields)
    assert (
        reclaimd_here("reclaim", "--config", file, "--standalone", "--now", "--dry-run").returncode
        == 0
    )
    assert not path.exists()
    process = reclaimd_here("reclaim", "--config", file, "--standalone", "--now", "-o", "json")
    first = answer(process)
    assert process.stderr == ""
    assert [record["id"] for record in history_of(file)] == [first["id"]]
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB, **fields)
    with Daemon("--config", file) as daemon:
        second = answer(
            reclaimd_here("reclaim", "--config", file, "--standalone", "--now", "-o", "json")
        )
        assert daemon.stop() == 0
    records = history_of(file)
    assert [record["kind"] for record in records] == ["pass", "started", "pass", "stopped"]
    assert [records[0]["id"], records[2]["id"]] == [first["id"], second["id"]]
    assert records[0]["trigger"] == "request"
    assert len(removed_names(records)) == 2


def test_what_the_daemon_does_on_request_and_what_was_parked_is_recorded(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A removal that hangs is parked by its pass; when it ends that is a record of its own."""
    small_node.add_images(3)
    fields = {
        "historyFile": str(tmp_path / "history"),
        "historySize": "1Mi",
        "holdOffAfterStart": "1h",
    }
    control = str(tmp_path / "control.sock")
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=2 * MIB,
        controlSocket=control,
        removalPatience="0.5s",
        **fields,
    )
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: reclaimd_here("status", "--config", file).returncode == 0)
        assert came_true(
            lambda: (
                '"layout": null'
                not in reclaimd_here("status", "--config", file, "-o", "json").stdout
            )
        )
        small_node.failpoints["RemoveImage"] = Hang(times=1)
        record = answer(reclaimd_here("reclaim", "--config", file, "--now", "-o", "json"))
        (parked,) = [removal for removal in record["removals"] if removal["result"] == "parked"]
        assert came_true(lambda: len(history_of(file)) == 2)
        small_node.failpoints.clear()
        assert came_true(lambda: len(history_of(file)) == 3)
        assert daemon.stop() == 0
    _, passed, ended, _ = history_of(file)
    assert (passed["trigger"], passed["id"]) == ("request", record["id"])
    assert ended["kind"] == "parked_ended"
    assert [removal["id"] for removal in ended["removals"]] == [parked["id"]]


def test_the_periodic_loops_are_recorded(small_node: SmallNode, tmp_path: Path) -> None:
    """With the trigger `periodic`."""
    image, *_ = small_node.add_images(3)
    file = small_node.configuration(
        historyFile=str(tmp_path / "history"),
        historySize="1Mi",
        periodicGC=True,
        imageGCHighThresholdPercent=2,
        imageGCLowThresholdPercent=1,
    )
    with Daemon("--config", file):
        assert came_true(lambda: image in small_node.removed("image"))
        assert came_true(lambda: len(history_of(file)) > 1)
    passes = [record for record in history_of(file) if record["kind"] == "pass"]
    assert {record["trigger"] for record in passes} == {"periodic"}
    assert image in [removal["id"] for record in passes for removal in record["removals"]]


def test_on_a_disk_without_a_byte_the_history_is_written_and_read(small_node: SmallNode) -> None:
    """The file lies on the very disk that is full, and has the removals that made room."""
    path = small_node.disk / "state" / "history"
    small_node.add_images(4)
    quiet = small_node.configuration(historyFile=str(path), historySize="1Mi")
    with Daemon("--config", quiet):
        assert came_true(path.exists)
    with open(small_node.disk / "fill", "wb", buffering=0) as fill:
        try:
            while fill.write(b"x" * 4096):
                pass
        except OSError:
            pass
    assert small_node.available() == 0
    assert [record["kind"] for record in history_of(quiet)] == ["started", "stopped"]
    file = small_node.configuration(
        historyFile=str(path), historySize="1Mi", evictionHard={"nodefs.available": str(2 * MIB)}
    )
    with Daemon("--config", file):
        assert came_true(lambda: bool(removed_names(history_of(file))))
    assert history_of(file)[-1]["kind"] == "stopped"


# ---- without a history


def configured(tmp_path: Path, **fields: object) -> str:
    """Path of a configuration."""
    return str(write_configuration(tmp_path / "c.yaml", **fields))


def test_without_a_file_yet_a_sentence_says_so(tmp_path: Path) -> None:
    """Exit 0, and an empty document; nothing is made."""
    path = tmp_path / "history"
    file = configured(tmp_path, historyFile=str(path))
    process = reclaimd_here("history", "--config", file)
    sentence = f"reclaimd: there is no history {path} yet; the daemon creates it when it starts\n"
    assert (process.returncode, process.stdout, process.stderr) == (0, "", sentence)
    document = answer(reclaimd_here("history", "--config", file, "-o", "json"))
    assert (document["file"], document["records"]) == (str(path), [])
    assert not path.exists()


@pytest.mark.parametrize(
    ("fields", "command", "sentence"),
    [
        ({"historyFile": ""}, "history", "historyFile is empty, so no history is kept"),
        (
            {},
            "history --since yesterday",
            "--since: must be a duration such as 2h, 90m or 7d, or a time such as",
        ),
        ({}, "history --limit 0", "argument --limit: must be a number above 0, but it was '0'"),
        (
            {"historyFile": "history"},
            "check",
            "historyFile: must be an absolute path or empty, but it was 'history'",
        ),
        (
            {"historySize": "1000Ki"},
            "check",
            "historySize: must be between 1Mi and 1Gi, but it was '1000Ki'",
        ),
        (
            {"historySize": "2Gi"},
            "check",
            "historySize: must be between 1Mi and 1Gi, but it was '2Gi'",
        ),
        ({"historySize": "much"}, "check", "historySize: "),
    ],
)
def test_wrong_questions_and_configurations_are_refused(
    tmp_path: Path, fields: dict[str, str], command: str, sentence: str
) -> None:
    """Exit 2 with one sentence that says what is allowed."""
    file = configured(tmp_path, **{"historyFile": str(tmp_path / "history"), **fields})
    process = reclaimd_here(*command.split(), "--config", file)
    assert (process.returncode, process.stdout) == (2, "")
    assert sentence in process.stderr
    assert process.stderr.count("\n") == 1


def test_a_foreign_file_is_named_and_left_alone_and_the_daemon_starts(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """The command refuses it with exit 2; the daemon warns once, relieves,
    and touches nothing of it.
    """
    path = tmp_path / "history"
    path.write_text("mine\n" * 1000)
    small_node.add_images(4)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB, historyFile=str(path))
    process = reclaimd_here("history", "--config", file)
    assert (process.returncode, process.stdout) == (2, "")
    assert (
        f"historyFile: {path} is left alone: it is not a history of this version" in process.stderr
    )
    relieved = reclaimd_here("reclaim", "--config", file, "--standalone", "--now")
    assert relieved.returncode == 0
    assert relieved.stderr.startswith(
        f"reclaimd: the history is not written: {path} is left alone: "
    )
    assert relieved.stderr.count("\n") == 1
    small_node.fill(4 * MIB)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        daemon.wait_for(
            lambda event: f"the history is not written: {path} is left alone" in event["message"]
        )
    assert path.read_text() == "mine\n" * 1000
    assert os.listdir(tmp_path).count(".history.new") == 0


def test_what_is_torn_is_counted_and_what_an_earlier_version_wrote_is_refused(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Each in a sentence; the daemon has one for the file that it keeps aside."""
    path = tmp_path / "history"
    file = small_node.configuration(historyFile=str(path), historySize="1Mi")
    with Daemon("--config", file):
        assert came_true(lambda: path.exists() and len(history_of(file)) == 1)
    with open(path, "r+b") as history:
        history.seek(SLOT_BYTES + 20)
        history.write(bytes(10))
    process = reclaimd_here("history", "--config", file, "-o", "json")
    assert [record["kind"] for record in answer(process)["records"]] == ["stopped"]
    assert process.stderr == f"reclaimd: left out, as not whole in the history {path}: 1 record\n"
    path.write_bytes(gzip.decompress(EARLIER.read_bytes()))
    process = reclaimd_here("history", "--config", file)
    assert (process.returncode, process.stdout) == (2, "")
    assert f"historyFile: {path} was written by an earlier version of reclaimd" in process.stderr
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: f"it is kept as {path}.old" in event["message"])
    assert [record["kind"] for record in history_of(file)] == ["started", "stopped"]


def test_a_full_pipe_is_no_failure_of_the_file(small_node: SmallNode, tmp_path: Path) -> None:
    """`reclaimd history | head -1`: the reader of the output may end at any time."""
    path = tmp_path / "history"
    small_node.add_images(2)
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, above=2 * MIB, historyFile=str(path), historySize="1Mi"
    )
    assert reclaimd_here("reclaim", "--config", file, "--standalone", "--now").returncode == 0
    with subprocess.Popen(
        [PROGRAM, "history", "--config", file], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60.0) == 0
    assert len(contents_of(str(path)).records) == 1
