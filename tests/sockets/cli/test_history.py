"""`reclaimd history` and `why`: what daemon and command removed is listed by name."""

from __future__ import annotations

import gzip
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.records.store import SLOT_BYTES
from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.printed import VARIES, expect_console
from tests.reclaimd_process import (
    PATIENCE_SECONDS,
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    started,
)
from tests.sockets.cli.test_commands import EXPECTED, located

NODEFS = Signal.NODEFS_AVAILABLE
EARLIER = Path(__file__).parent.with_name("records") / "history_0_1.gz"


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    """A history, a control socket, and a daemon that removes only what it is asked for."""
    return {
        "historyFile": f"{tmp_path}/history",
        "historySize": "1Mi",
        "controlSocket": f"{tmp_path}/control.sock",
        "holdOffAfterStart": "1h",
    }


def history_of(file: str, *arguments: str) -> list[dict[str, Any]]:
    """The records, from the command."""
    done = reclaimd_here("history", "--config", file, "-o", "json", *arguments)
    assert done.returncode == 0, done.stderr
    records: list[dict[str, Any]] = answer(done)["records"]
    return records


def kinds(file: str) -> list[str]:
    """Those of the records."""
    return [record["kind"] for record in history_of(file)]


def test_what_the_daemon_removed_is_listed_by_name_and_survives_it(
    small_node: SmallNode, fields: dict[str, Any]
) -> None:
    """Two images of 4 MiB for 6 MiB; the pass is the one of the log; `why` finds when, by which
    rule and what it freed, and exits with 1, as the object is not there any more."""
    small_node.add_images(6)
    file = small_node.configuration(NODEFS, 6 * MIB, **{**fields, "holdOffAfterStart": "0s"})
    with Daemon("--config", file) as daemon:
        record = daemon.wait_for(lambda event: "record" in event)["record"]
        assert came_true(lambda: kinds(file) == ["started", "pass"])
        assert not daemon.logged("removed image"), "in JSON the record has them"
        follow = ("history", "--config", file, "--follow", "--limit", "1")
        printed = Path(f"{fields['historyFile']}.printed")
        with printed.open("w") as out:
            following = started(*follow, streams=(0, out.fileno(), out.fileno()))
        assert came_true(lambda: "satisfied" in printed.read_text())
        assert daemon.stop() == 0
        assert came_true(lambda: "stopped" in printed.read_text())
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_SECONDS) == 130
    assert re.findall("satisfied|started|stopped", printed.read_text()) == ["satisfied", "stopped"]
    known = {"CONFIG": file, "DIRECTORY": os.path.dirname(fields["historyFile"])}
    varies = [*VARIES, (r"\b(interval|watch)\b", "interval")]
    expect_console(EXPECTED / "history.txt", known, varies=varies)
    records = history_of(file)
    text = reclaimd_here("history", "--config", file, "-o", "yaml").stdout
    assert yaml.safe_load(text)["records"] == records
    passed = records[1]
    for name in ("id", "started", "trigger", "result", "reason", "measured", "removals", "row"):
        assert passed[name] == record[name]
    stat = os.stat(fields["historyFile"])
    assert (stat.st_size, stat.st_mode & 0o777) == (MIB, 0o600)


