"""What is read of a runtime: its answers, CRI-O's storage, and when it is asked again; and calls
over one HTTP/2 connection, without a socket: however the bytes are cut, and however a call ends."""

import os
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hpack
import pytest
from hyperframe.frame import GoAwayFrame, PingFrame, PriorityFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.channel import LARGEST_MESSAGE_BYTES, Http2Client
from reclaim.cri.containers_storage import store_of, stored_at, stored_layers
from reclaim.cri.convert import GRACE_ANNOTATIONS, entries, stop_grace_seconds
from reclaim.cri.inventory import GivenUp, Inventory, retried
from reclaim.cri.status import CallError, Code
from reclaim.types import (
    NEVER,
    AnsweredLate,
    ConnectionLost,
    ContainerStatus,
    RemovalFailed,
    RuntimeUnavailable,
    RuntimeVersion,
)
from reclaim.workers import Workers
from tests.hostile_http2 import GREETING, STATUS, TRAILERS, data, headers, raw
from tests.http2_server import HEADER, INITIAL_WINDOW, PREFACE, Server, prefixed
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, container
from tests.rows import rows

# ---- messages

names = st.text(max_size=20)


@given(st.lists(st.tuples(names, names, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=9))
def test_the_entries_are_those_of_the_whole_message(listed: list[tuple[str, str, int]]) -> None:
    """As protobuf's own parser reads them; fields that are not known (a number, a text, fixed ones)
    are skipped, before and after."""
    made = [pb.Container(id=i, image_ref=ref, created_at=at) for i, ref, at in listed]
    answer = pb.ListContainersResponse(containers=made).SerializeToString()
    extra = b"\x10\x96\x01" + b"\x1a\x03abc" + b"\x21" + bytes(8) + b"\x2d" + bytes(4)
    found = [pb.Container.FromString(piece) for piece in entries(extra + answer + extra + answer)]
    assert found == made * 2


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(given_bytes: bytes) -> None:
    """No other error is raised, and all entries together are no longer than the bytes. A part of an
    entry is never returned as one: no length, too short, an endless number, a group, half a
    field."""
    with suppress(CallError):
        assert sum(map(len, entries(given_bytes))) <= len(given_bytes)
    whole = pb.ListImagesResponse(images=[pb.Image(id="a")]).SerializeToString()
    for broken in (b"\x0a", b"\x0a\x05abc", b"\x0a" + b"\xff" * 11, b"\x0b", b"\x21\x00", b"\x80"):
        with pytest.raises(CallError):
            list(entries(whole + broken))


@rows("""
    deletion   | pod | seconds
    -          | -   | 2
    40         | 30  | 40
    -          | 30  | 30
    0          | 30  | 2
    3601       | -   | 3600
    999999999  | -   | 3600
    9999999999 | -   | 2
    -5         | x   | 2
""")
def test_a_container_has_the_kubelets_grace_to_stop_and_an_hour_at_most(
    deletion: str, pod: str, seconds: int
) -> None:
    """The deletion's, else the pod's, else 2 s, and never less; what is no number says nothing."""
    annotations = zip(GRACE_ANNOTATIONS, (deletion, pod), strict=True)
    assert stop_grace_seconds({name: text for name, text in annotations if text != "-"}) == seconds


# ---- CRI-O's storage: when images were pulled, by the kernel's stamps, and what they hold

IMAGE, ARTIFACT = "a" * 64, "b" * 64


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """The directory of images, with one, beside an artifact."""
    blobs = tmp_path / "artifacts" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    (blobs / ARTIFACT).write_text("{}")
    (tmp_path / "overlay-images" / IMAGE).mkdir(parents=True)
    pull(tmp_path / "overlay-images")
    return tmp_path / "overlay-images"


def pull(images: Path) -> None:
    """As CRI-O writes an image: its files get their names by renaming."""
    new = images / IMAGE / ".tmp-manifest"
    new.write_text("{}")
    new.rename(images / IMAGE / "manifest")


def test_an_image_is_as_old_as_its_directory_and_an_artifact_as_its_manifest(images: Path) -> None:
    """Times that anybody may set count for nothing; a pull of an image that is there makes it
    young. What is missing dates nothing, nor does any other directory."""
    artifact = images.parent / "artifacts" / "blobs" / "sha256" / ARTIFACT
    for path in (images / IMAGE, images / IMAGE / "manifest", artifact):
        os.utime(path, (0.0, 0.0))
    found = stored_at(str(images))
    assert found == {IMAGE: (images / IMAGE).stat().st_ctime, ARTIFACT: artifact.stat().st_ctime}
    while stored_at(str(images))[IMAGE] == found[IMAGE]:  # the clock that stamps files ticks slowly
        pull(images)
    assert stored_at(str(images))[IMAGE] > found[IMAGE]
    artifact.unlink()
    artifact.parent.rmdir()
    assert stored_at(str(images)).keys() == {IMAGE}
    assert [stored_at(path) for path in ("", "/nowhere/overlay-images", str(images.parent))] == [
        {}
    ] * 3


@rows("""
    reported                                                   | store
    /var/lib/containers/storage/overlay-images                 | /var/lib/containers/storage
    /var/lib/containers/storage/overlay-containers/            | /var/lib/containers/storage
    /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs | /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs
    /var/lib/docker/                                           | /var/lib/docker
""")
def test_the_content_is_beside_what_cri_o_reports(reported: str, store: str) -> None:
    """Other runtimes report the directory that holds it."""
    assert store_of(reported) == store


LISTED = """[
    {"id": "one", "layer": "top", "mapped-layers": ["mapped"]}, {"id": "c", "layer": "other"},
    {"id": "d"}
]"""
LAYERS = """[
    {"id": "base", "diff-size": 300}, {"id": "top", "parent": "base", "diff-size": 30},
    {"id": "mapped", "parent": "base", "diff-size": 31}, {"id": "other", "parent": "base"},
    {"id": "container", "parent": "top", "diff-size": 5}
]"""


@rows("""
    listed                         | layers                                                     | held
    LISTED                         | LAYERS                                                     | one: base=300 mapped=31 top=30; c: base=300 other=0; d:
    [{"id": "c", "layer": "top"}]  | [{"id": "top", "parent": "b", "diff-size": -1}, {"id": "b", "parent": "top"}] | c: b=0 top=0
    {}                             | "no list"                                                  |
    [{"layer": "top"}]             | LAYERS                                                     |
    LISTED                         | [{"parent": "base"}]                                       |
    LISTED                         | [["base"]]                                                 |
    LISTED                         | ["base"]                                                   |
    LISTED                         | [{"id": "base", "diff-size": null}]                        |
    LISTED                         | [{"id": "base", "diff-size": "x"}]                         |
    LISTED                         | null                                                       |
    1                              | LAYERS                                                     |
    {                              | LAYERS                                                     |
""")
def test_an_image_holds_its_layers_down_to_the_base(
    images: Path, listed: str, layers: str, held: str
) -> None:
    """Also the copies of its top layer for user namespaces; one whose size is not said counts
    nothing, and a circle has an end. Files that are none of a storage, or not there, tell
    nothing."""
    assert stored_layers(str(images)) is None
    (images.parent / "overlay-layers").mkdir()
    (images / "images.json").write_text(listed.replace("LISTED", LISTED))
    (images.parent / "overlay-layers" / "layers.json").write_text(layers.replace("LAYERS", LAYERS))
    found = stored_layers(str(images))
    told = (
        f"{name}: {' '.join(f'{layer}={size}' for layer, size in sorted(own.items()))}".strip()
        for name, own in (found.of_images if found else {}).items()
    )
    assert "; ".join(told) == held


# ---- what is asked once, by several who read at once

VOLUMES = (("volume:1",),)


class Mounting(MemoryRuntime):
    """Its containers mount images."""

    def __init__(self, workers: Workers | None = None, containers: int = 3) -> None:
        super().__init__(SteppedClock(at=50.0))
        self.runtime_version = "2.1.0"
        self.volumes: tuple[tuple[str, ...], ...] = VOLUMES
        self.hold(*(container(f"c{number}") for number in range(containers)))
        self.inventory = Inventory(self, MemoryPods(), clock=self.clock, workers=workers)

    def version(self) -> RuntimeVersion:
        return RuntimeVersion("containerd", self.runtime_version)

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """As it is when the answer leaves."""
        status = super().container_status(container_id)
        return None if status is None else status._replace(image_volumes=self.volumes)

    def asked(self) -> int:
        """How often a status was asked for."""
        return self.calls.count("container_status")

    def read(self, wanted: Callable[[], bool] = lambda: True) -> int:
        """How many containers say what they mount."""
        listing = self.inventory.snapshot(self.clock.monotonic(), wanted).listing
        assert set(listing.image_volumes.values()) <= {VOLUMES}
        return len(listing.image_volumes)


@pytest.mark.parametrize(("containers", "threads"), [(8, 4), (2, 2)])
def test_statuses_are_asked_for_side_by_side(containers: int, threads: int) -> None:
    """Four at once, of which the caller is one and waits for the others; no fewer because a thread
    is missing: then the caller asks alone."""
    assert Mounting(Workers("statuses", 0)).read() == 3
    runtime, caller = Mounting(Workers("statuses", 9), containers), threading.current_thread()
    together, asking = threading.Barrier(threads), set[threading.Thread]()

    def asks() -> None:
        asking.add(threading.current_thread())
        together.wait(60.0)
        if threading.current_thread() is not caller:
            time.sleep(0.05)

    runtime.on_call["container_status"] = asks
    assert (runtime.read(), len(asking)) == (containers, threads)


def test_a_status_that_is_not_answered_fails_the_reading() -> None:
    """Whoever has asked for it."""
    runtime = Mounting(Workers("statuses", 3), 8)

    def fails() -> None:
        if runtime.asked() == 5:
            raise AnsweredLate("it did not answer in time")

    runtime.on_call["container_status"] = fails
    with pytest.raises(AnsweredLate):
        runtime.read()


def test_what_was_answered_is_not_asked_again() -> None:
    """Whoever begins, ends, or is given up in between: the next one goes on from there."""
    runtime = Mounting()
    runtime.on_call["container_status"] = lambda: [runtime.on_call.popitem(), runtime.read()]
    assert runtime.read() == 3
    asked = runtime.asked()
    assert (runtime.read(), runtime.asked()) == (3, asked)
    runtime = Mounting()
    with suppress(GivenUp):
        runtime.read(lambda: runtime.asked() < 2)
    assert (runtime.read(), runtime.asked()) == (3, 3)


@rows("""
    version | first | then | asked | what
    2.1.0   | 0     | 0    | 3     | what mounts nothing goes on mounting nothing
    2.1.1   | 0     | 3    | 6     | unless that was said by another version
    2.1.1   | 3     | 3    | 3     | what mounts something goes on mounting it
""")
def test_another_version_of_the_runtime_is_asked_again(
    version: str, first: int, then: int, asked: int
) -> None:
    """Which may know of image volumes that the one before did not tell. How many containers say
    that they have some, before and after."""
    runtime = Mounting()
    runtime.volumes = VOLUMES if first else ()
    assert runtime.read() == first
    runtime.runtime_version, runtime.connections_made = version, 1
    runtime.volumes = VOLUMES
    assert (runtime.read(), runtime.asked()) == (then, asked)


# ---- only a read that lost its connection is repeated, and only for a moment

ERRORS = {
    "lost": ConnectionLost("connection refused"),
    "late": AnsweredLate("no answer within 10 s"),
    "refused": RemovalFailed("refused"),
    "defect": OSError("defect"),
}


@rows("""
    answers                       | becomes | left | waits        | what
    here                          | here    |      |              | no connection was lost
    lost here                     | here    |      |              | at once
    lost lost here                | here    |      | 0.05         | then after 50 ms
    lost lost lost lost here      | here    |      | 0.05 0.1 0.2 | 100 and 200 ms
    late here                     | late    | here |              | it would take as long again
    refused here                  | refused | here |              | an answer
    defect here                   | defect  | here |              | of our own
    lost late here                | late    | here |              | each attempt is judged by itself
    lost lost refused here        | refused | here | 0.05         | the same
""")
def test_a_lost_connection_is_tried_again_at_once_and_then_with_growing_waits(
    answers: str, becomes: str, left: str, waits: str
) -> None:
    """A runtime that restarts is back within a moment; after other errors a read is not
    repeated."""
    coming, slept, found = answers.split(), list[str](), ""

    def read() -> str:
        answer = coming.pop(0)
        if answer in ERRORS:
            raise ERRORS[answer]
        return answer

    try:
        found = retried(read, sleep=lambda seconds: slept.append(f"{seconds:g}"))
    except (RuntimeUnavailable, RemovalFailed, OSError) as error:
        found = next(word for word, one in ERRORS.items() if one is error)
    assert (found, " ".join(coming), " ".join(slept)) == (becomes, left, waits)


def test_after_the_time_for_retries_the_last_error_is_raised() -> None:
    """A runtime that is down for the whole half second is unavailable, after a few attempts; no
    wait is longer than half of it, so that the last attempt comes before it is over."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    def read() -> None:
        raise ERRORS["lost"]

    with pytest.raises(RuntimeUnavailable, match="connection refused"):
        retried(read, sleep=sleep)
    assert 0 < max(slept) <= 0.25
    assert sum(slept) <= 0.5


METHOD = "/runtime.v1.RuntimeService/Version"
PING = PingFrame(0, b"12345678")
ANSWER = STATUS + data(prefixed(b"x")) + TRAILERS


def converse(client: Http2Client, server: Server, sizes: list[int]) -> None:
    """Passes bytes to and fro, cut into pieces of these sizes, until both are silent."""
    turn = 0
    while True:
        up, down = bytes(client.out), server.h2.data_to_send()
        client.out.clear()
        if not up and not down:
            return
        if up:
            server.take(up)
        place = 0
        while place < len(down):
            size = sizes[turn % len(sizes)]
            client.receive(down[place : place + size])
            place, turn = place + size, turn + 1


def ending(client: Http2Client) -> tuple[Code, str] | None:
    """How the call ended; None while it goes on."""
    return None if client.ended is None else (client.ended.code, client.ended.details)


def greeted() -> Http2Client:
    """A client that has seen the server's settings, with one call under way on stream 1."""
    client = Http2Client()
    assert client.out.startswith(PREFACE)
    client.receive(GREETING)
    assert client.greeted
    client.ask(METHOD, b"question", NEVER)
    client.out.clear()
    return client


def asks(client: Http2Client, *said: bytes) -> tuple[Code, str] | None:
    """One more call, and what the server says to it on stream 3."""
    client.ask(METHOD, b"", NEVER)
    client.receive(b"".join(said))
    return ending(client)


messages = st.binary(max_size=50) | st.integers(0, 70_000)  # a number: so many zeros


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(messages, st.lists(messages, max_size=3)), min_size=1, max_size=4),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=4),
    st.sampled_from([0, 5000, 65535, 2**31 - 1]),
    st.none() | st.integers(0, 255),
)
def test_calls_are_asked_and_answered_however_the_bytes_are_cut(
    calls: list[tuple[bytes | int, list[bytes | int]]],
    sizes: list[int],
    window: int,
    padding: int | None,
) -> None:
    """Requests longer than the server's windows, answers of several messages, padded, on one
    connection. Not a byte is sent before the window is opened."""
    client, server = Http2Client(), Server(window, padding=padding)
    converse(client, server, sizes)  # the greeting, which is waited for before anything is asked
    for request, answers in (
        (bytes(request), [*map(bytes, answers)]) for request, answers in calls
    ):
        server.answers.append(answers)
        client.ask(METHOD, request, 10.0)
        converse(client, server, sizes)
        if window == 0 and len(server.asked) == 0:
            assert ending(client) is None
            server.h2.update_settings({INITIAL_WINDOW: 70_000})
            converse(client, server, sizes)
        assert ending(client) == (Code.OK, "")
        assert client.messages == answers
        assert not client.leaving
    assert [body for _, body in server.asked] == [prefixed(bytes(request)) for request, _ in calls]
    last, _ = server.asked[-1]
    of_http = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": "localhost"}
    of_grpc = {"te": "trailers", "content-type": "application/grpc", "grpc-timeout": "10000m"}
    assert {**of_http, **of_grpc}.items() <= last.items()


