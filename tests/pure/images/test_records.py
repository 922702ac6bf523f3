"""What is remembered of images: first seen, last used, come back, and who can testify to an age."""

from __future__ import annotations

import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from reclaim.images.records import MOST_GONE, ImageRecords, Loaded, Returned
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import Image, ImageRecord
from tests.expected import expect
from tests.pure.interrupted import Interruption
from tests.pure.values import image, image_id
from tests.rows import rows

ONE, TWO = image_id(1), image_id(2)
WALL = 4900.0  # what the wall clock shows more than the monotonic one, if nothing else is said
OLD, USED = ImageRecord(-500.0), ImageRecord(-500.0, -100.0)


class Told:
    """Records, and what they have reported as returned. `pulls`: wall times at which a runtime has
    pulled images; `earlier`: what is known of the clocks before the first look, as `ImageRecords`
    takes it."""

    def __init__(
        self,
        *pulls: tuple[str, float],
        earlier: tuple[float, float] | None = None,
        seed: dict[str, ImageRecord] | None = None,
    ) -> None:
        self.told: list[Returned] = []
        self.asked = 0
        self.kubelets = PullRecords(problem="not known")

        def pull_times() -> dict[str, float]:
            self.asked += 1
            return dict(pulls)

        self.records = ImageRecords(
            pull_times,
            seed,
            lambda: earlier,
            on_return=self.told.append,
            pulls=lambda _: self.kubelets,
        )

    def see(
        self, *listed: int | Image, at: float, used: Collection[int] = (), wall: float | None = None
    ) -> dict[str, ImageRecord]:
        """One detection."""
        images = [each if isinstance(each, Image) else image(each) for each in listed]
        wall_now = at + WALL if wall is None else wall
        in_use = frozenset(map(image_id, used))
        return dict(self.records.update(images, in_use, at, wall_now=wall_now))

    def see_one(self, *listed: int | Image, at: float) -> ImageRecord:
        """The record of ONE after a detection."""
        return self.see(*(listed or (1,)), at=at)[ONE]

    def returned(self) -> list[tuple[str, str, bool, float]]:
        """The id of each image, of the one that had gone, whether we removed it, since when."""
        return [(each.image.id, each.gone_id, each.by_us, each.since) for each in self.told]


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
    """What is known after each line of a story: of images, of those that have gone, and what has
    come back. Lines without a time come first: witnesses, clocks, and what a file of records had."""
    given = defaultdict[str, list[list[str]]](list)
    told: Told | None = None
    for line in story.strip().splitlines():
        yield f"  {line.strip()}"
        at, colon, said = line.partition(": ")
        if not colon:
            what, *words = line.split()
            given[what].append(words)
            continue
        if told is None:
            told = Told(
                *((image_id(int(number)), float(at)) for number, at in given["pulled"]),
                earlier=next(((float(ago), float(wall)) for ago, wall in given["clocks"]), None),
            )
            had, went = (
                {image_id(int(number)): record_of(words) for number, *words in given[what]}
                for what in ("had", "went")
            )
            if had:
                saved = next(((float(ago), float(wall)) for ago, wall in given["saved"]), None)
                told.records.restore(Loaded(had, went, saved=saved))
        now = float(at)
        match said.split():
            case ["removed", *numbers]:
                for number in numbers:
                    told.records.forget(image_id(int(number)), now)
            case ["records", which]:
                told.kubelets = JUDGED[which]
            case ["lists", *images]:
                listed, _, used = " ".join(images).partition(" used ")
                found = told.see(
                    *map(image_of, listed.split()), at=now, used=[*map(int, used.split())]
                )
                for which, known in (("", found), ("gone ", told.records.gone)):
                    for name, record in sorted(known.items()):
                        yield f"=> {which}{int(name[7:15], 16)}: {shown(record)}"
                for each in told.told:
                    by = "us" if each.by_us else "others"
                    new, old = (int(name[7:15], 16) for name in (each.image.id, each.gone_id))
                    yield f"=> back {new}: as {old}, removed by {by}, since {each.since:g}"
                told.told.clear()
    assert told is not None
    yield f"=> a witness was asked {told.asked} times"


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
    told = Told()
    for number in range(MOST_GONE + 9):
        told.see(number, at=float(number))
    assert list(told.records.gone) == [image_id(number) for number in range(8, MOST_GONE + 8)]


