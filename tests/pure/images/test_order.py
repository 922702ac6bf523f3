"""Which image goes first by `imageOrder: cost`, and what each removal frees, beside a count by
hand; what containerd's stores tell of that; and what is remembered of images: first seen, last
used, come back, and who can testify to an age."""

import os
import re
import socket
import time
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from random import Random

import pytest
import yaml
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri import stores_pb2 as pb
from reclaim.cri.inventory import Inventory
from reclaim.cri.status import CallError, Code
from reclaim.functions.containerd_garbage import (
    LIST_CONTENT,
    LIST_IMAGES,
    LIST_SNAPSHOTS,
    SNAPSHOT_USAGE,
    HeldLayers,
    brought_at,
    clocks_at_start,
)
from reclaim.images.order import Candidate, by_cost, freed_along
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.images.records import MOST_GONE, ImageRecords, Loaded, Returned
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import Image, ImageOrder, ImageRecord, Layers, Listing, Verdict
from tests.expected import expect
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import GIB, MIB, Interruption, SteppedClock, container, image, image_id
from tests.rows import rows

DAY = 86400.0
SIZES = {
    f"layer{number}": size * 1000 for number, size in enumerate((1, 3, 9, 27, 81, 243, 729, 2187))
}
LAYERS = st.sets(st.sampled_from(sorted(SIZES)))


@st.composite
def candidates(draw: st.DrawFn) -> tuple[Candidate, ...]:
    """Images over a few layers; some of whose layers nothing is known."""

    def one(number: int) -> Candidate:
        unused, own = draw(st.floats(0.0, 1e7)), draw(st.none() | LAYERS)
        return Candidate(
            f"image{number}",
            draw(st.integers(0, 10**9)),
            unused,
            draw(st.integers(0, 50)),
            draw(st.integers(0, 5)),
            None if own is None else {layer: SIZES[layer] for layer in own},
            draw(st.integers(0, 3)),
            unused + draw(st.floats(0.0, 1e7)),
        )

    return tuple(one(number) for number in range(draw(st.integers(0, 8))))


def bytes_freed(images: Sequence[Candidate], gone: Collection[str], held: Collection[str]) -> int:
    """What is free once these are gone: the layers that neither another
    image nor anything else holds.
    """
    going, left = [each for each in images if each.id in gone], {*held}
    left |= {layer for each in images if each.id not in gone for layer in each.layers or ()}
    layers = {layer for each in going for layer in each.layers or ()} - left
    whole = sum(each.size_bytes for each in going if each.layers is None)
    return whole + sum(SIZES[layer] for layer in layers)


def ids(ranked: Sequence[Candidate]) -> list[str]:
    return [each.id for each in ranked]