@rows("""
    seconds | told
    0.0501  | 51m
    inf     |
""")
def test_the_server_is_told_a_deadline_that_is_not_before_ours(
    seconds: float, told: str | None
) -> None:
    """In whole milliseconds, rounded up: a server that ends the call a moment earlier would cancel
    it. A removal has none: the runtime must not cancel it."""
    client, server = Http2Client(), Server(answers=[[b""]])
    client.ask(METHOD, b"", seconds)
    converse(client, server, [100])
    assert server.asked[0][0].get("grpc-timeout") == told


@rows("""
    status | message             | code        | details
    5      | no such image       | NOT_FOUND   | no such image
    2      | 100%25 of %C3%A4    | UNKNOWN     | 100% of ä
    2      | %zz %ff             | UNKNOWN     | %zz �
    14     |                     | UNAVAILABLE |
    17     |                     | UNKNOWN     |
    -1     |                     | UNKNOWN     |
           |                     | UNKNOWN     |
    none   |                     | UNKNOWN     | an answer without grpc-status, HTTP status 200
""")
def test_how_a_call_ended_is_in_its_trailers(
    status: str, message: str, code: Code, details: str
) -> None:
    """With a header of their own before them, also after an interim one, or alone in one frame."""
    client = greeted()
    told = [("x", "y") if status == "none" else ("grpc-status", status), ("grpc-message", message)]
    interim = headers([(":status", "103"), ("grpc-status", "5")])
    client.receive(interim + STATUS + headers(told, "END_STREAM"))
    assert (ending(client), client.leaving) == ((code, details), False)
    assert asks(client, headers([*HEADER, *told], "END_STREAM", stream=3)) == (code, details)


