"""A pause outlives the daemon: how long it still lasts, by which clock, and what is no pause."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.engine.world import Pause
from eviction.records.state_file import Moment
from eviction.surface.pause import LARGEST_BYTES, PauseFile, left_seconds, pause_json
from tests.pure.interrupted import InterruptedClock, Interruption
from tests.pure.values import SteppedClock
from tests.reclaimd_process import came_true

HOUR = 3600.0
LONGEST = 86_400.0
BEGUN = Moment(monotonic=1000.0, wall=1_800_000_000.0, boot_id="boot-1", machine_id="machine")
KEPT = pause_json(HOUR, BEGUN)


def moment(passed: float, wall_set_by: float = 0.0) -> Moment:
    """So long after the pause began, in the same boot; somebody has set the
    time of day meanwhile.
    """
    return Moment(BEGUN.monotonic + passed, BEGUN.wall + passed + wall_set_by, "boot-1", "machine")


def after_a_reboot(
    passed: float, since_boot: float, wall_set_by: float = 0.0, boot_id: str = "boot-2"
) -> Moment:
    """So long after the pause began, and so long after the node was started again."""
    return Moment(since_boot, BEGUN.wall + passed + wall_set_by, boot_id, "machine")


@pytest.mark.parametrize("wall_set_by", [0.0, -10 * HOUR, 10 * HOUR])
def test_in_the_same_boot_the_time_of_day_does_not_matter(wall_set_by: float) -> None:
    """20 minutes of an hour have passed, wherever somebody has set the clock."""
    assert left_seconds(KEPT, moment(1200.0, wall_set_by)) == 2400.0
    assert left_seconds(KEPT, moment(HOUR, wall_set_by)) == 0.0


def test_after_a_reboot_the_time_of_day_decides() -> None:
    """The node was off for 19 minutes."""
    assert left_seconds(KEPT, after_a_reboot(1200.0, since_boot=60.0)) == 2400.0
    assert left_seconds(KEPT, after_a_reboot(2 * HOUR, since_boot=60.0)) == 0.0


@pytest.mark.parametrize("boot_id", ["boot-2", ""])
def test_after_a_reboot_it_never_lasts_longer_than_it_was_to(boot_id: str) -> None:
    """The clock was set back by years (a node without a battery clock): an hour less the time since
    the boot, and so it ends however often the daemon is started again."""
    back = -50 * 365 * 24 * HOUR
    assert left_seconds(KEPT, after_a_reboot(1200.0, 60.0, back, boot_id)) == HOUR - 60.0
    assert left_seconds(KEPT, after_a_reboot(2 * HOUR, HOUR, back, boot_id)) == 0.0


def test_a_pause_of_the_future_lasts_no_longer_than_it_was_to() -> None:
    """A file that says it begins later in this boot."""
    assert left_seconds(KEPT, moment(-500.0)) == HOUR


def changed(**fields: object) -> bytes:
    """The file with other fields."""
    return json.dumps({**json.loads(KEPT), **fields}).encode()


def begun(**fields: object) -> bytes:
    """The file with another beginning."""
    return changed(begun={**json.loads(KEPT)["begun"], **fields})


NONE = [
    b"", b"\n", b"\xff\xfe", b"null", b"[]", b'"pause"', b"{}", KEPT[:-20], b"[" * 4000, b"x" * (LARGEST_BYTES + 1),
    changed(kind="reclaimd.io/image-records"), changed(version=2), changed(begun=[]), changed(begun=None),
    changed(seconds=0), changed(seconds=-1), changed(seconds=True), changed(seconds="1h"), changed(seconds=None),
    changed(seconds=86_401), changed(seconds=float("inf")), changed(seconds=float("nan")),
    changed(seconds=10**400), begun(wall=float("nan")), begun(wall=10**400), begun(monotonic="now"),
    begun(monotonic=float("-inf")), begun(boot_id=5), begun(machine_id=None),
]  # fmt: skip


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_pause_is_refused_in_words(text: bytes) -> None:
    """Torn, foreign, oversized, of another version, or with times that cannot be."""
    with pytest.raises(ValueError, match=r"^it is not a pause"):
        left_seconds(text, moment(0.0))


def test_a_pause_of_another_machine_is_none() -> None:
    """A cloned disk image carries it."""
    assert left_seconds(begun(machine_id="another"), moment(0.0)) == 0.0


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "version", "seconds", "begun",
        "wall", "monotonic", "boot_id", "machine_id"]), inner),
).map(lambda value: changed(begun=value, seconds=value)))  # fmt: skip
def test_whatever_the_bytes_are_there_is_a_length_or_a_refusal(text: bytes) -> None:
    """Never a longer pause than a day."""
    try:
        assert 0.0 <= left_seconds(text, moment(0.0)) <= 86_400
    except ValueError:
        pass


class Paused:
    """What a daemon knows of its pause."""

    def __init__(self, clock: SteppedClock):
        self._clock = clock
        self._pause = Pause()
        self._lock = threading.Lock()

    def pause(self, seconds: float, unknown: str = "", *, if_unknown: bool = False) -> int:
        """As its owner folds it."""
        with self._lock:
            if not if_unknown or self.pause_is_unknown():
                now = self._clock.monotonic()
                self._pause = (
                    self._pause.begun(now, seconds, unknown) if seconds else self._pause.ended()
                )
        return 0

    def paused(self) -> str:
        """The sentence."""
        return self._pause.why(self._clock.monotonic(), self._clock.wall())

    def pause_left_seconds(self) -> float:
        """What is left of it."""
        return self._pause.left_seconds(self._clock.monotonic())

    def pause_is_unknown(self) -> bool:
        """Whether it is not known to be one."""
        return self._pause.unknown(self._clock.monotonic())


class Node:
    """One node: its clock, its state directory, and a daemon that is
    started anew as often as asked.
    """

    def __init__(self, state: Path):
        self.clock = SteppedClock()
        self.state = state
        self.boot_id = "boot-1"
        self.path = Path(f"{state}.pause")
        self.told: list[str] = []

    def started(self) -> tuple[Paused, PauseFile]:
        """The pause of a daemon that starts now, and its file. A file that cannot be read is looked
        at again at once; what is said then is in `told`."""
        pause = Paused(self.clock)
        file = PauseFile(str(self.state), self.clock, self.boot_id, machine_id="machine")
        file.restore(cast("Any", pause), self.told.append, again_seconds=0.01)
        return pause, file

    def unknown(self, why: str) -> str:
        """What is said for the longest pause from now, while the file cannot be used."""
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock.wall() + LONGEST))
        because = f"as whether a pause is in force is not known: {self.path} cannot be used: {why}"
        return f"paused until {until}, {because} (reclaimd resume ends it)"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose state directory does not exist yet."""
    return Node(tmp_path / "state" / "images.json")


