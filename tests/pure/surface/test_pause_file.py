"""A pause outlives the daemon: how long it still lasts, by which clock, and what is no pause."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.engine.effects import PauseSet
from eviction.engine.fold import fold
from eviction.engine.node import Node
from eviction.records.state_file import Moment
from eviction.surface.pause import LARGEST_BYTES, PauseFile, left_seconds, pause_json
from tests.inline import configured
from tests.pure.interrupted import InterruptedClock, Interruption
from tests.pure.values import SteppedClock
from tests.reclaimd_process import came_true
from tests.rows import rows

HOUR = 3600.0
LONGEST = 86_400.0
BEGUN = Moment(monotonic=1000.0, wall=1_800_000_000.0, boot_id="boot-1", machine_id="machine")
KEPT = pause_json(HOUR, BEGUN)


def after(
    passed: float, set_by: float = 0.0, boot: str = "boot-1", up: float | None = 60.0
) -> Moment:
    """So long after the pause began, in its boot or as long after another one. `set_by`: how far
    somebody has set the time of day meanwhile."""
    since_boot = BEGUN.monotonic + passed if boot == "boot-1" else up or 60.0
    return Moment(since_boot, BEGUN.wall + passed + set_by, boot, "machine")


@rows("""
    passed | set_by | boot   | up   | left | what
    1200   | 0      | boot-1 |      | 2400 | 20 minutes
    1200   | -36000 | boot-1 |      | 2400 | set back
    1200   | 36000  | boot-1 |      | 2400 | set forward
    3600   | 0      | boot-1 |      | 0    | an hour
    3600   | -36000 | boot-1 |      | 0    | set back
    3600   | 36000  | boot-1 |      | 0    | set forward
    -500   | 0      | boot-1 |      | 3600 | a file that says it begins later in this boot
    1200   | 0      | boot-2 |      | 2400 | the node was off for 19 minutes
    7200   | 0      | boot-2 |      | 0    | the node was off for two hours
    1200   | -2e9   | boot-2 |      | 3540 | a node without a battery clock
    1200   | -2e9   |        |      | 3540 | and without a boot that is known
    0      | -2e9   | boot-2 | 3600 | 0    | it ends
""")
def test_what_is_left_of_an_hour(
    passed: float, set_by: float, boot: str, up: float | None, left: float
) -> None:
    """In the same boot the time of day does not matter; after another one it decides, but it never
    lasts longer than it was to, less the time since the boot, and so it ends, however often the
    daemon is started again."""
    assert left_seconds(KEPT, after(passed, set_by, boot, up)) == left


def changed(**fields: Any) -> bytes:
    """The file with other fields, also of its beginning."""
    kept = json.loads(KEPT)
    if isinstance(begun := fields.get("begun"), dict):
        fields["begun"] = {**kept["begun"], **begun}
    return json.dumps({**kept, **fields}).encode()


@rows("""
    fields
    {kind: reclaimd.io/image-records}
    {version: 2}
    {begun: []}
    {begun: null}
    {seconds: 0}
    {seconds: -1}
    {seconds: true}
    {seconds: 1h}
    {seconds: null}
    {seconds: 86401}
    {seconds: .inf}
    {seconds: .nan}
    {begun: {wall: .nan}}
    {begun: {monotonic: now}}
    {begun: {monotonic: -.inf}}
    {begun: {boot_id: 5}}
    {begun: {machine_id: null}}
""")
def test_what_is_no_pause_is_refused_in_words(fields: dict[str, Any]) -> None:
    """Torn, foreign, oversized, of another version, or with times that cannot be."""
    large = changed(seconds=10**400), changed(begun={"wall": 10**400}), b"x" * (LARGEST_BYTES + 1)
    torn = b"", b"\n", b"\xff\xfe", b"null", b"[]", b'"pause"', b"{}", b"[" * 4000, KEPT[:-20]
    for text in (changed(**fields), *large, *torn):
        with pytest.raises(ValueError, match=r"^it is not a pause"):
            left_seconds(text, after(0.0))


def test_a_pause_of_another_machine_is_none() -> None:
    """A cloned disk image carries it."""
    assert left_seconds(changed(begun={"machine_id": "another"}), after(0.0)) == 0.0


values = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9)


@given(
    values, st.dictionaries(st.sampled_from(Moment.__match_args__), values), st.binary(max_size=200)
)
def test_whatever_the_bytes_are_there_is_a_length_or_a_refusal(
    seconds: object, begun: object, some: bytes
) -> None:
    """Never a longer pause than a day."""
    for text in (changed(begun=begun, seconds=seconds), changed(seconds=seconds), some):
        with contextlib.suppress(ValueError):
            assert 0.0 <= left_seconds(text, after(0.0)) <= LONGEST


class Paused(Node):
    """A node whose owner folds at once what it is asked."""

    def __init__(self, clock: SteppedClock):
        super().__init__(configured(), clock=clock)

    def pause(self, seconds: float, unknown: str = "", *, if_unknown: bool = False) -> int:
        """In force at once."""
        world = self.owner.world._replace(now=self.clock.monotonic())
        self.owner.world = fold(world, PauseSet(seconds, unknown, if_unknown))
        return 0


class Host:
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
        file.restore(pause, self.told.append, again_seconds=0.01)
        return pause, file

    def put(self, text: bytes, mode: int = 0o600) -> None:
        """A file of somebody's in its place, whole at once."""
        self.path.parent.mkdir(exist_ok=True)
        whole = self.path.with_name("whole")
        whole.write_bytes(text)
        whole.chmod(mode)
        whole.rename(self.path)


@pytest.fixture
def node(tmp_path: Path) -> Host:
    """A node whose state directory does not exist yet."""
    return Host(tmp_path / "state" / "images.json")


def test_a_pause_outlives_the_daemon_and_ends_in_time(node: Host) -> None:
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


def test_a_pause_that_is_ended_does_not_come_back(node: Host) -> None:
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


def test_a_pause_that_cannot_be_kept_holds_and_is_a_sentence(node: Host) -> None:
    """Without a state file; with a file where its directory should be, in which no pause can be."""
    pause, file = Paused(node.clock), PauseFile("", node.clock)
    file.restore(pause)
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


@pytest.mark.parametrize("text", [b"", b"{", KEPT[:-9], b"x" * 1_000_000])
def test_what_lies_in_its_place_may_be_a_pause_until_the_next_one(node: Host, text: bytes) -> None:
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
    node: Host, tmp_path: Path, place: str
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


def test_a_pause_that_can_be_read_again_lasts_as_long_as_it_says(node: Host) -> None:
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
