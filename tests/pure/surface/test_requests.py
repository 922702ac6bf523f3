"""The request to the daemon: its options, the socket it goes to, and how it waits for its pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.client import CONTROL_SOCKET, files_seen, read_arguments, seen_in
from eviction.configuration.effective import load
from eviction.decision.synchronize import EvictionConfig
from eviction.engine.effects import PassWanted, Request
from eviction.engine.node import Node
from eviction.records.pass_json import room_of
from eviction.records.passes import Trigger
from eviction.surface import answer
from eviction.surface.answer import Answer, OptionRefused
from eviction.surface.check import CheckOptions
from eviction.surface.requests import (
    MOST_WAITING,
    ReclaimOptions,
    Requests,
    read_options,
    request_of,
)
from eviction.types import Extent
from reclaim.workers import Workers
from signals.types import KUBELET_SIGNALS, FilesystemRole, Signal, SignalObservations
from tests.inline import NOTHING_DECIDED
from tests.pure.values import GIB, observation, observations_of
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


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("kind: x\n", CONTROL_SOCKET),
        ("controlSocket: /run/a.sock\n", "/run/a.sock"),
        ("# controlSocket: /run/no.sock\ncontrolSocket: '/run/b.sock' # here\n", "/run/b.sock"),
        ('{"apiVersion": "x", "controlSocket": "/run/c.sock"}', "/run/c.sock"),
        ("stateFile: /x # not controlSocket: /run/no.sock\n", CONTROL_SOCKET),
        ('controlSocket: ""\n', ""),
    ],
)
def test_the_control_socket_is_found_in_the_files(tmp_path: Path, text: str, path: str) -> None:
    """As YAML or as JSON, without either being read; a later drop-in wins."""
    file, drop_ins = tmp_path / "reclaimd.yaml", tmp_path / "conf.d"
    file.write_text(text)
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


@rows("""
    available | kept_free | dry_run | missing | words
    14        | 9         |         | 0       | 14.0GiB is available, 5.0GiB, the room is there
    8         | 9         |         | 4       | 8.0GiB is available, 0B, 4.0GiB is missing
    12        | 0         | yes     | 0       | 12.0GiB would be available, 12.0GiB, the room would be there
    11        | 0         | yes     | 1       | 11.0GiB would be available, 11.0GiB, 1.0GiB would be missing
""")
def test_what_is_there_and_what_is_missing_is_said(
    available: int, kept_free: int, dry_run: bool, missing: int, words: str
) -> None:
    """And how much of it is above the marks, as using the rest makes reclaimd remove more."""
    amounts = (12 * GIB, available * GIB)
    room = room_of(FilesystemRole.IMAGEFS, *amounts, kept_free=kept_free * GIB, dry_run=dry_run)
    first, above, end = words.split(", ")
    sentence = f"{first} on imagefs, {above} of it above the marks; 12.0GiB was asked for: {end}"
    assert (room.missing, room.sentence) == (missing * GIB, sentence)


# ---- waiting for a pass

WANTED = PassWanted(
    SignalObservations({}, None, 0.0), NOTHING_DECIDED, Trigger.REQUEST, Request(), None, 0.0
)


OWN = {"containerRuntimeEndpoint": "none", "filesystems": [{"name": "x", "path": "/var/x"}]}
REQUEST: dict[str, Any] = {"options": {}, "told": {}}


class WithoutLoop(Node):
    """A node whose loop does not run: `withdrawn` are the passes that it was not to begin. A pass
    ends when it is withdrawn, or with `end`."""

    def __init__(self, waiting: int = 0, *, begun: bool = False):
        super().__init__(load(None, {}, OWN))
        self.owner.world = self.owner.world._replace(wanted=(WANTED,) * waiting)
        self.begun, self.over = begun, threading.Event()
        self.withdrawn: list[PassWanted] = []
        self.ended: Answer | Exception = OptionRefused("its client has gone")

    def end(self, how: Answer | Exception) -> None:
        """The pass ends so."""
        self.ended = how
        self.over.set()

    def withdraw(self, wanted: PassWanted) -> bool:
        """Whether it has not begun."""
        if not self.begun:
            self.withdrawn.append(wanted)
            self.over.set()
        return not self.begun


class OfWithoutLoop(Requests):
    """Requests whose passes are those of such a node."""

    def respond(self, options: ReclaimOptions, wanted: Callable[[PassWanted], None]) -> Answer:
        """Waits for the end."""
        wanted(WANTED)
        assert isinstance(self.node, WithoutLoop)
        self.node.over.wait()
        if isinstance(self.node.ended, Exception):
            raise self.node.ended
        return self.node.ended


def test_the_conversation_ends_with_the_answer() -> None:
    """Accepted at once, with what the daemon does; then exit code, sentence and data. A pass that
    has begun is waited for beyond the limit, which is for the turn; its heartbeats go on."""
    for how in (Answer(1, "held off", {"a": 1}, ("x",)), OptionRefused("it ended in a defect")):
        node = WithoutLoop(begun=True)
        lines = OfWithoutLoop(node, lambda: "relieving", 0.1).converse(REQUEST, {})
        for _ in range(2):
            assert next(lines) == {"accepted": True, "busy": "relieving"}
        node.end(how)
        if isinstance(how, Answer):
            given = {"exit_code": 1, "sentence": "held off"}
            assert [*lines][-1] == {**given, "document": {"a": 1}, "lines": ("x",)}
        else:
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
