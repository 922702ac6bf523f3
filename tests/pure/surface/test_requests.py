"""The request to the daemon: its options, the socket it goes to, and how it waits for its pass. A
pause outlives the daemon: how long it still lasts, by which clock, and what is no pause."""

import contextlib
import json
import subprocess
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.client import files_seen, read_arguments, seen_in
from eviction.configuration.effective import load
from eviction.decision.synchronize import EvictionConfig
from eviction.engine.effects import PassWanted, PauseSet, Request
from eviction.engine.fold import fold
from eviction.engine.node import Node
from eviction.records.passes import Trigger
from eviction.records.state_file import Moment, moments
from eviction.surface import answer
from eviction.surface.answer import Answer, OptionRefused
from eviction.surface.check import CheckOptions
from eviction.surface.pause import LARGEST_BYTES, PauseFile, left_seconds, pause_json
from eviction.surface.requests import (
    MOST_WAITING,
    ReclaimOptions,
    Requests,
    read_options,
    request_of,
)
from eviction.types import Extent
from reclaim.workers import Workers
from signals.types import KUBELET_SIGNALS, Signal, SignalObservations
from tests.inline import NOTHING_DECIDED, configured
from tests.pure.values import (
    GIB,
    InterruptedClock,
    Interruption,
    SteppedClock,
    observation,
    observations_of,
)
from tests.reclaimd_process import came_true
from tests.rows import rows

SIGNALS = (*KUBELET_SIGNALS, Signal("cache.available"), Signal("cache.inodesFree"))


@rows("""
    words                                       | passed_on
    reclaim                                     | [{}, {}]
    reclaim --all --dry-run --now               | [{all: true, dry_run: true, now: true}, {}]
    reclaim --signal x --until=1Gi              | [{signal: x, until: 1Gi}, {}]
    reclaim --room 1Gi --on=imagefs             | [{room: 1Gi, "on": imagefs}, {}]
    reclaim -o json                             | [{output: json}, {}]
    reclaim --output=table                      | [{output: table}, {}]
    reclaim --config /a --config-dir=/b         | [{}, {config: /a, config_dir: /b}]
    check --npd -o json --config=/a             | [{npd: true, output: json}, {config: /a}]
    reclaim --standalone                        | []
    reclaim --help                              | []
    reclaim -ojson                              | []
    reclaim -o=json                             | []
    reclaim --signal                            | []
    reclaim --signal --all                      | []
    reclaim --all=yes                           | []
    reclaim --dry                               | []
    reclaim reclaim                             | []
    reclaim --root-dir /x                       | []
    reclaim --eviction-hard nodefs.available<1% | []
    reclaim --all --kubelet-config x            | []
    check --all                                 | []
    check --signal nodefs.available             | []
    check --standalone                          | []
    check --root-dir /x                         | []
    check --help                                | []
""")
def test_the_options_of_a_command_are_passed_on(words: str, passed_on: list[object]) -> None:
    """In both of their forms, unchecked. With flags of the configuration, abbreviations, mistakes
    and --standalone the daemon is not asked: the command does the work itself."""
    command, *given = words.split()
    assert list(read_arguments(command, given) or ()) == passed_on


@rows("""
    text                                                         | path
    kind: x                                                      | /run/reclaimd/control.sock
    controlSocket: /run/a.sock                                   | /run/a.sock
    # controlSocket: /run/no.sock;controlSocket: '/run/b.sock' # here | /run/b.sock
    {"apiVersion": "x", "controlSocket": "/run/c.sock"}          | /run/c.sock
    stateFile: /x # not controlSocket: /run/no.sock              | /run/reclaimd/control.sock
    controlSocket: ""                                            |
""")
def test_the_control_socket_is_found_in_the_files(tmp_path: Path, text: str, path: str) -> None:
    """As YAML (`;`: another line) or as JSON, without either being read; a later drop-in wins."""
    file, drop_ins = tmp_path / "reclaimd.yaml", tmp_path / "conf.d"
    file.write_text(text.replace(";", "\n") + "\n")
    assert seen_in(files_seen(str(file), "")[1]) == path
    drop_ins.mkdir()
    for name in ("20.conf", "10.conf", "99.txt"):
        (drop_ins / name).write_text(f"controlSocket: /run/{name}\n")
    assert seen_in(files_seen(str(file), str(drop_ins))[1]) == "/run/20.conf"


