"""What an operator says keeps the daemon from removing: `pause`, a dry run, and a reload."""

from __future__ import annotations

import pytest

from tests.sockets.stage import Stage


@pytest.mark.regression
def test_a_pause_outlives_the_daemon(stage: Stage) -> None:
    """Under pressure nothing is removed until it ends, by this daemon, the next one or a command."""
    stage.plays()


@pytest.mark.regression
def test_a_file_that_may_be_a_pause_holds_until_it_can_be_read_or_is_ended(stage: Stage) -> None:
    """Neither the daemon nor a command removes anything, and each says why."""
    stage.plays()


def test_a_pause_that_cannot_be_kept_is_a_warning(stage: Stage) -> None:
    """To the client and in the log; the pause holds, exit 0."""
    stage.plays()


def test_a_pause_stops_the_pass_that_runs(stage: Stage) -> None:
    """Once the client has its answer only what had been sent ends."""
    stage.plays()


def test_a_reload_stops_the_pass_that_runs(stage: Stage) -> None:
    """A dry run, images that are kept, or no mark: in force while the pass still waits for what it
    has sent; what the pass had planned stays."""
    stage.plays()


@pytest.mark.regression
def test_a_dry_run_removes_nothing_and_everything_is_told(stage: Stage) -> None:
    """Until a reload ends it."""
    stage.plays()
