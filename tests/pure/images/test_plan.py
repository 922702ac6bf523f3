"""Which images go, which stay and why, and in which order.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.references import bare_hex, images_in_use
from reclaim.images.keep_list import KeepList, parse_keep_list
from reclaim.images.plan import ImageGCPolicy, part_of, plan_image_gc, plan_maximum_age
from reclaim.types import ContainerState, Image, ImageRecord, Listing, Plan, Reason, Rule
from tests.pure.values import container, image, image_id

DIGEST = "sha256:" + "d" * 64
APP = image(1, "docker.io/library/app:1", digests=(f"docker.io/library/app@{DIGEST}",))
PAUSE = image(9, "registry.k8s.io/pause:3.9")
UNUSED = image(5, "docker.io/library/unused:1")
KNOWN = frozenset({"registry.k8s.io/pause:3.9"})
LONG_AGO = ImageRecord(first_detected=0.0)
POLICY = ImageGCPolicy(min_age_seconds=120.0)
NOW = 10_000.0


def plan(
    listing: Listing, records: dict[str, ImageRecord] | None = None, policy: ImageGCPolicy = POLICY
) -> Plan:
    """The plan at NOW; images without a record of their own have been known for long."""
    known = {one.id: LONG_AGO for one in listing.images} | (records or {})
    return plan_image_gc(listing, known, policy, now=NOW)


def kept(made: Plan) -> dict[str, str]:
    """Why each kept image stays."""
    return {verdict.id: verdict.reason for verdict in made.keep}


def removed(made: Plan) -> list[str]:
    """The ids of what goes, in order."""
    return [verdict.id for verdict in made.remove]


def rules(made: Plan) -> dict[str, tuple[str, Rule]]:
    """Why each kept image stays, and by whose rule."""
    return {verdict.id: (verdict.reason, verdict.rule) for verdict in made.keep}


def test_an_unused_image_is_removed() -> None:
    """Its verdict carries name, size and age."""
    made = plan(Listing(images=(UNUSED, PAUSE), sandbox_image_references=KNOWN))
    (verdict,) = made.remove
    assert (verdict.id, verdict.name, verdict.reason) == (
        UNUSED.id,
        "docker.io/library/unused:1",
        Reason.UNUSED,
    )
    assert (verdict.size_bytes, verdict.age_seconds) == (UNUSED.size_bytes, NOW)
    assert kept(made) == {PAUSE.id: Reason.SANDBOX_IMAGE}


@pytest.mark.parametrize("state", ContainerState)
@pytest.mark.parametrize(
    "references",
    [
        (APP.id,),
        (bare_hex(APP.id),),
        (f"docker.io/library/app@{DIGEST}",),
        ("docker.io/library/app:1",),
        ("app:1",),
        (bare_hex(APP.id)[:12],),
        ("moved-away:1", APP.id),
    ],
)
def test_an_image_of_a_container_in_any_state_is_kept(
    state: ContainerState, references: tuple[str, ...]
) -> None:
    """By id, digest, tag, short name or short hex: an image stays until its
    last container is gone.
    """
    one = container("c", state=state, references=references)
    made = plan(Listing(images=(APP, PAUSE), containers=(one,), sandbox_image_references=KNOWN))
    assert kept(made) == {APP.id: Reason.IN_USE, PAUSE.id: Reason.SANDBOX_IMAGE}
    assert made.remove == ()


def test_an_image_that_a_container_mounts_is_kept() -> None:
    """An image volume uses an image without being the container's image."""
    one = container("c", references=(PAUSE.id,))
    listing = Listing(
        (APP, PAUSE), (one,), sandbox_image_references=KNOWN, image_volumes={"c": (("app:1",),)}
    )
    assert kept(plan(listing))[APP.id] is Reason.IN_USE