def test_regret_counts_the_removals_of_daemon_and_commands(
    small_node: SmallNode, tmp_path: Path, fields: dict[str, Any]
) -> None:
    """One image comes back after the daemon has removed it, and again after a command beside it
    has. Without a state file nobody remembers what is gone."""
    fields["stateFile"] = f"{tmp_path}/images.json"
    small_node.add_images(3)
    file = small_node.configuration(NODEFS, -MIB, **fields)
    row = ("reclaim", "--config", file, "--signal", "nodefs.available")

    def regret(*words: str) -> dict[str, Any]:
        done = reclaimd_here("history", "--regret", "--config", file, "-o", "json", *words)
        found: dict[str, Any] = answer(done)
        return found

    def has_returned(times: int) -> bool:
        reclaimd(*row, "--dry-run")  # which shows the daemon the images
        return bool(regret()["returned"] == times)

    with Daemon("--config", file):
        assert came_true(lambda: os.path.exists(fields["stateFile"])), "it knows the images"
        for times, standalone in ((1, ()), (2, ("--standalone",))):
            assert reclaimd(*row, "--all", "--now", *standalone).returncode == 0
            assert reclaimd(*row, "--dry-run").returncode == 0
            small_node.add_images(1)
            assert came_true(lambda times=times: has_returned(times), every_seconds=0.3)  # type: ignore[misc] # mypy does not infer the default
    found = regret()
    assert (found["removed"], found["within"]["1h"]["returned"]) == (5, 2), "the node's own, too"
    assert regret("--object", "old/0")["removed"] == 2
    assert len(regret("--limit", "1")["images"]) == 1
    file = small_node.configuration(**{**fields, "stateFile": ""})
    known = {"returned": 2, "not_returned": 0, "not_over": 0, "unknown": 3}
    assert regret()["within"]["1h"] == known


def test_the_command_that_does_the_work_itself_records_it(
    small_node: SmallNode, fields: dict[str, Any]
) -> None:
    """Without a daemon and beside one that holds off; a dry run and a pass with nothing to do leave
    no trace."""
    small_node.add_images(6)
    alone = ("reclaim", "--standalone", "--now", "-o", "json", "--config")
    idle = small_node.configuration(**fields)
    file = small_node.configuration(NODEFS, 2 * MIB, **fields)
    for words in ((*alone, idle), (*alone, file, "--dry-run")):
        assert reclaimd_here(*words).returncode == 0
    assert not os.path.exists(fields["historyFile"])
    first = answer(reclaimd_here(*alone, file))
    file = small_node.configuration(NODEFS, 2 * MIB, **fields)
    with Daemon("--config", file):
        second = answer(reclaimd_here(*alone, file))
    records = history_of(file)
    assert [record["kind"] for record in records] == ["pass", "started", "pass", "stopped"]
    assert [records[0]["id"], records[2]["id"]] == [first["id"], second["id"]]


def test_what_the_daemon_does_on_request_and_what_was_parked_is_recorded(
    small_node: SmallNode, fields: dict[str, Any]
) -> None:
    """A removal that hangs is parked by its pass; when it ends that is a record of its own."""
    small_node.add_images(3)
    file = small_node.configuration(NODEFS, 2 * MIB, removalPatience="0.5s", **fields)
    with Daemon("--config", file):
        assert came_true(lambda: located(file))
        small_node.failpoints["RemoveImage"] = Hang(times=1)
        record = answer(reclaimd_here("reclaim", "--config", file, "--now", "-o", "json"))
        assert came_true(lambda: kinds(file) == ["started", "pass"])
        small_node.failpoints.clear()
        assert came_true(lambda: kinds(file) == ["started", "pass", "parked_ended"])
    _, passed, ended, _ = history_of(file)
    (parked,) = [removal["id"] for removal in record["removals"] if removal["result"] == "parked"]
    assert (passed["trigger"], passed["id"]) == ("request", record["id"])
    assert [removal["id"] for removal in ended["removals"]] == [parked]


def test_the_periodic_loops_are_recorded(small_node: SmallNode, fields: dict[str, Any]) -> None:
    """With the trigger `periodic`."""
    image, *_ = small_node.add_images(3)
    marks = {"imageGCHighThresholdPercent": 2, "imageGCLowThresholdPercent": 1}
    loops = {**fields, **marks, "periodicGC": True, "holdOffAfterStart": "0s"}
    file = small_node.configuration(**loops)
    with Daemon("--config", file):
        assert came_true(lambda: image in small_node.removed("image") and len(kinds(file)) > 1)
    passes = [record for record in history_of(file) if record["kind"] == "pass"]
    assert {record["trigger"] for record in passes} == {"periodic"}
    assert image in [removal["id"] for record in passes for removal in record["removals"]]


