"""`reclaimd pause` and `resume`: under pressure nothing is removed meanwhile, and everybody says why."""

from __future__ import annotations

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, answer, reclaimd, reclaimd_here


def test_nothing_is_removed_until_the_pause_ends(small_node: SmallNode) -> None:
    """In status, doctor and the log, and for a command that asks the daemon; --now removes all the same."""
    images = small_node.add_images(4)
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        paused = reclaimd("pause", "--for", "10m", "--config", file)
        assert (paused.returncode, paused.stdout.startswith("paused until ")) == (0, True)
        small_node.fill(8 * MIB)
        daemon.wait_for(lambda event: event["message"].startswith("held off: paused until "))
        assert set(images) <= small_node.images()
        assert "held off: paused until " in reclaimd_here("status", "--config", file).stdout
        assert answer(reclaimd_here("status", "--config", file, "-o", "json"))["held_off"].startswith("paused until ")
        assert "the daemon removes nothing now" in reclaimd("doctor", "--config", file).stdout
        asked = reclaimd("reclaim", "--config", file)
        assert (asked.returncode, "held off: paused until " in asked.stderr) == (1, True)
        assert set(images) <= small_node.images()
        ended = reclaimd("resume", "--config", file)
        assert (ended.returncode, ended.stdout) == (0, "not paused\n")
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert images[0] not in small_node.images()
        assert daemon.stop() == 0


def test_now_does_not_wait_for_a_pause(small_node: SmallNode) -> None:
    """As an operator says so by hand."""
    images = small_node.add_images(4)
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        assert reclaimd("pause", "--config", file).returncode == 0
        small_node.fill(8 * MIB)
        assert reclaimd("reclaim", "--config", file, "--now").returncode == 0
        assert images[0] not in small_node.images()
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("duration", "words"), [("0s", "above 0s and at most 24h"), ("25h", "at most 24h"), ("soon", "--for: 'soon'")]
)
def test_a_pause_that_cannot_be_is_refused(duration: str, words: str) -> None:
    """Exit 2 and one sentence."""
    refused = reclaimd_here("pause", "--for", duration, "--config", "")
    assert refused.returncode == 2
    assert words in refused.stderr


def test_without_a_daemon_there_is_nothing_to_pause(small_node: SmallNode) -> None:
    """Exit 3."""
    file = small_node.configuration(controlSocket=str(small_node.disk.parent / "none.sock"))
    assert [reclaimd_here(word, "--config", file).returncode for word in ("pause", "resume")] == [3, 3]