def test_a_pause_outlives_the_daemon_and_ends_in_time(node: Node) -> None:
    """Ten minutes; the daemon is started again after four; the end is the same.

    Nobody else may read or write it.
    """
    pause, file = node.started()
    pause.pause(600.0)
    until = pause.paused()
    assert file.keep(pause.pause_left_seconds) == ""
    assert node.path.stat().st_mode & 0o777 == 0o600
    node.clock.step(240.0)
    again, _ = node.started()
    assert (again.pause_left_seconds(), again.paused()) == (360.0, until)
    node.clock.step(360.0)
    assert node.started()[0].paused() == ""


def test_a_pause_that_is_ended_does_not_come_back(node: Node) -> None:
    """The file is gone."""
    pause, file = node.started()
    pause.pause(600.0)
    file.keep(pause.pause_left_seconds)
    again, file = node.started()
    again.pause(0.0)
    assert (file.keep(again.pause_left_seconds), list(node.path.parent.iterdir())) == ("", [])
    assert node.started()[0].paused() == ""


def test_a_start_without_a_pause_creates_nothing(node: Node) -> None:
    """Nor does its end: not even the directory."""
    pause, file = node.started()
    file.finish(pause.pause_left_seconds)
    assert (pause.paused(), node.path.parent.exists()) == ("", False)


def test_a_daemon_that_ends_takes_a_pause_that_is_over_along(node: Node) -> None:
    """A time of day that is set back after a reboot could bring it to life; one
    that lasts stays.
    """
    pause, file = node.started()
    pause.pause(600.0)
    file.keep(pause.pause_left_seconds)
    again, file = node.started()
    file.finish(again.pause_left_seconds)
    assert node.path.exists()
    node.clock.step(600.0)
    file.finish(again.pause_left_seconds)
    assert not node.path.exists()


