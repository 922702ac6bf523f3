"""`reclaimd history` and `why`: what daemon and command removed is listed by name."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.reclaimd_process import PATIENCE_SECONDS, answer, came_true, reclaimd_here, started
from tests.sockets.stage import Stage


def test_what_the_daemon_removed_is_listed_by_name_and_survives_it(stage: Stage) -> None:
    """As a table and as a document; `why` finds it there."""
    stage.plays()


def test_what_is_written_is_followed(stage: Stage) -> None:
    """From the last record on, until Ctrl-C, and beyond the end of the daemon. The pass is the one
    of the log, which has no line for each of its removals in JSON."""
    for step in ("images 2", "node {above: 2Mi}", "daemon starts", "reclaimd history | grep pass"):
        stage.does(step)
    printed = Path(f"{stage.directory}/printed")
    words = ("history", "--config", stage.file)
    with printed.open("w") as out:
        follow = (*words, "--follow", "--limit", "1")
        following = started(*follow, streams=(0, out.fileno(), out.fileno()))
    assert came_true(lambda: "satisfied" in printed.read_text())
    stage.does("daemon ends")
    assert came_true(lambda: "stopped" in printed.read_text())
    following.send_signal(signal.SIGINT)
    assert following.wait(PATIENCE_SECONDS) == 130
    assert re.findall("satisfied|started|stopped", printed.read_text()) == ["satisfied", "stopped"]
    _, record, _ = answer(reclaimd_here(*words, "-o", "json"))["records"]
    assert record["removals"] == stage.daemon.passes[0]["removals"]
    assert not stage.daemon.logged("removed image")


def test_regret_counts_the_removals_of_daemon_and_commands(stage: Stage) -> None:
    """And what came back."""
    stage.plays()


def test_the_command_that_does_the_work_itself_records_it(stage: Stage) -> None:
    """If it removes something."""
    stage.plays()


def test_what_the_daemon_does_on_request_and_what_was_parked_is_recorded(stage: Stage) -> None:
    """Each with what began it."""
    stage.plays()


def test_the_periodic_loops_are_recorded(stage: Stage) -> None:
    """With the trigger `periodic`."""
    stage.plays()


def test_on_a_disk_without_a_byte_the_history_is_written_and_read(stage: Stage) -> None:
    """A daemon that starts with 0 bytes and 0 inodes removes, without creating a file."""
    stage.plays()


def test_without_a_history_of_this_version_a_sentence_says_so(stage: Stage) -> None:
    """And no file is lost."""
    stage.plays()


def test_what_is_torn_is_counted(stage: Stage) -> None:
    """In one sentence; what is whole is shown."""
    stage.plays()


@pytest.mark.regression
def test_a_daemon_says_why_if_the_configuration_cannot_be_used(stage: Stage) -> None:
    """And the command says that it was asked."""
    stage.plays()