def test_options_are_read_as_the_command_line_means_them() -> None:
    """Absent ones are off; a mark stands with its signal."""
    assert read_options({}) == ReclaimOptions()
    given = {"signal": "nodefs.available", "until": "1Gi", "all": True, "output": "json"}
    found = read_options({**given, "width": 80})
    assert found.until is not None
    assert (found.signal, found.until.mark(0)) == (Signal.NODEFS_AVAILABLE, 1 << 30)
    assert (found.all, found.as_json, found.width) == (True, True, 80)
    read = answer.read_options(CheckOptions, "check", {"npd": True, "output": "json"})
    assert read == CheckOptions("json", npd=True)


@rows("""
    given                                                   | sentence
    {signal: nodefs}                                        | --signal: 'nodefs' is none of nodefs.available,
    {signal: [nodefs.available]}                            | --signal:
    {until: 1Gi}                                            | --until sets the mark of the signal named by --signal
    {signal: nodefs.available, until: much}                 | --until: 'much' is neither
    {output: xml}                                           | --output: 'xml' is none of table, json, yaml, name
    {force: true}                                           | force: not an option of reclaim
    {width: 0}                                              | width
    {width: -1}                                             | width
    {width: "80"}                                           | width
    {width: true}                                           | width
    {width: 80.0}                                           | width
    {room: 1Gi}                                             | --on: must be one of nodefs, imagefs, containerfs, cache, but it is missing
    {"on": imagefs}                                         | --on goes with --room AMOUNT, which is missing
    {room: 1Gi, "on": imagefs.available}                    | --on: must be one of nodefs, imagefs, containerfs, cache, but it was 'imagefs.available'
    {room: 1Gi, "on": [imagefs]}                            | --on: must be one of nodefs, imagefs, containerfs, cache, but it was ['imagefs']
    {room: 1Gi, "on": imagefs, signal: nodefs.available}    | --room says what to reach, so --signal, --until and --all do not go with it
    {room: 1Gi, "on": imagefs, until: 1Gi}                  | --room says what to reach, so --signal, --until and --all do not go with it
    {room: 1Gi, "on": imagefs, all: true}                   | --room says what to reach, so --signal, --until and --all do not go with it
    {room: "12", "on": imagefs}                             | --room: must be a percentage or at least 1Mi, but it was '12'
    {room: 1000Ki, "on": imagefs}                           | --room: must be a percentage or at least 1Mi, but it was '1000Ki'
    {room: lots, "on": imagefs}                             | --room: 'lots' is neither
    {room: 120%, "on": imagefs}                             | --room: must be above 0% and at most 100%
    {room: -1Gi, "on": imagefs}                             | --room: must be above 0
""")
def test_an_option_that_is_none_is_refused(given: dict[str, Any], sentence: str) -> None:
    """One sentence names the option and what is allowed."""
    with pytest.raises(OptionRefused) as refusal:
        read_options(given, SIGNALS)
    assert sentence in str(refusal.value)


@rows("""
    on      | room       | mark
    imagefs | 12Gi       | 12884901888
    nodefs  | 10%        | 10737418400
    cache   | 1073741824 | 1073741824
""")
def test_room_is_a_mark_on_the_bytes_of_that_filesystem(on: str, room: str, mark: int) -> None:
    """Which is reached and not passed: the row of the signal, until so much is available, whatever
    extent is set."""
    options = read_options({"room": room, "on": on}, SIGNALS)
    assert options.until is not None
    assert options.signal is not None
    assert (options.signal, options.until.mark(100 * GIB)) == (f"{on}.available", mark)
    seen = observations_of(observation(options.signal, GIB))
    request = request_of(options, seen, NOTHING_DECIDED, config=EvictionConfig())
    row = EvictionConfig().row(options.signal, seen)
    assert request == Request(row, (options.until,), Extent.ENOUGH)


# ---- waiting for a pass

WANTED = PassWanted(
    SignalObservations({}, None, 0.0), NOTHING_DECIDED, Trigger.REQUEST, Request(), None, 0.0
)


OWN = {"containerRuntimeEndpoint": "none", "filesystems": [{"name": "x", "path": "/var/x"}]}
REQUEST: dict[str, Any] = {"options": {}, "told": {}}