# ---- who can testify to an age


@pytest.mark.regression
@rows("""
    pulled | ago  | showed      | first_detected | what
    4100   | -    | -           | 100            | nobody knows what the wall clock showed before
    4100   | 600  | 4400        | -500           | known for 600 s: there for those
    4100   | 9000 | -4000       | -800           | known for longer than the image is there
    4100   | 9000 | -4600       | -200           | 10 min ahead since: pulled 5 min ago, or 15
    4100   | 9000 | -7600       | 100            | an hour ahead since: just now, for all that is known
    4100   | 9000 | -400        | -800           | set back since: 15 min ago at least
    4100   | 50   | -1000000000 | 100            | a clock that began in 1938
    5000   | 9000 | -4000       | 100            | now
    9000   | 9000 | -4000       | 100            | in the future
""")
def test_a_witness_counts_as_far_as_the_monotonic_clock_can_vouch_for_it(
    pulled: float, ago: str, showed: str, first_detected: str
) -> None:
    """An image is listed first at 5000 s of the wall clock, which has shown something so long ago.
    A use and another detection change nothing of when it was listed."""
    told = Told((ONE, pulled), earlier=None if ago == "-" else (float(ago), float(showed)))
    expected = ImageRecord(
        float(first_detected), first_listed=None if first_detected == "100" else 100.0
    )
    assert told.see(1, at=100.0) == {ONE: expected}
    used = told.see(1, at=200.0, used=[1])
    assert used == {ONE: replace(expected, last_used=200.0, uses=1)}
    assert (used[ONE].listed_since, told.asked) == (100.0, 1)


@pytest.mark.regression
def test_a_clock_that_is_set_forward_makes_no_pulled_image_old() -> None:
    """Between two detections an image is pulled and the clock jumps ahead by an hour; later it is
    set back."""
    told = Told((ONE, 5030.0), (TWO, 5030.0))
    told.see(at=100.0)
    assert told.see(1, at=160.0, wall=8660.0)[ONE] == ImageRecord(130.0, first_listed=160.0)
    assert told.see(1, 2, at=220.0, wall=5120.0)[TWO] == ImageRecord(160.0, first_listed=220.0)


@pytest.mark.regression
@rows("""
    saved_at | first_detected
    4400     | -500
    800      | 100
""")
def test_the_clocks_at_the_save_vouch_for_a_pull_since(
    saved_at: float, first_detected: float
) -> None:
    """The file of records is of this boot: since then the clock was not set, or an hour ahead."""
    told = Told((ONE, 4000.0))
    told.records.restore(Loaded({TWO: ImageRecord(-800.0)}, saved=(-500.0, saved_at)))
    found = told.see(1, 2, at=100.0)
    assert (found[ONE].first_detected, found[TWO].first_detected) == (first_detected, -800.0)


# ---- several entries of one id, several looks at once


def test_what_is_forgotten_during_a_detection_stays_forgotten() -> None:
    """An image is removed, by another thread, while the detection that still lists it asks for the
    records of pulls: if it is pulled again, it is not as old as the one before."""
    told = Told(seed={ONE: ImageRecord(5.0)})
    removal = Interruption(lambda: told.records.forget(ONE))

    class Asked(PullRecords):
        """Asked about the image."""

        def pulled(self, image: Image, came: float | None = None) -> bool | None:
            """Not known; and the image is removed now."""
            removal.come()
            return None

    told.kubelets = Asked()
    told.see(1, at=100.0)
    removal.join()
    assert told.see_one(at=200.0).first_detected == 200.0


# ---- whether the kubelet has pulled an image
