"""`reclaimd pause` and `resume`: under pressure nothing is removed
meanwhile, and everybody says why.
"""

from __future__ import annotations

import pytest

from eviction.surface.pause import PauseFile
from signals.clock import SystemClock
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, answer, reclaimd, reclaimd_here


def test_nothing_is_removed_until_the_pause_ends(small_node: SmallNode) -> None:
    """In status, doctor and the log, and for a command that asks the daemon;
    --now removes all the same.
    """
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
        assert answer(reclaimd_here("status", "--config", file, "-o", "json"))[
            "held_off"
        ].startswith("paused until ")
        assert "the daemon removes nothing now" in reclaimd_here("doctor", "--config", file).stdout
        asked = reclaimd("reclaim", "--config", file)
        assert (asked.returncode, "held off: paused until " in asked.stderr) == (6, True)
        assert set(images) <= small_node.images()
        ended = reclaimd("resume", "--config", file)
        until = paused.stdout.split()[2]
        assert (ended.returncode, ended.stdout) == (0, f"the pause until {until} is ended\n")
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert images[0] not in small_node.images()
        assert daemon.stop() == 0


@pytest.mark.regression
def test_a_pause_outlives_the_daemon(small_node: SmallNode) -> None:
    """Under pressure the next daemon removes nothing: it says so in its log, in status and in
    doctor, until when. Nor does a command while none runs. After `resume` relief begins, and a
    third daemon knows of no pause."""
    images = small_node.add_images(4)
    state = small_node.disk.parent / "state" / "images.json"
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control, stateFile=str(state)
    )
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        paused = reclaimd_here("pause", "--for", "10m", "--config", file)
        assert (paused.returncode, paused.stderr) == (0, "")
        assert daemon.stop() == 0
    still = paused.stdout.rstrip("\n")
    small_node.fill(8 * MIB)
    alone = reclaimd_here("reclaim", "--config", file)
    assert (alone.returncode, still[:30] in alone.stderr) == (6, True)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith(f"still {still[:30]}"))
        daemon.wait_for(lambda event: event["message"].startswith("held off: paused until "))
        assert f"held off: {still[:30]}" in reclaimd_here("status", "--config", file).stdout
        assert still[:30] in reclaimd_here("doctor", "--config", file).stdout
        assert set(images) <= small_node.images()
        assert reclaimd_here("resume", "--config", file).returncode == 0
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert reclaimd_here("resume", "--config", file).stdout == "there was no pause to end\n"
        assert daemon.stop() == 0
    assert not state.with_name("images.json.pause").exists()
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        assert answer(reclaimd_here("status", "--config", file, "-o", "json"))["held_off"] is None
        assert daemon.stop() == 0
    assert not daemon.logged("paused until")


@pytest.mark.regression
def test_a_file_that_may_be_a_pause_holds_until_it_can_be_read_or_is_ended(
    small_node: SmallNode,
) -> None:
    """Torn: under pressure neither the daemon nor a command removes anything, and each says why.
    Relief begins some seconds after the file is whole, or gone; the next daemon, which finds a
    directory, is told to `resume`."""
    images = small_node.add_images(6)
    state = small_node.disk.parent / "state" / "images.json"
    kept = state.with_name("images.json.pause")
    kept.parent.mkdir(mode=0o700)
    kept.write_text('{"kind": "reclaimd.io/pause", "version": 1, "sec')
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, 2 * MIB, controlSocket=control, stateFile=str(state)
    )
    unknown = f"as whether a pause is in force is not known: {kept} cannot be used: "
    alone = reclaimd_here("reclaim", "--config", file)
    assert (alone.returncode, unknown in alone.stderr) == (6, True)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("held off: paused until "))
        assert (
            unknown in answer(reclaimd_here("status", "--config", file, "-o", "json"))["held_off"]
        )
        assert unknown in reclaimd_here("doctor", "--config", file).stdout
        for way in ([], ["--standalone"]):
            asked = reclaimd("reclaim", "--config", file, *way)
            assert (asked.returncode, unknown in asked.stderr) == (6, True)
        assert set(images) <= small_node.images()
        kept.unlink()
        daemon.wait_for(
            lambda event: event["message"] == f"{kept} can be read again: there is no pause"
        )
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert daemon.stop() == 0
    left = small_node.images()
    kept.mkdir()
    small_node.fill(4 * MIB)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("held off: paused until "))
        assert small_node.images() == left
        ended = reclaimd_here("resume", "--config", file)
        assert (
            ended.returncode,
            "a restart of the daemon brings the pause back: " in ended.stderr,
        ) == (0, True)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert daemon.stop() == 0


