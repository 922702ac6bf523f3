"""The newest images of each repository stay, whatever else is decided."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.function import Ready, Refused
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy, plan_image_gc, plan_maximum_age, repositories_of
from reclaim.images.records import ImageRecords
from reclaim.types import Action, Image, ImageRecord, Kind, Listing, Plan, Reason, Rule, Verdict
from tests.pure.contexts import context_of, images_stage
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock, container, image, image_id, sandbox

NOW = 10_000.0
KNOWN = frozenset({"registry.k8s.io/pause:3.9"})
APP = [image(number, f"registry.example/app:{number}") for number in range(1, 5)]
HISTORY = {each.id: ImageRecord(1000.0 * number) for number, each in enumerate(APP, 1)}


def plan(
    images: list[Image], count: int, records: dict[str, ImageRecord] | None = None, **policy: object
) -> Plan:
    """The plan for space at NOW."""
    wanted = ImageGCPolicy(keep_newest_per_repository=count, **policy)  # type: ignore[arg-type] # fields as they come
    listing = Listing(tuple(images), sandbox_image_references=KNOWN)
    return plan_image_gc(listing, records or HISTORY, wanted, now=NOW)


def reasons(made: Plan) -> dict[str, str]:
    """Why each kept image stays."""
    return {verdict.id: verdict.reason for verdict in made.keep}


@pytest.mark.parametrize("count", [0, 1, 2, 4, 9])
def test_the_newest_of_a_repository_stay_and_the_older_ones_go(count: int) -> None:
    """By when they were detected; a guard of ours, because the kubelet has no such rule."""
    made = plan(APP, count)
    assert [verdict.id for verdict in made.remove] == [each.id for each in APP[: max(4 - count, 0)]]
    assert {(verdict.reason, verdict.rule) for verdict in made.keep} <= {
        (Reason.NEWEST_OF_REPOSITORY, Rule.GUARD)
    }


def test_each_repository_has_its_own_newest() -> None:
    """Whatever registry, path, tag or digest; a short name is one of Docker Hub."""
    digest = "sha256:" + "d" * 64
    others = [
        image(5, "busybox:1"),
        image(6, "docker.io/library/busybox:2"),
        image(7, "other.example/app:1"),
        image(8, digests=(f"registry.example:5000/app@{digest}",)),
    ]
    records = HISTORY | {each.id: ImageRecord(500.0 + number) for number, each in enumerate(others)}
    assert reasons(plan([*APP, *others], 1, records)).keys() == {
        APP[3].id,
        others[1].id,
        others[2].id,
        others[3].id,
    }


def test_of_those_detected_together_the_one_used_last_is_the_newest() -> None:
    """As after the loss of the records: never used is older than used at any
    time, and equals go by id.
    """
    first, second, third, fourth = (each.id for each in APP)
    records = {first: ImageRecord(5.0, 9.0), second: ImageRecord(5.0, 8.0), third: ImageRecord(5.0)}
    made = plan(APP, 2, records | {fourth: ImageRecord(5.0)})
    assert reasons(made).keys() == {first, second}
    assert reasons(
        plan(APP[2:], 1, {third: ImageRecord(5.0), fourth: ImageRecord(5.0)})
    ).keys() == {fourth}


def test_what_is_used_or_pinned_counts_and_keeps_its_own_reason() -> None:
    """The two newest are kept anyway, so the two older ones may go."""
    pinned = APP[2]._replace(pinned=True)
    listing = Listing(
        (*APP[:2], pinned, APP[3]),
        (container("c", references=(APP[3].id,)),),
        sandbox_image_references=KNOWN,
    )
    made = plan_image_gc(listing, HISTORY, ImageGCPolicy(keep_newest_per_repository=2), now=NOW)
    assert [verdict.id for verdict in made.remove] == [APP[0].id, APP[1].id]
    assert reasons(made) == {APP[2].id: Reason.PINNED, APP[3].id: Reason.IN_USE}


def test_the_keep_list_is_named_first() -> None:
    """An entry is what somebody has written down."""
    assert reasons(plan(APP, 1, keep=parse_keep_list(["registry.example/app:4"]))) == {
        APP[3].id: Reason.KEEP_LIST
    }


def test_an_image_of_two_repositories_stays_if_it_is_the_newest_of_one() -> None:
    """It is the oldest of the other."""
    both = image(5, "registry.example/app:old", "registry.example/promoted:1")
    assert both.id in reasons(plan([*APP, both], 1, HISTORY | {both.id: ImageRecord(1.0)}))


@pytest.mark.parametrize("names", [(), ("<none>:<none>",), ("<none>@<none>",)])
def test_an_image_without_a_name_does_not_count_and_is_not_kept(names: tuple[str, ...]) -> None:
    """Docker lists such names."""
    nameless = image(5, *names)
    assert repositories_of(nameless) == frozenset()
    assert nameless.id not in reasons(plan([nameless], 3, {nameless.id: ImageRecord(1.0)}))


@pytest.mark.parametrize("exact", [False, True])
def test_the_maximum_age_takes_none_of_them(exact: bool) -> None:
    """Also as the kubelet has it (`extent: all`): what the configuration
    keeps is kept in both modes.
    """
    policy = ImageGCPolicy(max_age_seconds=1.0, keep_newest_per_repository=2)
    listing = Listing(tuple(APP), sandbox_image_references=KNOWN)
    made = plan_maximum_age(listing, HISTORY, policy, now=NOW, started_at=0.0, exact=exact)
    assert reasons(made) == dict.fromkeys((APP[2].id, APP[3].id), Reason.NEWEST_OF_REPOSITORY)
    assert {verdict.id for verdict in made.remove} == {APP[0].id, APP[1].id}


names = st.lists(
    st.sampled_from(["app:1", "app:2", "docker.io/library/app", "x.example/app:1", "b:1"]),
    max_size=2,
)
lists = st.lists(
    st.builds(
        lambda number, tags, pinned: image(number, *tags, pinned=pinned),
        st.integers(1, 9),
        names,
        st.booleans(),
    ),
    max_size=12,
)
histories = st.dictionaries(
    st.integers(1, 9).map(image_id),
    st.builds(ImageRecord, st.floats(0, NOW), st.none() | st.floats(0, NOW)),
)


@given(
    lists, histories, st.integers(1, 4), st.sets(st.integers(1, 9)), st.booleans(), st.booleans()
)
def test_of_no_repository_are_fewer_left_than_wanted(
    images: list[Image],
    records: dict[str, ImageRecord],
    count: int,
    used: set[int],
    aged: bool,
    exact: bool,
) -> None:
    """Whatever is listed, once or twice, used, pinned or forgotten: so many of
    each repository stay, or all.
    """
    users = tuple(container(str(number), references=(image_id(number),)) for number in used)
    listing = Listing(tuple(images), users, sandbox_image_references=KNOWN)
    policy = ImageGCPolicy(
        min_age_seconds=0.0, max_age_seconds=1.0, keep_newest_per_repository=count
    )
    if aged:
        made = plan_maximum_age(listing, records, policy, now=NOW, started_at=0.0, exact=exact)
    else:
        made = plan_image_gc(listing, records, policy, now=NOW)
    present: Counter[str] = Counter()
    left: Counter[str] = Counter()
    gone = {verdict.id for verdict in made.remove}
    for one in {each.id for each in images}:
        for repository in {
            name for each in images if each.id == one for name in repositories_of(each)
        }:
            present[repository] += 1
            left[repository] += one not in gone
    for repository, number in present.items():
        assert left[repository] >= min(count, number)


@given(lists, histories)
def test_without_the_setting_nothing_is_kept_by_it(
    images: list[Image], records: dict[str, ImageRecord]
) -> None:
    """0 is the default."""
    listing = Listing(tuple(images), sandbox_image_references=KNOWN)
    made = plan_image_gc(listing, records, ImageGCPolicy(), now=NOW)
    assert Reason.NEWEST_OF_REPOSITORY not in {verdict.reason for verdict in made.keep}


class Node:
    """A runtime in memory with the four images, and the remover of a plan that keeps two."""

    def __init__(self, count: int = 2) -> None:
        clock = SteppedClock(at=NOW)
        self.runtime = MemoryRuntime(clock)
        self.runtime.hold(sandbox("s"), *APP)
        policy = ImageGCPolicy(pod_start_seconds=0.0, keep_newest_per_repository=count)
        self.remover = images_stage(
            context_of(self.runtime, clock, records=ImageRecords(seed=HISTORY), images=policy)
        )

    def check(self, one: Image) -> object:
        """What the remover says of it, right before its removal."""
        return self.remover.check(Verdict(Kind.IMAGE, one.id, one.id, Action.REMOVE, Reason.UNUSED))


def test_an_older_image_may_go_while_enough_newer_ones_are_there() -> None:
    """Both of the older ones, one after the other."""
    node = Node()
    assert isinstance(node.check(APP[1]), Ready)
    del node.runtime.images[APP[1].id]
    assert isinstance(node.check(APP[0]), Ready)


def test_an_image_stays_when_a_newer_one_has_vanished_since_the_list() -> None:
    """A kubelet has removed it: there are only two left with this one."""
    node = Node()
    del node.runtime.images[APP[3].id]
    assert isinstance(node.check(APP[0]), Ready), "the second and the third are there"
    assert node.check(APP[1]) == Refused(Reason.NEWEST_OF_REPOSITORY)


def test_an_image_stays_when_the_name_of_a_newer_one_has_moved() -> None:
    """It is there, and of another repository."""
    node = Node()
    node.runtime.hold(APP[3]._replace(repo_tags=("registry.example/other:1",)))
    assert node.check(APP[1]) == Refused(Reason.NEWEST_OF_REPOSITORY)


def test_an_image_stays_that_has_become_the_newest_of_another_repository() -> None:
    """It got a tag since the list."""
    node = Node()
    node.runtime.hold(
        APP[0]._replace(repo_tags=("registry.example/app:1", "registry.example/promoted:1"))
    )
    assert node.check(APP[0]) == Refused(Reason.NEWEST_OF_REPOSITORY)


def test_without_the_setting_no_other_image_is_asked_for() -> None:
    """The status of the image itself, once."""
    node = Node(count=0)
    node.runtime.calls.clear()
    assert isinstance(node.check(APP[3]), Ready)
    assert [call for call in node.runtime.calls if "image" in call] == [f"image_status {APP[3].id}"]