def test_on_a_disk_without_a_byte_the_history_is_written_and_read(
    small_node: SmallNode, fields: dict[str, Any]
) -> None:
    """The file lies on the very disk that is full, and has the removals that made room."""
    fields |= {"historyFile": f"{small_node.disk}/state/history", "holdOffAfterStart": "0s"}
    small_node.add_images(4)
    quiet = small_node.configuration(**fields)
    with Daemon("--config", quiet):
        assert came_true(lambda: os.path.exists(fields["historyFile"]))
    small_node.fill(small_node.available())
    assert (small_node.available(), kinds(quiet)) == (0, ["started", "stopped"])
    file = small_node.configuration(**fields, evictionHard={"nodefs.available": str(2 * MIB)})
    with Daemon("--config", file):
        assert came_true(lambda: "pass" in kinds(file))
    assert kinds(file) == ["started", "stopped", "started", "pass", "stopped"]
    assert history_of(file)[3]["removals"][0]["result"] == "removed"


def test_without_a_history_of_this_version_a_sentence_says_so(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """No file yet is no failure, and none is made. What is foreign is left alone: the command
    refuses it, and the daemon warns once and relieves. What an earlier version wrote is refused by
    the command and kept aside by the daemon."""
    small_node.add_images(4)
    foreign, earlier = tmp_path / "foreign", tmp_path / "earlier"
    foreign.write_text("mine\n" * 1000)
    earlier.write_bytes(gzip.decompress(EARLIER.read_bytes()))
    known = {
        name: small_node.configuration(NODEFS, 2 * MIB, historyFile=f"{tmp_path}/{name.lower()}")
        for name in ("NONE", "FOREIGN", "EARLIER")
    }
    places = {"DISK": str(small_node.disk.parent), "DIRECTORY": str(tmp_path)}
    expect_console(EXPECTED / "no-history.txt", {**known, **places})
    assert not (tmp_path / "none").exists()
    small_node.fill(4 * MIB)
    with Daemon("--config", known["FOREIGN"]) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        left = f"the history is not written: {foreign} is left alone"
        daemon.wait_for(lambda event: left in event["message"])
    assert foreign.read_text() == "mine\n" * 1000
    with Daemon("--config", known["EARLIER"]) as daemon:
        daemon.wait_for(lambda event: f"it is kept as {earlier}.old" in event["message"])
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
    assert kinds(known["EARLIER"]) == ["started", "stopped"]
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]


def test_what_is_torn_is_counted(small_node: SmallNode, fields: dict[str, Any]) -> None:
    """In one sentence; what is whole is shown."""
    file, path = small_node.configuration(**fields), fields["historyFile"]
    with Daemon("--config", file):
        assert came_true(lambda: os.path.exists(path) and kinds(file) == ["started"])
    with open(path, "r+b") as history:
        history.seek(SLOT_BYTES + 20)
        history.write(bytes(10))
    done = reclaimd_here("history", "--config", file, "-o", "json")
    assert [record["kind"] for record in answer(done)["records"]] == ["stopped"]
    assert done.stderr == f"reclaimd: left out, as not whole in the history {path}: 1 record\n"


@pytest.mark.regression
def test_a_daemon_says_why_if_the_configuration_cannot_be_used(
    small_node: SmallNode, fields: dict[str, Any]
) -> None:
    """By a dry run of its own: one image goes, the one in use stays, nothing is removed."""
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    file = small_node.configuration(**fields)
    why: Callable[..., Any] = lambda name: reclaimd_here("why", name, "--config", file)  # noqa: E731
    with Daemon("--config", file):
        assert came_true(lambda: located(file))
        Path(file).write_text(f"{Path(file).read_text()}noSuchField: 1\n")
        found = why("registry.example/old/1:1")
        assert (found.returncode, why("no-such-thing").returncode) == (0, 1)
        assert found.stderr.startswith("reclaimd: the configuration cannot be used (")
        goes = "  goes:  no container uses it (unused; kubelet too)"
        assert goes in found.stdout.splitlines()
        assert "  stays: a pod uses it (in_use; kubelet too)" in why(small_node.app_id).stdout
    assert small_node.removed() == []