@given(candidates(), LAYERS, st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_what_is_promised_is_what_no_image_that_remains_holds(
    images: tuple[Candidate, ...], held: set[str], need_bytes: int, random: Random
) -> None:
    """After each removal, to the byte; in any order, that of the kubelet too. Each image has one
    place, whatever order they are given in; and what goes for the need can do without none of it:
    of the fewest that are enough, all are needed."""
    ranked = by_cost(images, held, need_bytes)
    order = ids(ranked)
    assert sorted(order) == sorted(image.id for image in images)
    assert by_cost(random.sample(images, len(images)), held, need_bytes) == ranked
    for each in (ranked, images):
        freed = freed_along(each, held)
        for count in range(len(each) + 1):
            assert sum(freed[:count]) == bytes_freed(images, ids(each)[:count], held)
    counts = range(len(order) + 1)
    enough = [n for n in counts if bytes_freed(images, order[:n], held) >= need_bytes]
    for number in range(enough[0] if enough else 0):
        others = order[:number] + order[number + 1 : enough[0]]
        assert bytes_freed(images, others, held) < need_bytes


def of(text: str) -> Candidate:
    """An image by its name, how often it was used, and how many days ago; of a GiB, whose layers
    are not known, if nothing else is said: `b 3 1 mib=1`."""
    name, uses, days, *more = text.split()
    said = dict(each.split("=") for each in more)
    size, returned = int(said.get("mib", 1024)) * MIB, int(said.get("returned", 0))
    one = Candidate(name, size, float(days) * DAY, int(uses), returned)
    return one._replace(layers={"held": GIB}) if "shares" in said else one


@rows("""
    first              | second             | need_gib | what
    b 1 1              | a 60 3             | 0        | once, but lately, before one that is used often
    b 5 20             | a 5 1              | 0        | as often, but longer ago
    b 1 1              | a 1 1 returned=2   | 0        | never missed before one that came back
    b 3 1              | a 3 1 mib=1        | 0        | a GiB before a MiB, as a pull costs more than bytes
    b 1 1              | a 1 1 shares=all   | 0        | what frees something before what shares all with one that stays
    small 1 20         | large 1 10 mib=30720 | 0      | small ones before it
    large 1 10 mib=30720 | small 1 20       | 20       | one large image in their place, where that is needed
    large 1 10 mib=30720 | small 1 20       | 30       | and is enough, to the byte
""")
def test_which_of_two_goes_first(first: str, second: str, need_gib: int) -> None:
    """By what is known of both."""
    expected = [of(first), of(second)]
    assert by_cost(expected[::-1], {"held"}, need_gib * GIB) == expected


# ---- in a plan

OFTEN, ONCE, BASE = (
    image(number, f"registry.test/{number}:1", size_bytes=GIB) for number in (1, 2, 3)
)
LISTING = Listing(
    images=(OFTEN, ONCE, BASE),
    containers=(container("c", references=(BASE.id,)),),
    sandbox_image_references=frozenset({"registry.k8s.io/pause:3.9"}),
    resolved={"registry.k8s.io/pause:3.9": None},
)
RECORDS = {
    OFTEN.id: ImageRecord(0.0, 10 * DAY, uses=100),
    ONCE.id: ImageRecord(0.0, 11 * DAY, uses=1),
    BASE.id: ImageRecord(0.0, uses=1),
}
HOLD = Layers(
    {
        OFTEN.id: {"base": GIB, "1": 5 * MIB},
        ONCE.id: {"base": GIB, "2": 7 * MIB, "3": MIB},
        BASE.id: {"base": GIB},
    },
    frozenset({"3"}),
)
NOW = 12 * DAY


def goes(order: ImageOrder, layers: Layers = HOLD) -> tuple[Verdict, ...]:
    """What goes, in order."""
    return plan_image_gc(
        LISTING, RECORDS, ImageGCPolicy(order=order), now=NOW, layers=layers
    ).remove


def test_the_order_and_what_is_promised() -> None:
    """The base stays, as a container uses it, and something else holds a layer of another. LRU
    stays the kubelet's order, and foretells nothing; by cost what was used once goes first, and
    says when it is expected to be needed again. Without layers the runtime's sizes are promised."""
    lru, cost = goes(ImageOrder.LRU), goes(ImageOrder.COST)
    freed = [(OFTEN.id, 5 * MIB), (ONCE.id, 7 * MIB)]
    assert [(each.id, each.frees_bytes) for each in lru] == freed
    assert [(each.id, each.promised_bytes) for each in cost] == freed[::-1]
    assert {each.needed_in_seconds for each in lru} == {None}
    once, often = (each.needed_in_seconds or 0.0 for each in cost)
    assert once > often > 0.0
    for order in ImageOrder:
        told = {(each.frees_bytes, each.promised_bytes) for each in goes(order, Layers())}
        assert told == {(None, GIB)}


def test_a_version_before_the_one_in_use_goes_first() -> None:
    """A rollback may still need it, but less likely than an image that was used at the same time
    and has no newer version; one in two repositories counts as the newest of one of them."""
    names = ("app:2", "tool:1", "app:0 other:1", "app:1")
    images = tuple(
        image(number, *(f"registry.test/{tag}" for tag in tags.split()), size_bytes=GIB)
        for number, tags in enumerate(names, 1)
    )
    new, *unused = (each.id for each in images)
    records = {each: ImageRecord(0.0, 10 * DAY, uses=3) for each in unused}
    records[new] = ImageRecord(0.0, NOW, uses=1)
    listing = LISTING._replace(images=images, containers=(container("c", references=(new,)),))
    policy = ImageGCPolicy(order=ImageOrder.COST)
    gone = [each.id for each in plan_image_gc(listing, records, policy, now=NOW + 1.0).remove]
    assert (gone[0], sorted(gone)) == (unused[-1], sorted(unused))


# ---- who learns the layers, and who uses them


def test_layers_are_learned_once_for_the_same_images_and_a_pass_does_not_ask() -> None:
    """What is not told in time is asked again."""
    asked, answers = list[float](), iter([None, HOLD, None])

    def read(left: Callable[[], float]) -> Layers | None:
        asked.append(left())
        return next(answers)

    clock = SteppedClock(NOW)
    inventory = Inventory(MemoryRuntime(clock), MemoryPods(), clock=clock, read_layers=read)
    for _ in range(3):
        inventory.learn_layers(LISTING.images)
    inventory.learn_layers(LISTING.images[:1], lambda: False)
    assert (asked, inventory.layers) == ([2.0, 2.0, 0.0], HOLD)


# ---- what containerd's stores tell

ONE, TWO = image_id(1), image_id(2)


def test_a_socket_tells_when_its_process_started(tmp_path: Path) -> None:
    """This one, which has run since before it made the socket. One that is not there tells
    nothing, nor one that nobody serves."""
    path = str(tmp_path / "s")
    assert clocks_at_start(path) is None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        assert clocks_at_start(path) is None
        listener.listen()
        os.utime(path, (1000.0, 1000.0))
        found = clocks_at_start(path)
    assert found is not None
    seconds_ago, wall = found
    assert wall == 1000.0
    assert 0 < seconds_ago < time.clock_gettime(time.CLOCK_BOOTTIME)


# ---- what images hold


STORES = yaml.safe_load(Path(__file__).with_name("stores.yaml").read_text())
LISTS = {LIST_IMAGES: pb.Images, LIST_CONTENT: pb.Contents, LIST_SNAPSHOTS: pb.Snapshots}


class Content(MemoryRuntime):
    """A containerd whose stores are those of `stores.yaml`. `late`: which call is not answered in
    time, or with these bytes."""

    def __init__(self, late: str = "", answer: bytes = b"") -> None:
        super().__init__(SteppedClock())
        self.late, self.answer = late, answer
        self.asked: list[str] = []

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answers of a containerd, as the lists that it streams are joined."""
        self.asked.append(method)
        if method == self.late and self.answer:
            return self.answer
        if method == self.late or seconds <= 0:
            raise CallError(Code.DEADLINE_EXCEEDED, "late")
        if method == SNAPSHOT_USAGE:
            size = STORES["sizes"][pb.SnapshotRequest.FromString(request).key]
            return pb.Usage(size=size).SerializeToString()
        if method == LIST_SNAPSHOTS:
            assert pb.SnapshotRequest.FromString(request).snapshotter == "overlayfs"
        each = STORES[method.split("/")[1]]
        filters = pb.ImagesRequest.FromString(request).filters if method == LIST_IMAGES else []
        if filters:  # of CRI's own records alone, if only they are asked for
            assert filters == ['name~="^sha256:"']
            each = [one for one in each if one["name"].startswith("sha256:")]
        answer: bytes = ParseDict({"each": each}, LISTS[method]()).SerializeToString()
        return answer


def test_an_image_holds_what_the_collector_would_reach_from_it() -> None:
    """Manifest, configuration, layers as they came and unpacked. What other records hold is held;
    what containers use is left to CRI, as an image may go once they have gone."""
    layers = HeldLayers(Content()).read(lambda: 1.0)
    assert layers is not None
    shared = {"content base.gz": 100, "snapshots/overlayfs base": 300}
    one = {
        "content m1": 2,
        f"content {ONE}": 5,
        "content one.gz": 10,
        "snapshots/overlayfs one": 30,
    }
    two = {"content index": 1, "content m2": 3, f"content {TWO}": 6, "snapshots/overlayfs two": 20}
    assert layers.of_images == {ONE: {**one, **shared}, TWO: {**two, **shared}}
    assert layers.held == {"content m4", "content four.gz"}


def test_the_size_of_a_snapshot_is_asked_once() -> None:
    """What is committed never changes, so a second reading takes three calls. Two sizes are asked
    at a time, and what was told before the time was over is not asked again: nothing is known until
    all are."""
    runtime = Content()
    held = HeldLayers(runtime)
    rounds = [held.read(iter([1.0] * 5 + [0.0]).__next__) for _ in range(2)]
    assert [each is None for each in rounds] == [True, False]
    assert runtime.asked.count(SNAPSHOT_USAGE) == 5  # one of them came too late
    asked = len(runtime.asked)
    assert held.read(lambda: 1.0) == rounds[1]
    assert runtime.asked[asked:] == [LIST_IMAGES, LIST_CONTENT, LIST_SNAPSHOTS]


@pytest.mark.parametrize("late", [LIST_IMAGES, LIST_CONTENT, LIST_SNAPSHOTS, SNAPSHOT_USAGE])
def test_a_list_that_does_not_come_tells_nothing(late: str) -> None:
    """A partial list would make shared layers look unshared."""
    assert HeldLayers(Content(late)).read(lambda: 1.0) is None


def test_the_image_store_tells_since_when_it_has_each_image() -> None:
    """To a part of a second, by id. Another runtime, or one that does not answer, tells nothing:
    its images count as new."""
    assert brought_at(Content()) == {ONE: 5.5, TWO: 5.5}
    for late in (
        Content(LIST_IMAGES),
        Content(LIST_IMAGES, b"\xff"),
        MemoryRuntime(SteppedClock()),
    ):
        assert brought_at(late) == {}


FIRST = image_id(1)
WALL = 4900.0  # what the wall clock shows more than the monotonic one, if nothing else is said


# ---- stories

JUDGED = {
    "none": PullRecords(complete_since=3999.0),  # of which none can be missing
    "some": PullRecords(names=record_names(image(1))),
    "unknown": PullRecords(problem="not known"),
    "may-be-missing": PullRecords(),
}
IMAGE = re.compile(r"(\d+)(?:/(\w+))?(?:\((.*)\))?")


def image_of(text: str) -> Image:
    """`1`, `1/kata`: its entry for that runtime handler, `1(a:1,b:1)`: with these tags."""
    found = IMAGE.fullmatch(text)
    assert found is not None, text
    number, handler, tags = found.groups("")
    one = image(int(number), *filter(None, tags.split(",")))
    return one._replace(runtime_handler=handler)


def record_of(words: Iterable[str]) -> ImageRecord:
    """`first_detected=-500 uses=3`."""
    fields = dict(word.split("=") for word in words)
    return ImageRecord(**{name: literal_eval(text) for name, text in fields.items()})


def shown(record: ImageRecord) -> str:
    """All that is not as usual."""
    values = ((each.name, getattr(record, each.name), each.default) for each in fields(record))
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value, usual in values
        if value != usual
    )


def outcome(story: str) -> Iterator[str]:
    """Each line, and what follows from it: the records, those of images that are gone, those that
    have come back. `160@8660`: what the wall clock shows then, if it was set. Lines without a time
    come first: witnesses, clocks, and what a file of records had."""
    given = defaultdict[str, list[list[str]]](list)
    kubelets, asked, returned = PullRecords(problem="not known"), 0, list[Returned]()

    def pull_times() -> dict[str, float]:
        nonlocal asked
        asked += 1
        return {image_id(int(number)): float(at) for number, at in given["pulled"]}

    def clocks(what: str) -> tuple[float, float] | None:
        return next(((float(ago), float(wall)) for ago, wall in given[what]), None)

    records = ImageRecords(
        pull_times,
        earlier=lambda: clocks("clocks"),
        on_return=returned.append,
        pulls=lambda _: kubelets,
    )
    for line in story.strip().splitlines():
        yield f"  {line.strip()}"
        at, colon, said = line.partition(": ")
        if not colon:
            what, *words = line.split()
            given[what].append(words)
            continue
        had, went = (
            {image_id(int(number)): record_of(words) for number, *words in given.pop(what, ())}
            for what in ("had", "went")
        )
        if had:
            records.restore(Loaded(had, went, saved=clocks("saved")))
        now, _, wall = at.partition("@")
        match said.split():
            case ["removed", *numbers]:
                for number in numbers:
                    records.forget(image_id(int(number)), float(now))
            case ["records", which]:
                kubelets = JUDGED[which]
            case ["lists", *images]:
                listed, _, used = " ".join(images).partition(" used ")
                found = records.update(
                    [*map(image_of, listed.split())],
                    frozenset(image_id(int(number)) for number in used.split()),
                    float(now),
                    wall_now=float(wall or float(now) + WALL),
                )
                for which, known in (("", found), ("gone ", records.gone)):
                    for name, record in sorted(known.items()):
                        yield f"=> {which}{int(name[7:15], 16)}: {shown(record)}"
                for each in returned:
                    by = "us" if each.by_us else "others"
                    new, old = (int(name[7:15], 16) for name in (each.image.id, each.gone_id))
                    yield f"=> back {new}: as {old}, removed by {by}, since {each.since:g}"
                returned.clear()
    yield f"=> a witness was asked {asked} times"


def test_what_is_remembered_of_images_is_as_told() -> None:
    """In `records.txt`: each line is a detection or a removal, at so many seconds, and what follows
    from it."""
    path = Path(__file__).with_name("records.txt")
    stories = re.sub("^=> .*\n", "", path.read_text(), flags=re.MULTILINE).split("\n\n")
    told = (story.split("\n", 1) for story in stories)
    expect(path, "\n\n".join("\n".join([title, *outcome(story)]) for title, story in told) + "\n")


def test_the_last_thousand_that_went_are_remembered() -> None:
    """A node that pulls for ever needs no more memory."""
    records = ImageRecords()
    for number in range(MOST_GONE + 9):
        records.update([image(number)], frozenset(), float(number), wall_now=WALL + number)
    assert list(records.gone) == [image_id(number) for number in range(8, MOST_GONE + 8)]


def test_what_is_forgotten_during_a_detection_stays_forgotten() -> None:
    """An image is removed, by another thread, while the detection that still lists it asks for the
    records of pulls: if it is pulled again, it is not as old as the one before."""

    class Asked(PullRecords):
        """Asked about the image."""

        def pulled(self, image: Image, came: float | None = None) -> bool | None:
            """Not known; and the image is removed now."""
            removal.come()
            return None

    records = ImageRecords(seed={FIRST: ImageRecord(5.0)}, pulls=lambda _: Asked())
    removal = Interruption(lambda: records.forget(FIRST))
    records.update([image(1)], frozenset(), 100.0, wall_now=5000.0)
    removal.join()
    found = records.update([image(1)], frozenset(), 200.0, wall_now=5100.0)
    assert found[FIRST].first_detected == 200.0