def test_without_a_state_file_the_client_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause holds; nothing is written anywhere."""
    monkeypatch.chdir(tmp_path)
    clock = SteppedClock()
    pause, file = Paused(clock), PauseFile("", clock)
    pause.pause(600.0)
    file.restore(cast("Any", pause))
    assert pause.pause_left_seconds() == 600.0
    assert (
        file.keep(pause.pause_left_seconds)
        == "a restart of the daemon ends the pause, as stateFile is empty"
    )
    pause.pause(0.0)
    assert (file.keep(pause.pause_left_seconds), list(tmp_path.iterdir())) == ("", [])


def test_a_file_that_cannot_be_written_or_removed_is_a_sentence(node: Node) -> None:
    """A file where the directory should be, in which no pause can be; a directory where the file
    should be. The pause holds all the same."""
    node.state.parent.write_text("")
    pause, file = node.started()
    assert pause.paused() == ""
    pause.pause(600.0)
    assert file.keep(pause.pause_left_seconds).startswith(
        f"a restart of the daemon ends the pause: {node.path} cannot be written: "
    )
    assert pause.pause_left_seconds() == 600.0
    node.state.parent.unlink()
    node.path.mkdir(parents=True)
    pause.pause(0.0)
    assert file.keep(pause.pause_left_seconds).startswith(
        f"a restart of the daemon brings the pause back: {node.path} cannot be removed: "
    )


@pytest.mark.parametrize("text", [b"", b"{", KEPT[:-9], b"x" * 1_000_000])
def test_what_lies_in_its_place_may_be_a_pause_until_the_next_one(node: Node, text: bytes) -> None:
    """Nothing is removed, for a day at most; it is left alone until
    somebody begins or ends a pause.
    """
    node.path.parent.mkdir()
    node.path.write_bytes(text)
    pause, file = node.started()
    assert pause.paused() == node.unknown("it is not a pause of this version of reclaimd")
    assert (pause.pause_left_seconds(), node.path.read_bytes()) == (LONGEST, text)
    pause.pause(600.0)
    assert file.keep(pause.pause_left_seconds) == ""
    assert node.started()[0].pause_left_seconds() == 600.0
    assert pause.pause_left_seconds() == 600.0
    assert node.told == []


@pytest.mark.parametrize("place", ["link", "fifo", "everybody's", "directory", "linked directory"])
def test_what_others_may_have_put_there_may_be_a_pause(
    node: Node, tmp_path: Path, place: str
) -> None:
    """A symbolic link to a pause, a FIFO that nobody writes, a file that every user may write,
    a directory; or the state directory is a link. `resume` ends it; so does its removal,
    without a word to the daemon."""
    elsewhere = tmp_path / "elsewhere"
    node.path.parent.mkdir()
    if place == "fifo":
        os.mkfifo(node.path)
    elif place == "directory":
        node.path.mkdir()
    elif place == "linked directory":
        node.path.parent.rename(elsewhere)
        node.path.parent.symlink_to(elsewhere)
    else:
        target = elsewhere if place == "link" else node.path
        target.write_bytes(KEPT)
        target.chmod(0o600 if place == "link" else 0o666)
        if place == "link":
            node.path.symlink_to(target)
    pause, other = node.started()[0], node.started()[0]
    assert pause.pause_is_unknown()
    assert other.pause_left_seconds() == LONGEST
    pause.pause(0.0)
    assert pause.paused() == ""
    node.path.parent.rename(tmp_path / "away")
    assert came_true(lambda: not other.pause_is_unknown())
    assert (other.paused(), node.told) == (
        "",
        [f"{node.path} can be read again: there is no pause"],
    )


def test_a_pause_that_can_be_read_again_lasts_as_long_as_it_says(node: Node) -> None:
    """Ten minutes, of which four have passed; and without an answer it is over after a day."""
    node.path.parent.mkdir()
    node.path.write_bytes(KEPT[:-9])
    pause, alone = node.started()[0], node.started()[0]
    begun, since = Paused(node.clock), node.clock.monotonic()
    begun.pause(600.0)
    node.clock.step(240.0)
    assert pause.pause_left_seconds() == LONGEST - 240.0
    whole = pause_json(600.0, Moment(since, node.clock.wall() - 240.0, node.boot_id, "machine"))
    node.path.with_name("whole").write_bytes(whole)
    node.path.with_name("whole").chmod(0o600)
    node.path.with_name("whole").rename(node.path)
    assert came_true(lambda: pause.pause_left_seconds() == 360.0 and len(node.told) == 2)
    assert (alone.paused(), node.told[0]) == (
        begun.paused(),
        f"{node.path} can be read again: {begun.paused()}",
    )


def test_an_unknown_pause_ends_after_a_day(node: Node) -> None:
    """A forgotten one too."""
    node.path.parent.mkdir()
    node.path.write_bytes(b"{")
    pause, _ = node.started()
    node.clock.step(LONGEST - 1.0)
    assert pause.paused() != ""
    node.clock.step(1.0)
    assert pause.paused() == ""


def test_a_look_that_ends_late_changes_no_pause_that_somebody_has_begun(node: Node) -> None:
    """What the operator says is newer than what the file said."""
    pause = Paused(node.clock)
    pause.pause(LONGEST, unknown="it hangs")
    pause.pause(600.0)
    pause.pause(0.0, if_unknown=True)
    assert pause.pause_left_seconds() == 600.0
    pause.pause(0.0)
    pause.pause(60.0, if_unknown=True)
    assert pause.paused() == ""


def test_many_clients_at_once_leave_what_the_daemon_does(node: Node) -> None:
    """Eight threads pause and resume; at the end the file says what the pause says."""
    pause, file = node.started()

    def client(number: int) -> None:
        for turn in range(20):
            if (number + turn) % 2:
                pause.pause(60.0 * (turn + 1))
            else:
                pause.pause(0.0)
            file.keep(pause.pause_left_seconds)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert node.started()[0].pause_left_seconds() == pause.pause_left_seconds()


def test_a_pause_that_is_ended_while_it_is_saved_does_not_come_back(tmp_path: Path) -> None:
    """Another client ends it in the middle: nothing is left that a restart would continue."""
    clock = InterruptedClock()
    pause, file = Paused(SteppedClock()), PauseFile(str(tmp_path / "images.json"), clock, "boot-1")
    pause.pause(HOUR)

    def resume() -> None:
        pause.pause(0.0)
        file.keep(pause.pause_left_seconds)

    resumed = clock.interruption = Interruption(resume)
    assert file.keep(pause.pause_left_seconds) == ""
    resumed.join()
    assert not Path(file.path).exists()