@rows("""
    status | code
    404    | UNIMPLEMENTED
    503    | UNKNOWN
    500    | UNKNOWN
""")
def test_an_answer_that_is_not_grpc_is_told_by_its_status(status: str, code: Code) -> None:
    """What else ends a call badly, `hostile_http2` sends."""
    client = greeted()
    client.receive(headers([(":status", status)], "END_STREAM"))
    assert client.ended is not None
    assert (client.ended.code, status in str(client.ended)) == (code, True)


BLOCK = hpack.Encoder().encode(HEADER)


@pytest.mark.parametrize(
    ("said", "leaving"),
    [
        # a graceful stop: the answer still comes, and the next call needs another connection
        ([GoAwayFrame(0, 2**31 - 1).serialize(), ANSWER], True),
        # whatever follows it: a removal that was carried out did not fail; the connection goes
        ([ANSWER + data(b"nonsense", stream=5)], True),
        # headers that are padded, weighted and continued
        (
            [
                raw(1, 0x8 | 0x20, 1, bytes((4,)) + b"\0\0\0\0\7" + BLOCK[:2] + bytes(4)),
                raw(9, 0, 1, BLOCK[2:5]),
                raw(9, 4, 1, BLOCK[5:]) + PriorityFrame(1, depends_on=0).serialize(),
                data(prefixed(b"x")) + TRAILERS,
            ],
            False,
        ),
    ],
)
def test_an_answer_that_has_come_stands(said: list[bytes], leaving: bool) -> None:
    """However it is said, and whatever else."""
    client = greeted()
    for each in said:
        assert ending(client) is None
        client.receive(each)
    assert (ending(client), client.leaving) == ((Code.OK, ""), leaving)
    assert client.messages == [b"x"]


