"""What is remembered of images: first seen, last used, come back, and who can testify to an age."""

from __future__ import annotations

import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from reclaim.images.records import MOST_GONE, ImageRecords, Loaded, Returned
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import Image, ImageRecord
from tests.expected import expect
from tests.pure.interrupted import Interruption
from tests.pure.values import image, image_id

ONE = image_id(1)
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
    """Each line, and what follows from it: the records, those of images that are gone, those that have
    come back. `160@8660`: what the wall clock shows then, if it was set. Lines without a time come
    first: witnesses, clocks, and what a file of records had."""
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


@pytest.mark.regression
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

    records = ImageRecords(seed={ONE: ImageRecord(5.0)}, pulls=lambda _: Asked())
    removal = Interruption(lambda: records.forget(ONE))
    records.update([image(1)], frozenset(), 100.0, wall_now=5000.0)
    removal.join()
    found = records.update([image(1)], frozenset(), 200.0, wall_now=5100.0)
    assert found[ONE].first_detected == 200.0
