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


def after(passed: float, set_by: float = 0.0, boot: str = "boot-1") -> Moment:
    """So long after the pause began, in its boot or a minute after another one. `set_by`: how far
    somebody has set the time of day meanwhile."""
    since_boot = BEGUN.monotonic + passed if boot == "boot-1" else 60.0
    return Moment(since_boot, BEGUN.wall + passed + set_by, boot, "machine")


BACK = -50 * 365 * 24 * HOUR  # a node without a battery clock


@pytest.mark.parametrize(
    ("now", "left"),
    [
        *((after(1200.0, set_by), 2400.0) for set_by in (0.0, -10 * HOUR, 10 * HOUR)),
        *((after(HOUR, set_by), 0.0) for set_by in (0.0, -10 * HOUR, 10 * HOUR)),
        pytest.param(after(-500.0), HOUR, id="a file that says it begins later in this boot"),
        pytest.param(after(1200.0, boot="boot-2"), 2400.0, id="the node was off for 19 minutes"),
        pytest.param(after(2 * HOUR, boot="boot-2"), 0.0, id="the node was off for two hours"),
        *((after(1200.0, BACK, boot), HOUR - 60.0) for boot in ("boot-2", "")),
        pytest.param(Moment(HOUR, BEGUN.wall + BACK, "boot-2", "machine"), 0.0, id="it ends"),
    ],
)
def test_what_is_left_of_an_hour(now: Moment, left: float) -> None:
    """In the same boot the time of day does not matter; after another one it decides, but it never
    lasts longer than it was to, less the time since the boot, and so it ends, however often the
    daemon is started again."""
    assert left_seconds(KEPT, now) == left


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
        left_seconds(text, after(0.0))