def test_a_ping_is_answered_and_an_answer_to_none_is_not() -> None:
    """Or the server takes us for dead."""
    client = greeted()
    client.receive(PING.serialize() + PingFrame(0, b"87654321", flags=["ACK"]).serialize())
    assert bytes(client.out) == PingFrame(0, PING.opaque_data, flags=["ACK"]).serialize()


def test_what_only_fills_a_frame_opens_the_windows_again_too() -> None:
    """Those of the connection and of the stream, once half of 16 MiB has come: else padding would
    close them."""
    client = greeted()
    client.receive(STATUS + data(struct.pack(">BL", 0, LARGEST_MESSAGE_BYTES)))
    for _ in range(512):
        client.receive(raw(0, 8, 1, b"\xff" + bytes(16383)))
    assert bytes(client.out[3::13]) == b"\x08\x08"  # two WINDOW_UPDATE, of 13 bytes each


def test_a_request_that_the_server_does_not_want_whole_costs_the_connection() -> None:
    """Its answer came before its end: our half of the stream would stay open."""
    client = Http2Client()
    client.receive(raw(4, 0, 0, struct.pack(">HL", 4, 10)))
    client.ask(METHOD, bytes(1000), NEVER)
    client.receive(headers([*HEADER, ("grpc-status", "8")], "END_STREAM"))
    assert client.ended is not None
    assert client.leaving