def test_every_image_that_a_container_names_is_kept() -> None:
    """A tag that moved on: the image of the id and the image of the tag are both kept."""
    moved = image(2, "docker.io/library/app:2")
    one = container("c", references=(APP.id, "app:2"))
    made = plan(Listing((APP, moved, UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN))
    assert removed(made) == [UNUSED.id]


@pytest.mark.parametrize("references", [(), ("gone:1",), (image_id(77),), ("app:1", image_id(77))])
def test_one_container_whose_image_cannot_be_told_stops_everything(
    references: tuple[str, ...],
) -> None:
    """Nothing is assumed unused by guess; an id beside a tag must be known by itself."""
    one = container("c", references=references)
    made = plan(Listing((APP, UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN))
    assert made.remove == ()
    assert kept(made)[UNUSED.id] is Reason.UNRESOLVED_IMAGE


def test_a_tag_that_moved_away_does_not_stop_what_an_id_tells() -> None:
    """The id is listed; that its old tag is not is no doubt about it."""
    one = container("c", references=(APP.id, "moved-away:1"))
    assert removed(plan(Listing((APP, UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN))) == [
        UNUSED.id
    ]


def test_what_the_runtime_has_no_image_for_protects_nothing() -> None:
    """Asked for an id, or a digest, it answered that it has none: nothing is in doubt,
    whatever the tag beside it.
    """
    gone = "sha256:" + "e" * 64
    one = container("c", references=(gone, "gone:1"))
    listing = Listing(
        (UNUSED, PAUSE),
        (one,),
        sandbox_image_references=KNOWN,
        resolved={gone: None, "gone:1": None},
    )
    assert removed(plan(listing)) == [UNUSED.id]


OLD = f"docker.io/library/app@sha256:{'e' * 64}"


@pytest.mark.regression
@pytest.mark.parametrize("reference", [OLD, f"app:1@sha256:{'e' * 64}"])
def test_a_digest_is_not_settled_by_the_tag_of_another_image(reference: str) -> None:
    """The tag has moved to an image with another digest, and the container's own
    may be one without a name.
    """
    stranded = image(7)
    one = container("c", references=(reference,))
    made = plan(Listing((APP, UNUSED, stranded, PAUSE), (one,), sandbox_image_references=KNOWN))
    assert removed(made) == []
    assert kept(made)[stranded.id] is Reason.UNRESOLVED_IMAGE


@pytest.mark.regression
def test_an_image_without_a_digest_may_be_the_one_that_the_runtime_does_not_find() -> None:
    """Loaded from a file, or untagged since: it stays while a container names a
    digest that nobody knows.
    """
    loaded, stranded = image(7, "app:1"), image(8)
    one = container("c", references=(OLD,))
    listing = Listing(
        (APP, UNUSED, loaded, stranded, PAUSE), (one,), sandbox_image_references=KNOWN
    )
    made = plan(replace(listing, resolved={OLD: None}))
    assert removed(made) == [APP.id]
    assert [kept(made)[each.id] for each in (UNUSED, loaded, stranded)] == [Reason.IN_USE] * 3


def test_a_digest_beside_a_listed_id_is_in_no_doubt() -> None:
    """The id says which image it is; the digest is what was asked for."""
    one = container("c", references=(APP.id, OLD))
    assert removed(plan(Listing((APP, UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN))) == [
        UNUSED.id
    ]


@pytest.mark.regression
@pytest.mark.parametrize("volume", [("gone:1",), (OLD,), (image_id(77), "app:1")])
def test_an_image_volume_that_cannot_be_told_stops_everything(volume: tuple[str, ...]) -> None:
    """Each image that is mounted must be known by itself: that the container's own
    is known settles nothing.
    """
    one = container("c", references=(PAUSE.id, "pause:1"))
    listing = Listing(
        (APP, UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN, image_volumes={"c": (volume,)}
    )
    assert removed(plan(listing)) == []


def test_a_name_that_the_runtime_does_not_know_any_more_stays_in_doubt() -> None:
    """A tag may have moved since the container was made: which image it uses is not
    known, so none is removed.
    """
    one = container("c", references=("moved:1",))
    listing = Listing(
        (UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN, resolved={"moved:1": None}
    )
    assert removed(plan(listing)) == []


def test_a_pin_on_another_image_does_not_name_the_sandbox_image() -> None:
    """Only a pinned image that is named `pause` says which image pods need to start."""
    for name, goes in (
        ("registry.example/preloaded:1", []),
        ("registry.example/mirrored-pause:3.6", [UNUSED.id]),
    ):
        pinned = Image("sha256:" + "f" * 64, (name,), pinned=True)
        assert removed(plan(Listing((UNUSED, pinned)))) == goes


def test_what_the_runtime_resolves_is_in_use() -> None:
    """Its own rules find an image that the list does not name so."""
    one = container("c", references=("alias",))
    listing = Listing(
        (APP, UNUSED, PAUSE), (one,), sandbox_image_references=KNOWN, resolved={"alias": APP.id}
    )
    assert removed(plan(listing)) == [UNUSED.id]
    assert images_in_use(listing).by_containers == {APP.id}


@pytest.mark.parametrize(
    "reference",
    [
        "app",
        "docker.io/app:1",
        "app:other@" + DIGEST,
        "elsewhere.example/app@" + DIGEST,
        APP.id,
        "alias",
    ],
)
def test_what_the_spec_of_a_pod_names_is_in_use(reference: str) -> None:
    """In every form that a container may name it in; the kubelet knows that
    itself by its containers only.
    """
    apps = (
        APP._replace(repo_tags=("docker.io/library/app:1", "docker.io/library/app:latest")),
        UNUSED,
        PAUSE,
    )
    named = frozenset({reference})
    listing = Listing(
        apps, sandbox_image_references=KNOWN, named_images=named, resolved={"alias": APP.id}
    )
    made = plan(listing)
    assert removed(made) == [UNUSED.id]
    assert rules(made)[APP.id] == (Reason.IN_USE, Rule.GUARD)


@pytest.mark.parametrize("reference", ["later:1", "app@sha256:" + "e" * 64, "sha256:" + "e" * 64])
def test_what_a_spec_names_and_no_image_has_is_not_pulled_yet(reference: str) -> None:
    """It keeps no image, whether or not the runtime was asked about it."""
    for resolved in ({}, {reference: None}):
        listing = Listing((UNUSED, PAUSE), sandbox_image_references=KNOWN, resolved=resolved)
        assert plan(replace(listing, named_images=frozenset({reference}))) == plan(listing)


def test_a_pinned_image_is_kept() -> None:
    """And a pin shows which image the sandboxes need."""
    made = plan(Listing(images=(PAUSE._replace(pinned=True), UNUSED)))
    assert removed(made) == [UNUSED.id]
    assert kept(made) == {PAUSE.id: Reason.PINNED}


def test_as_long_as_the_sandbox_image_is_unknown_no_image_is_removed() -> None:
    """No pin, no configuration, no ready sandbox: any of them might be the image
    that no pod starts without.
    """
    made = plan(Listing(images=(PAUSE, UNUSED), sandbox_image_references=None))
    assert kept(made) == {
        PAUSE.id: Reason.SANDBOX_IMAGE_UNKNOWN,
        UNUSED.id: Reason.SANDBOX_IMAGE_UNKNOWN,
    }


@pytest.mark.parametrize(
    ("known_seconds", "goes", "wait_seconds"),
    [(119.0, False, 1.0), (120.0, True, None), (121.0, True, None)],
)
def test_the_minimum_age_is_inclusive(
    known_seconds: float, goes: bool, wait_seconds: float | None
) -> None:
    """At exactly 120 s an image may go; before, the plan says how long it has to wait."""
    record = ImageRecord(NOW - known_seconds)
    made = plan(Listing((UNUSED, PAUSE), sandbox_image_references=KNOWN), {UNUSED.id: record})
    assert (UNUSED.id in removed(made)) is goes
    assert made.eligible_in_seconds == wait_seconds


def test_a_plan_waits_for_the_next_object_not_for_the_last() -> None:
    """Of two that are too young one is old enough in 30 s, the other in 90 s."""
    other = image(6, "docker.io/library/other:1")
    young = {UNUSED.id: ImageRecord(NOW - 90.0), other.id: ImageRecord(NOW - 30.0)}
    made = plan(Listing((UNUSED, other, PAUSE), sandbox_image_references=KNOWN), young)
    assert made.eligible_in_seconds == 30.0


@pytest.mark.regression
@pytest.mark.parametrize(
    ("listed_seconds", "rule"), [(0.0, Rule.GUARD), (119.0, Rule.GUARD), (120.0, Rule.KUBELET)]
)
def test_an_age_that_only_the_runtime_tells_is_not_the_kubelets(
    listed_seconds: float, rule: Rule
) -> None:
    """The kubelet counts from its own first list, which may be no older than ours: it
    might keep the image still.
    """
    record = ImageRecord(0.0, first_listed=NOW - listed_seconds)
    (verdict,) = plan(
        Listing((UNUSED, PAUSE), sandbox_image_references=KNOWN), {UNUSED.id: record}
    ).remove
    assert (verdict.reason, verdict.rule) == (Reason.UNUSED, rule)


def test_an_image_without_a_record_is_seen_for_the_first_time() -> None:
    """Unknown is young, never ancient."""
    made = plan_image_gc(Listing((UNUSED,), sandbox_image_references=KNOWN), {}, POLICY, now=NOW)
    assert kept(made) == {UNUSED.id: Reason.TOO_YOUNG}
    assert made.eligible_in_seconds == 120.0


def test_the_least_recently_used_image_is_removed_first() -> None:
    """Never used before ever used, then by first detection, then by id."""
    records = {
        image_id(1): ImageRecord(10.0, last_used=500.0),
        image_id(2): ImageRecord(20.0, last_used=400.0),
        image_id(3): ImageRecord(40.0),
        image_id(4): ImageRecord(30.0),
        image_id(6): ImageRecord(30.0),
        image_id(5): ImageRecord(5.0, last_used=500.0),
    }
    images = tuple(image(number) for number in (1, 2, 3, 6, 4, 5))
    made = plan(Listing(images, sandbox_image_references=KNOWN), records)
    assert removed(made) == [image_id(number) for number in (4, 6, 3, 2, 5, 1)]


def test_one_id_listed_twice_is_one_image() -> None:
    """It goes once, and not at all if either entry is pinned."""
    twice = (UNUSED, UNUSED._replace(repo_tags=("other:1",)), PAUSE)
    assert removed(plan(Listing(twice, sandbox_image_references=KNOWN))) == [UNUSED.id]
    for pins in ((True, False), (False, True)):
        images = tuple(one._replace(pinned=pin) for one, pin in zip(twice[:2], pins, strict=True))
        assert plan(Listing(images, sandbox_image_references=KNOWN)).remove == ()


def test_the_later_entry_of_one_id_says_its_size_and_a_pin_on_either_is_ours() -> None:
    """As the kubelet: one record, later size, later pin; we hold to both pins."""
    first, second = UNUSED._replace(size_bytes=10, pinned=True), UNUSED._replace(size_bytes=20)
    (verdict,) = (
        v
        for v in plan(Listing((first, second, PAUSE), sandbox_image_references=KNOWN)).keep
        if v.size_bytes == 20
    )
    assert (verdict.id, verdict.reason, verdict.rule) == (UNUSED.id, Reason.PINNED, Rule.GUARD)
    later = first._replace(pinned=False), second._replace(pinned=True)
    (verdict,) = (
        v
        for v in plan(Listing((*later, PAUSE), sandbox_image_references=KNOWN)).keep
        if v.id == UNUSED.id
    )
    assert (verdict.reason, verdict.rule) == (Reason.PINNED, Rule.KUBELET)


KATA = UNUSED._replace(runtime_handler="kata")


@pytest.mark.regression
def test_one_id_under_two_runtime_handlers_goes_once_with_the_sum_of_the_sizes() -> None:
    """A removal is by id and takes both; the kubelet with its gate on sends one for each entry."""
    listed = UNUSED._replace(size_bytes=10), KATA._replace(size_bytes=20), PAUSE
    (verdict,) = plan(
        Listing(listed, sandbox_image_references=KNOWN), {KATA.id: ImageRecord(NOW - 500.0)}
    ).remove
    assert (verdict.id, verdict.size_bytes, verdict.age_seconds) == (UNUSED.id, 30, 500.0)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("listed_seconds", "rule"), [(1e6, Rule.GUARD), (120.0, Rule.GUARD), (119.0, Rule.KUBELET)]
)
def test_one_id_under_two_runtime_handlers_is_as_young_as_the_younger(
    listed_seconds: float, rule: Rule
) -> None:
    """The kubelet would remove the id for the entry that it listed first, and with it
    what was pulled a moment ago.
    """
    records = {UNUSED.id: ImageRecord(NOW - 60.0, first_listed=NOW - listed_seconds)}
    made = plan(Listing((UNUSED, KATA, PAUSE), sandbox_image_references=KNOWN), records)
    assert rules(made)[UNUSED.id] == (Reason.TOO_YOUNG, rule)


def test_in_use_under_one_runtime_handler_is_in_use_under_all() -> None:
    """And so is pinned: what is removed by id is removed for both."""
    one = container("c", references=(UNUSED.id,))
    made = plan(Listing((UNUSED, KATA, PAUSE), (one,), sandbox_image_references=KNOWN))
    assert kept(made)[UNUSED.id] == Reason.IN_USE
    pinned = plan(
        Listing((UNUSED._replace(pinned=True), KATA, PAUSE), sandbox_image_references=KNOWN)
    )
    assert rules(pinned)[UNUSED.id] == (Reason.PINNED, Rule.GUARD)


def test_the_image_of_an_exited_container_is_in_use_for_the_kubelet_too() -> None:
    """As the kubelet: found by the image id of the container, byte for byte."""
    one = container("c", state=ContainerState.EXITED, references=(APP.id, "app:1"))
    made = plan(Listing((APP, PAUSE), (one,), sandbox_image_references=KNOWN))
    assert rules(made)[APP.id] == (Reason.IN_USE, Rule.KUBELET)


@pytest.mark.parametrize(
    "reference", [bare_hex(APP.id), "app:1", f"docker.io/library/app@{DIGEST}"]
)
def test_what_only_the_union_finds_in_use_is_a_guard(reference: str) -> None:
    """The kubelet compares image ids as they are written; a tag or a digest would
    not protect the image there.
    """
    made = plan(
        Listing(
            (APP, PAUSE), (container("c", references=(reference,)),), sandbox_image_references=KNOWN
        )
    )
    assert rules(made)[APP.id] == (Reason.IN_USE, Rule.GUARD)


def test_a_second_reference_that_is_an_id_is_a_guard() -> None:
    """The kubelet compares the image id, or else the image reference, and none
    of the other fields.
    """
    one = container("c", references=("app:1", APP.id))
    made = plan(Listing((APP, PAUSE), (one,), sandbox_image_references=KNOWN))
    assert rules(made)[APP.id] == (Reason.IN_USE, Rule.GUARD)


@pytest.mark.parametrize(("volume", "rule"), [(APP.id, Rule.KUBELET), ("app:1", Rule.GUARD)])
def test_an_image_volume_is_the_kubelets_use_where_it_is_a_listed_id(
    volume: str, rule: Rule
) -> None:
    """From v1.35 on the kubelet counts image volumes, compared as they are written."""
    one = container("c", references=(PAUSE.id,))
    listing = Listing(
        (APP, PAUSE), (one,), sandbox_image_references=KNOWN, image_volumes={"c": ((volume,),)}
    )
    assert rules(plan(listing))[APP.id] == (Reason.IN_USE, rule)


def test_each_kept_image_says_whose_rule_keeps_it() -> None:
    """The kubelet knows pins and the minimum age; sandbox image, keep-list and
    doubt are guards of ours.
    """
    pinned, young, kept_one = image(2, "p:1", pinned=True), image(3, "young:1"), image(4, "kept:1")
    policy = ImageGCPolicy(keep=parse_keep_list(["kept"]))
    listing = Listing((PAUSE, pinned, young, kept_one), sandbox_image_references=KNOWN)
    assert rules(plan(listing, {young.id: ImageRecord(NOW - 1.0)}, policy)) == {
        PAUSE.id: (Reason.SANDBOX_IMAGE, Rule.GUARD),
        pinned.id: (Reason.PINNED, Rule.KUBELET),
        young.id: (Reason.TOO_YOUNG, Rule.KUBELET),
        kept_one.id: (Reason.KEEP_LIST, Rule.GUARD),
    }
    assert rules(plan(Listing((young,))))[young.id] == (Reason.SANDBOX_IMAGE_UNKNOWN, Rule.GUARD)
    doubt = Listing(
        (young, PAUSE), (container("c", references=()),), sandbox_image_references=KNOWN
    )
    assert rules(plan(doubt))[young.id] == (Reason.UNRESOLVED_IMAGE, Rule.GUARD)
    (goes,) = plan(Listing((UNUSED,), sandbox_image_references=KNOWN)).remove
    assert goes.rule is Rule.KUBELET


@pytest.mark.parametrize(
    ("last_used", "goes"), [(NOW - 0.001, True), (NOW, False), (NOW + 5.0, False)]
)
def test_an_image_that_was_seen_used_since_the_pass_began_is_skipped(
    last_used: float, goes: bool
) -> None:
    """Kubelet, freeSpace: last use at or after the start of the pass, by another thread."""
    made = plan(
        Listing((UNUSED,), sandbox_image_references=KNOWN), {UNUSED.id: ImageRecord(0.0, last_used)}
    )
    assert (removed(made) == [UNUSED.id]) is goes
    if not goes:
        assert rules(made)[UNUSED.id] == (Reason.IN_USE, Rule.KUBELET)


def test_the_maximum_age_plays_no_part_under_pressure() -> None:
    """DeleteUnusedImages: what was used a second ago and is unused now may go,
    whatever the maximum age.
    """
    policy = ImageGCPolicy(max_age_seconds=3600.0)
    used_lately = {UNUSED.id: ImageRecord(0.0, NOW - 1.0)}
    (verdict,) = plan(
        Listing((UNUSED,), sandbox_image_references=KNOWN), used_lately, policy
    ).remove
    assert verdict.reason is Reason.UNUSED


@pytest.mark.parametrize("percent", [0, 80, 100])
def test_equal_marks_are_accepted_by_the_policy(percent: int) -> None:
    """By the image manager, that is: the configuration's validation refuses them."""
    policy = ImageGCPolicy(high_threshold_percent=percent, low_threshold_percent=percent)
    assert policy.high_threshold_percent == policy.low_threshold_percent


@pytest.mark.parametrize(
    ("high", "max_age_seconds", "has_work"),
    [(100, 0.0, False), (100, 1.0, True), (99, 0.0, True), (99, 1.0, True)],
)
def test_only_a_high_mark_of_100_without_a_maximum_age_has_no_periodic_work(
    high: int, max_age_seconds: float, has_work: bool
) -> None:
    """Kubelet from v1.30 on: else the loop is started."""
    policy = ImageGCPolicy(max_age_seconds=max_age_seconds, high_threshold_percent=high)
    assert policy.has_periodic_work is has_work


numbers = st.integers(1, 8)
references = st.sampled_from(
    [image_id(n) for n in range(1, 9)] + ["app:1", "app:2", bare_hex(image_id(3)), "gone:1"]
)
listings = st.builds(
    Listing,
    images=st.lists(
        st.builds(image, numbers, st.sampled_from(["app:1", "app:2", "x:1"]), pinned=st.booleans()),
        unique_by=lambda one: one.id,
    ).map(tuple),
    containers=st.lists(
        st.builds(
            container,
            st.uuids().map(str),
            state=st.sampled_from(ContainerState),
            references=st.lists(references, max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    sandbox_image_references=st.none() | st.frozensets(references, max_size=2),
    resolved=st.sampled_from([{}, {"gone:1": None}]),
)
histories = st.dictionaries(
    numbers.map(image_id),
    st.builds(ImageRecord, st.floats(0, NOW), st.none() | st.floats(0, NOW)),
    max_size=8,
)


keep_lists = st.lists(
    st.sampled_from(
        ["app", "app:1", "x", "docker.io/*", "*:2", "*", image_id(2), bare_hex(image_id(3))]
    ),
    max_size=2,
).map(parse_keep_list)


@given(listings, histories, keep_lists, st.booleans(), st.booleans())
def test_nothing_is_removed_that_is_used_pinned_kept_or_a_sandboxs(
    listing: Listing, records: dict[str, ImageRecord], keep: KeepList, aged: bool, exact: bool
) -> None:
    """Whatever is listed, for space or for age: each image gets one verdict, and what goes is free,
    old, on no keep-list, and whose users are all known."""
    policy = replace(POLICY, max_age_seconds=500.0, keep=keep)
    if aged:
        made = plan_maximum_age(listing, records, policy, now=NOW, started_at=0.0, exact=exact)
    else:
        made = plan_image_gc(listing, records, policy, now=NOW)
    usage = images_in_use(listing)
    by_id: dict[str, Image] = {one.id: one for one in listing.images}
    assert sorted([*removed(made), *kept(made)]) == sorted(by_id)
    for verdict in made.remove:
        assert verdict.id not in usage.by_containers | usage.by_sandboxes
        assert not by_id[verdict.id].pinned
        assert verdict.id not in keep.kept_ids(listing.images)
        if not (aged and exact):
            assert NOW - records[verdict.id].first_detected >= POLICY.min_age_seconds
    if usage.unresolved or not usage.sandbox_image_known:
        assert made.remove == ()


@given(listings, histories, st.randoms())
def test_the_order_of_the_listing_changes_nothing(
    listing: Listing, records: dict[str, ImageRecord], random: Random
) -> None:
    """Plans are made of what is listed, not of where it stood."""
    images, containers = list(listing.images), list(listing.containers)

    random.shuffle(images)
    random.shuffle(containers)
    other = replace(listing, images=tuple(images), containers=tuple(containers))
    policy = replace(POLICY, max_age_seconds=500.0)
    assert plan_image_gc(other, records, policy, now=NOW) == plan_image_gc(
        listing, records, policy, now=NOW
    )
    assert plan_maximum_age(other, records, policy, now=NOW, started_at=0.0) == plan_maximum_age(
        listing, records, policy, now=NOW, started_at=0.0
    )


NOT_PULLED = ImageRecord(first_detected=0.0, last_used=5.0, pulled=False)


@pytest.mark.parametrize(
    ("keep", "order", "reason"),
    [
        ("auto", [APP.id, UNUSED.id], Reason.NOT_PULLED),
        (False, [UNUSED.id, APP.id], Reason.UNUSED),
        (True, [APP.id], Reason.NOT_PULLED),
    ],
)
def test_an_image_that_the_kubelet_did_not_pull_goes_last_or_never(
    keep: bool | Literal["auto"], order: list[str], reason: Reason
) -> None:
    """It was used last at 5 s, the other at 6 s."""
    records = {UNUSED.id: NOT_PULLED, APP.id: ImageRecord(0.0, 6.0, pulled=True)}
    listing = Listing((APP, UNUSED, PAUSE), sandbox_image_references=KNOWN)
    made = plan(listing, records, replace(POLICY, keep_not_pulled=keep))
    assert removed(made) == order
    (verdict,) = [each for each in (*made.remove, *made.keep) if each.id == UNUSED.id]
    assert verdict.reason == reason
    assert verdict.rule is (Rule.GUARD if keep is True else Rule.KUBELET)


@pytest.mark.parametrize(
    "record",
    [
        replace(NOT_PULLED, pulled=None),
        replace(NOT_PULLED, pulled=True),
        replace(NOT_PULLED, last_used=None),
    ],
)
@pytest.mark.parametrize("keep", ["auto", True])
def test_what_is_not_known_not_to_be_pulled_is_an_image_like_others(
    record: ImageRecord, keep: bool | Literal["auto"]
) -> None:
    """One that no pod has used is not known to be wanted: it may be on its way to the first."""
    listing = Listing((UNUSED, PAUSE), sandbox_image_references=KNOWN)
    made = plan(listing, {UNUSED.id: record}, replace(POLICY, keep_not_pulled=keep))
    assert [verdict.reason for verdict in made.remove] == [Reason.UNUSED]


def test_what_goes_last_is_held_back_until_nothing_else_is_enough() -> None:
    """The two parts of a plan have each object once."""
    records = {UNUSED.id: NOT_PULLED}
    made = plan(Listing((APP, UNUSED, PAUSE), sandbox_image_references=KNOWN), records)
    first, last = part_of(made), part_of(made, last=True)
    assert (removed(first), removed(last)) == ([APP.id], [UNUSED.id])
    assert rules(first) == {**rules(made), UNUSED.id: (Reason.NOT_PULLED, Rule.GUARD)}
    assert rules(last) == rules(made)