def test_a_pause_that_cannot_be_kept_is_a_warning(small_node: SmallNode) -> None:
    """To the client and in the log; the pause holds, exit 0. Where the state is to be is a file."""
    state = small_node.disk.parent / "state"
    state.write_text("")
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(controlSocket=control, stateFile=str(state / "images.json"))
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        paused = reclaimd_here("pause", "--config", file)
        assert (paused.returncode, paused.stdout.startswith("paused until ")) == (0, True)
        warning = (
            f"a restart of the daemon ends the pause: {state}/images.json.pause cannot be written: "
        )
        assert paused.stderr.startswith(f"reclaimd: {warning}")
        daemon.wait_for(lambda event: event["message"].startswith(warning))
        assert answer(reclaimd_here("status", "--config", file, "-o", "json"))[
            "held_off"
        ].startswith("paused until ")
        assert daemon.stop() == 0


def test_without_a_daemon_resume_ends_what_is_kept_for_the_next_one(small_node: SmallNode) -> None:
    """Exit 3 all the same, as no daemon answers."""
    state = small_node.disk.parent / "state" / "images.json"
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(controlSocket=control, stateFile=str(state))
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        assert reclaimd_here("pause", "--config", file).returncode == 0
        assert daemon.stop() == 0
    kept = state.with_name("images.json.pause")
    assert kept.exists()
    ended = reclaimd_here("resume", "--config", file)
    assert (
        ended.returncode,
        f"{kept} is removed, so its next start is without a pause" in ended.stderr,
    ) == (3, True)
    assert not kept.exists()


def test_a_command_alone_skips_a_pause_when_it_is_told_to(small_node: SmallNode) -> None:
    """`--now`, and a dry run, which removes nothing; with nothing under pressure there is
    nothing to do, and exit 0.
    """
    state = small_node.disk.parent / "state" / "images.json"
    assert PauseFile(str(state), SystemClock()).keep(lambda: 600.0) == ""
    small_node.add_images(4)
    idle = small_node.configuration(stateFile=str(state))
    assert reclaimd_here("reclaim", "--config", idle, "--standalone").returncode == 0
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB, stateFile=str(state))
    codes = [
        reclaimd_here("reclaim", "--config", file, "--standalone", *more).returncode
        for more in ([], ["--dry-run"], ["--now"])
    ]
    assert codes == [6, 0, 0]


def test_now_does_not_wait_for_a_pause(small_node: SmallNode) -> None:
    """As an operator says so by hand."""
    images = small_node.add_images(4)
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        assert reclaimd_here("pause", "--config", file).returncode == 0
        small_node.fill(8 * MIB)
        assert reclaimd("reclaim", "--config", file, "--now").returncode == 0
        assert images[0] not in small_node.images()
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("duration", "words"),
    [("0s", "between 1ms and 24h"), ("25h", "between 1ms and 24h"), ("soon", "--for: 'soon'")],
)
def test_a_pause_that_cannot_be_is_refused(duration: str, words: str) -> None:
    """Exit 2 and one sentence."""
    refused = reclaimd_here("pause", "--for", duration, "--config", "")
    assert refused.returncode == 2
    assert words in refused.stderr


def test_without_a_daemon_there_is_nothing_to_pause(small_node: SmallNode) -> None:
    """Exit 3."""
    file = small_node.configuration(controlSocket=str(small_node.disk.parent / "none.sock"))
    assert [reclaimd_here(word, "--config", file).returncode for word in ("pause", "resume")] == [
        3,
        3,
    ]