def test_a_pause_of_another_machine_is_none() -> None:
    """A cloned disk image carries it."""
    assert left_seconds(begun(machine_id="another"), after(0.0)) == 0.0


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*json.loads(KEPT),
        *json.loads(KEPT)["begun"]]), inner),
).map(lambda value: changed(begun=value, seconds=value)))  # fmt: skip
def test_whatever_the_bytes_are_there_is_a_length_or_a_refusal(text: bytes) -> None:
    """Never a longer pause than a day."""
    try:
        assert 0.0 <= left_seconds(text, after(0.0)) <= LONGEST
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
    """One node: its clock, its state directory, and a daemon that is started as often as asked."""

    def __init__(self, state: Path):
        self.clock = SteppedClock()
        self.state = state
        self.path = Path(f"{state}.pause")
        self.told: list[str] = []

    def started(self) -> tuple[Paused, PauseFile]:
        """The pause of a daemon that starts now, and its file. A file that cannot be read is looked
        at again at once; what is said then is in `told`."""
        pause = Paused(self.clock)
        file = PauseFile(str(self.state), self.clock, "boot-1", machine_id="machine")
        file.restore(cast("Any", pause), self.told.append, again_seconds=0.01)
        return pause, file

    def put(self, text: bytes, mode: int = 0o600) -> None:
        """A file of somebody's in its place, whole at once."""
        self.path.parent.mkdir(exist_ok=True)
        whole = self.path.with_name("whole")
        whole.write_bytes(text)
        whole.chmod(mode)
        whole.rename(self.path)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose state directory does not exist yet."""
    return Node(tmp_path / "state" / "images.json")


def test_a_pause_outlives_the_daemon_and_ends_in_time(node: Node) -> None:
    """Ten minutes, of which four have passed at the next start; nobody else may read or write it. A
    daemon that ends takes one that is over along: a time of day that is set back could bring it to
    life."""
    pause, file = node.started()
    file.finish(pause.pause_left_seconds)
    assert (pause.paused(), node.path.parent.exists()) == ("", False), "without a pause: nothing"
    pause.pause(600.0)
    until = pause.paused()
    assert file.keep(pause.pause_left_seconds) == ""
    assert node.path.stat().st_mode & 0o777 == 0o600
    node.clock.step(240.0)
    again, file = node.started()
    assert (again.pause_left_seconds(), again.paused()) == (360.0, until)
    file.finish(again.pause_left_seconds)
    assert node.path.exists()
    node.clock.step(360.0)
    assert node.started()[0].paused() == ""
    file.finish(again.pause_left_seconds)
    assert not node.path.exists()


def test_a_pause_that_is_ended_does_not_come_back(node: Node) -> None:
    """The file is gone; also if it is ended in the middle of being saved."""
    for interrupted in (False, True):
        clock = InterruptedClock()
        pause = Paused(node.clock)
        file = PauseFile(str(node.state), clock, "boot-1", machine_id="machine")

        def resume(pause: Paused = pause, file: PauseFile = file) -> str:
            pause.pause(0.0)
            return file.keep(pause.pause_left_seconds)

        pause.pause(HOUR)
        resumed = clock.interruption = Interruption(resume if interrupted else lambda: None)
        assert file.keep(pause.pause_left_seconds) == ""
        resumed.join()
        assert interrupted or resume() == ""
        assert [*node.path.parent.iterdir()] == []
        assert node.started()[0].paused() == ""


def test_a_pause_that_cannot_be_kept_holds_and_is_a_sentence(node: Node) -> None:
    """Without a state file; with a file where its directory should be, in which no pause can be; with
    a directory where it should be."""
    pause, file = Paused(node.clock), PauseFile("", node.clock)
    file.restore(cast("Any", pause))
    pause.pause(600.0)
    ends = "a restart of the daemon ends the pause"
    assert file.keep(pause.pause_left_seconds) == f"{ends}, as stateFile is empty"
    assert not node.state.parent.exists()
    node.state.parent.write_text("")
    pause, file = node.started()
    assert pause.paused() == ""
    pause.pause(600.0)
    said = file.keep(pause.pause_left_seconds)
    assert said.startswith(f"{ends}: {node.path} cannot be written: ")
    assert pause.pause_left_seconds() == 600.0
    node.state.parent.unlink()
    node.path.mkdir(parents=True)
    pause.pause(0.0)
    back = f"a restart of the daemon brings the pause back: {node.path} cannot be removed: "
    assert file.keep(pause.pause_left_seconds).startswith(back)


@pytest.mark.parametrize("text", [b"", b"{", KEPT[:-9], b"x" * 1_000_000])
def test_what_lies_in_its_place_may_be_a_pause_until_the_next_one(node: Node, text: bytes) -> None:
    """Nothing is removed, for a day at most; it is left alone until somebody begins a pause."""
    node.put(text)
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(node.clock.wall() + LONGEST))
    why = f"{node.path} cannot be used: it is not a pause of this version of reclaimd"
    because = f"as whether a pause is in force is not known: {why} (reclaimd resume ends it)"
    (pause, file), (forgotten, _) = node.started(), node.started()
    assert pause.paused() == f"paused until {until}, {because}"
    assert (pause.pause_left_seconds(), node.path.read_bytes()) == (LONGEST, text)
    pause.pause(600.0)
    assert file.keep(pause.pause_left_seconds) == ""
    assert node.started()[0].pause_left_seconds() == pause.pause_left_seconds() == 600.0
    node.path.write_bytes(text)
    node.clock.step(LONGEST)
    assert forgotten.paused() == ""


@pytest.mark.parametrize("place", ["link", "fifo", "everybody's", "directory", "linked directory"])
def test_what_others_may_have_put_there_may_be_a_pause(
    node: Node, tmp_path: Path, place: str
) -> None:
    """A symbolic link to a pause, a FIFO that nobody writes, a file that every user may write, a
    directory; or the state directory is a link. `resume` ends it; so does its removal, without a
    word to the daemon."""
    elsewhere = tmp_path / "elsewhere"
    node.put(KEPT, 0o666 if place == "everybody's" else 0o600)
    if place == "linked directory":
        node.path.parent.rename(elsewhere)
        node.path.parent.symlink_to(elsewhere)
    elif place != "everybody's":
        node.path.rename(elsewhere)
        make = {"link": lambda path: path.symlink_to(elsewhere), "fifo": os.mkfifo}
        make.get(place, os.mkdir)(node.path)
    pause, other = node.started()[0], node.started()[0]
    assert pause.pause_is_unknown()
    assert other.pause_left_seconds() == LONGEST
    pause.pause(0.0)
    assert pause.paused() == ""
    node.path.parent.rename(tmp_path / "away")
    assert came_true(lambda: not other.pause_is_unknown())
    said = f"{node.path} can be read again: there is no pause"
    assert (other.paused(), node.told) == ("", [said])


def test_a_pause_that_can_be_read_again_lasts_as_long_as_it_says(node: Node) -> None:
    """Ten minutes, of which four have passed."""
    node.put(KEPT[:-9])
    pause, begun = node.started()[0], Paused(node.clock)
    since = Moment(node.clock.monotonic(), node.clock.wall(), "boot-1", "machine")
    begun.pause(600.0)
    node.clock.step(240.0)
    assert pause.pause_left_seconds() == LONGEST - 240.0
    node.put(pause_json(600.0, since))
    assert came_true(lambda: pause.pause_left_seconds() == 360.0 and bool(node.told))
    assert node.told == [f"{node.path} can be read again: {begun.paused()}"]


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
            pause.pause(60.0 * (turn + 1) * ((number + turn) % 2))
            file.keep(pause.pause_left_seconds)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert node.started()[0].pause_left_seconds() == pause.pause_left_seconds()