class WithoutLoop(Node):
    """A node whose loop does not run: `withdrawn` are the passes that it was not to begin. A pass
    ends when it is withdrawn, or as `ended` says."""

    def __init__(self, waiting: int = 0, *, begun: bool = False):
        super().__init__(load(None, {}, OWN))
        self.owner.world = self.owner.world._replace(wanted=(WANTED,) * waiting)
        self.begun, self.ended = begun, Future[Answer]()
        self.withdrawn: list[PassWanted] = []

    def withdraw(self, wanted: PassWanted) -> bool:
        """Whether it has not begun."""
        if not self.begun:
            self.withdrawn.append(wanted)
            self.ended.cancel()
        return not self.begun


class OfWithoutLoop(Requests):
    """Requests whose passes are those of such a node."""

    def respond(self, options: ReclaimOptions, wanted: Callable[[PassWanted], None]) -> Answer:
        """Waits for the end."""
        wanted(WANTED)
        assert isinstance(self.node, WithoutLoop)
        return self.node.ended.result()


def test_the_conversation_ends_with_the_answer() -> None:
    """Accepted at once, with what the daemon does; then exit code, sentence and data. A pass that
    has begun is waited for beyond the limit, which is for the turn; its heartbeats go on."""
    for raised in (None, OptionRefused("it ended in a defect")):
        node = WithoutLoop(begun=True)
        lines = OfWithoutLoop(node, lambda: "relieving", 0.1).converse(REQUEST, {})
        for _ in range(2):
            assert next(lines) == {"accepted": True, "busy": "relieving"}
        if raised is None:
            node.ended.set_result(Answer(1, "held off", {"a": 1}, ("x",)))
            given = {"exit_code": 1, "sentence": "held off"}
            assert [*lines][-1] == {**given, "document": {"a": 1}, "lines": ("x",)}
        else:
            node.ended.set_exception(raised)
            with pytest.raises(OptionRefused, match=r"^it ended in a defect$"):
                list(lines)


def test_a_request_is_withdrawn_when_its_turn_does_not_come_or_its_client_goes() -> None:
    """The refusal says what the daemon is doing, and its pass does not begin."""
    node, other = WithoutLoop(), WithoutLoop()
    lines = OfWithoutLoop(node, lambda: "asking the runtime", 0.5).converse(REQUEST, {})
    words = r"^its turn did not come within 0\.5 s: it is asking the runtime$"
    with pytest.raises(OptionRefused, match=words):
        list(lines)
    lines = OfWithoutLoop(other, lambda: None).converse(REQUEST, {})
    next(lines)
    lines.close()
    assert node.withdrawn[:1] == other.withdrawn == [WANTED]


@rows("""
    asked                                                                        | loaded                                          | refused
    {}                                                                           | {}                                              | a request contains the options and the configuration of the client
    {options: []}                                                                | {}                                              | a request contains the options and the configuration of the client
    {options: {}, told: 5}                                                       | {}                                              | a request contains the options and the configuration of the client
    {options: {}}                                                                | {}                                              | a request contains the options and the configuration of the client
    {options: {}, told: {files: [[/a, 1, 2]], flags: [], environment: []}}       | {}                                              | it runs with another configuration, or with an older version of the same files
    {options: {}, told: {files: [[/a, 1, 2]], flags: [[f, /x]], environment: []}} | {files: [[/a, 1, 2]], flags: [], environment: []} | it runs with another configuration, or with an older version of the same files
    {options: {}, told: {files: [[/a, 1, 2]], flags: [], environment: []}}       | {files: [[/a, 1, 2]], flags: [], environment: []} |
    stopping                                                                     | {}                                              | it is stopping
    many                                                                         | {}                                              | 4 requests are waiting already
    without threads                                                              | {}                                              | no thread is free for its pass
""")
def test_who_is_refused_begins_nothing(asked: Any, loaded: Any, refused: str | None) -> None:
    """Without its parts, with another configuration (a daemon without any serves only clients
    without one), to a daemon that stops, as one too many, or without a thread."""
    node = WithoutLoop(MOST_WAITING if asked == "many" else 0)
    if asked == "stopping":
        node.stopping.set()
    threads = Workers("requests", 0 if asked == "without threads" else 4)
    given = REQUEST if isinstance(asked, str) else asked
    lines = OfWithoutLoop(node, lambda: None, threads=threads).converse(given, loaded)
    if refused is None:
        assert next(lines) == {"accepted": True, "busy": None}
        lines.close()
    else:
        with pytest.raises(OptionRefused) as refusal:
            next(lines)
        assert (str(refusal.value), node.withdrawn) == (refused, [])


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
        file = PauseFile(
            str(self.state), self.clock, moments(self.clock, "boot-1", machine_id="machine")
        )
        file.restore(pause, self.told.append, again_seconds=0.01)
        return pause, file

    def put(self, text: bytes) -> None:
        """A file of somebody's in its place, whole at once."""
        self.path.parent.mkdir(exist_ok=True)
        whole = self.path.with_name("whole")
        whole.write_bytes(text)
        whole.chmod(0o600)
        whole.rename(self.path)


@pytest.fixture
def node(tmp_path: Path) -> Host:
    """A node whose state directory does not exist yet."""
    return Host(tmp_path / "state" / "images.json")


def test_a_daemon_that_ends_takes_a_pause_that_is_over_along(node: Host) -> None:
    """A time of day that is set back could bring it to life. Nobody else may read or write its
    file."""
    pause, file = node.started()
    file.finish(pause.pause_left_seconds)
    assert not node.path.parent.exists(), "without a pause: nothing"
    pause.pause(600.0)
    assert file.keep(pause.pause_left_seconds) == ""
    lost = PauseFile("", node.clock).keep(pause.pause_left_seconds)
    assert lost == "a restart of the daemon ends the pause, as stateFile is empty"
    file.finish(pause.pause_left_seconds)
    assert node.path.stat().st_mode & 0o777 == 0o600
    node.clock.step(600.0)
    file.finish(pause.pause_left_seconds)
    assert not node.path.exists()


def test_a_pause_that_is_ended_does_not_come_back(node: Host) -> None:
    """The file is gone; also if it is ended in the middle of being saved."""
    for interrupted in (False, True):
        clock = InterruptedClock()
        pause = Paused(node.clock)
        file = PauseFile(str(node.state), clock, moments(clock, "boot-1", machine_id="machine"))

        def resume(pause: Paused = pause, file: PauseFile = file) -> str:
            pause.pause(0.0)
            return file.keep(pause.pause_left_seconds)

        pause.pause(HOUR)
        resumed = clock.interruption = Interruption(resume if interrupted else lambda: None)
        assert file.keep(pause.pause_left_seconds) == ""
        resumed.join()
        assert interrupted or resume() == ""
        assert [*node.path.parent.iterdir()] == []
        assert node.started()[0].present.paused() == ""


@pytest.mark.parametrize("text", [b"", b"{", KEPT[:-9], b"x" * 1_000_000])
def test_what_lies_in_its_place_may_be_a_pause_until_the_next_one(node: Host, text: bytes) -> None:
    """Nothing is removed, for a day at most; it is left alone until somebody begins a pause."""
    node.put(text)
    (pause, file), (forgotten, _) = node.started(), node.started()
    assert "as whether a pause is in force is not known" in pause.present.paused()
    assert (pause.pause_left_seconds(), node.path.read_bytes()) == (LONGEST, text)
    pause.pause(600.0)
    assert file.keep(pause.pause_left_seconds) == ""
    assert node.started()[0].pause_left_seconds() == pause.pause_left_seconds() == 600.0
    node.path.write_bytes(text)
    node.clock.step(LONGEST)
    assert forgotten.present.paused() == ""


@rows("""
    commands                                                                | what
    mv images.json.pause kept; ln -s kept images.json.pause                 | a symbolic link to a pause
    rm images.json.pause; mkfifo images.json.pause                          | a FIFO that nobody writes
    chmod 666 images.json.pause                                             | a file that every user may write
    rm images.json.pause; mkdir images.json.pause                           | a directory
    cd ..; mv state elsewhere; ln -s elsewhere state                        | the state directory is a link
""")
def test_what_others_may_have_put_there_may_be_a_pause(
    node: Host, tmp_path: Path, commands: str
) -> None:
    """`resume` ends it; so does its removal, without a word to the daemon."""
    node.put(KEPT)
    subprocess.run(["sh", "-ec", commands], cwd=node.path.parent, check=True)
    pause, other = node.started()[0], node.started()[0]
    assert pause.present.pause_is_unknown()
    assert other.pause_left_seconds() == LONGEST
    pause.pause(0.0)
    assert pause.present.paused() == ""
    node.path.parent.rename(tmp_path / "away")
    assert came_true(lambda: not other.present.pause_is_unknown())
    said = f"{node.path} can be read again: there is no pause"
    assert (other.present.paused(), node.told) == ("", [said])


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
    assert node.told == [f"{node.path} can be read again: {begun.present.paused()}"]
