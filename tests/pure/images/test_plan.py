"""Which images go, which stay and why, and in which order: beside the kubelet's own rule, and in
tables.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.references import bare_hex
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import (
    ImageGCPolicy,
    SpaceDecision,
    decide_space,
    human_size,
    not_enough_freed,
    part_of,
    plan_image_gc,
    plan_maximum_age,
    repositories_of,
)
from reclaim.types import ContainerState, Image, ImageRecord, Listing, Plan, Reason, Rule
from tests.pure.values import GIB, container, image, image_id
from tests.rows import rows

DIGEST, OTHER_DIGEST = ("sha256:" + digit * 64 for digit in "de")
APP = image(1, "docker.io/library/app:1", digests=(f"docker.io/library/app@{DIGEST}",))
UNUSED = image(5, "docker.io/library/unused:1", size_bytes=10)
LOADED = image(7, "app:1")  # from a file: it has a name and no digest
STRANDED = image(8)
PAUSE = image(9, "registry.k8s.io/pause:3.9")
KATA = UNUSED._replace(runtime_handler="kata", size_bytes=20)
PINNED = UNUSED._replace(pinned=True)
OLD = f"docker.io/library/app@{OTHER_DIGEST}"
GONE = image_id(77)
KNOWN = frozenset(PAUSE.repo_tags)
NAMES = {
    APP.id: "app",
    UNUSED.id: "unused",
    LOADED.id: "loaded",
    STRANDED.id: "stranded",
    PAUSE.id: "pause",
}
POLICY = ImageGCPolicy(min_age_seconds=120.0)
NOW = 10_000.0


def listing(
    *used: tuple[str, ...], images: tuple[Image, ...] = (APP, UNUSED), **fields: Any
) -> Listing:
    """Images and the sandbox image, and a container for each of these tuples of references."""
    containers = tuple(container(f"c{number}", references=each) for number, each in enumerate(used))
    return Listing((*images, PAUSE), containers, **{"sandbox_image_references": KNOWN, **fields})


def plan(
    listed: Listing, records: dict[str, ImageRecord] | None = None, policy: ImageGCPolicy = POLICY
) -> Plan:
    """The plan at NOW; images without a record of their own have been known for long."""
    known = {each.id: ImageRecord(0.0) for each in listed.images} | (records or {})
    return plan_image_gc(listed, known, policy, now=NOW)


def fates(made: Plan) -> str:
    """What goes, in order, then what stays, why, and by whose rule; `pause` stays."""
    stays = sorted(
        f"{NAMES[each.id]} {each.reason} ({each.rule})" for each in made.keep if each.id != PAUSE.id
    )
    return ", ".join([*(f"{NAMES[each.id]} goes" for each in made.remove), *stays])


def removed(made: Plan) -> list[str]:
    """The ids of what goes, in order."""
    return [verdict.id for verdict in made.remove]


# ---- in use

SAID = {
    "id": APP.id,
    "bare": bare_hex(APP.id),
    "part": bare_hex(APP.id)[:12],
    "digest": APP.repo_digests[0],
    "other-digest": OLD,
    "tag-and-other": f"app:1@{OTHER_DIGEST}",
    "lost-id": GONE,
}


@rows("""
    references              | expected                                    | what
    id                      | unused goes, app in_use (kubelet)           | an id, byte for byte
    id app:1                | unused goes, app in_use (kubelet)           | an id first
    app:1 id                | unused goes, app in_use (guard)             | an id second
    bare                    | unused goes, app in_use (guard)             | a bare id
    part                    | unused goes, app in_use (guard)             | a short id
    digest                  | unused goes, app in_use (guard)             | a digest
    docker.io/library/app:1 | unused goes, app in_use (guard)             | a tag
    app:1                   | unused goes, app in_use (guard)             | a short name
    id moved-away:1         | unused goes, app in_use (kubelet)           | and an old tag
    id other-digest         | unused goes, app in_use (kubelet)           | and an old digest
    id unused:1             | app in_use (kubelet), unused in_use (guard) | an id and a tag that moved on
    alias                   | unused goes, app in_use (guard)             | the runtime knows
""")
def test_an_image_is_in_use_by_all_that_a_container_says(references: str, expected: str) -> None:
    """The kubelet compares the first reference with ids, as they are written; the rest is ours. An
    id that is listed settles which image it is. What is mounted is in use as well."""
    said = tuple(SAID.get(word, word) for word in references.split())
    answers = {"alias": APP.id}
    assert fates(plan(listing(said, resolved=answers))) == expected
    if len(said) == 1:
        mounts = listing((PAUSE.id,), image_volumes={"c0": (said,)}, resolved=answers)
        assert fates(plan(mounts)) == expected


@pytest.mark.regression
@rows("""
    references     | answered       | in_doubt                   | what
    -              | -              | app loaded stranded unused | nothing is said
    gone:1         | -              | app loaded stranded unused | a tag that no image has
    gone:1         | gone:1         | app loaded stranded unused | nor the runtime: it moved
    lost-id        | -              | app loaded stranded unused | an id that no image has
    app:1 lost-id  | -              | stranded unused            | an id must be known by itself
    other-digest   | -              | app loaded stranded unused | a digest is not settled by a tag
    tag-and-other  | -              | app loaded stranded unused | nor with that tag in it
    other-digest   | other-digest   | -                          | any without a digest may be it
    lost-id gone:1 | lost-id gone:1 | -                          | an id that the runtime has not
""")
def test_one_container_whose_image_cannot_be_told_stops_everything(
    references: str, answered: str, in_doubt: str
) -> None:
    """Nothing is assumed unused by guess. `answered`: what the runtime was asked for, and has not."""
    said, none = (
        tuple(SAID.get(word, word) for word in words.split() if word != "-")
        for words in (references, answered)
    )
    images = (APP, UNUSED, LOADED, STRANDED)
    made = plan(listing(said, images=images, resolved=dict.fromkeys(none)))
    doubts = [NAMES[each.id] for each in made.keep if each.reason is Reason.UNRESOLVED_IMAGE]
    assert sorted(doubts) == [name for name in in_doubt.split() if name != "-"]
    goes = {
        "other-digest": "app goes",
        "lost-id gone:1": "app goes, unused goes, loaded goes, stranded goes",
    }
    assert ", ".join(f"{NAMES[each]} goes" for each in removed(made)) == goes.get(answered, "")


@pytest.mark.regression
@pytest.mark.parametrize("volume", [("gone:1",), (OLD,), (GONE, "app:1")])
def test_an_image_volume_that_cannot_be_told_stops_everything(volume: tuple[str, ...]) -> None:
    """Each image that is mounted must be known by itself: that the container's own is known
    settles nothing."""
    mounts = listing((PAUSE.id, "pause:1"), image_volumes={"c0": (volume,)})
    assert removed(plan(mounts)) == []


@pytest.mark.parametrize(
    "reference",
    ["app", "docker.io/app:1", f"app:other@{DIGEST}", f"elsewhere.io/a@{DIGEST}", APP.id, "alias"],
)
def test_what_the_spec_of_a_pod_names_is_in_use(reference: str) -> None:
    """In every form that a container may name it in; the kubelet knows that by containers only."""
    app = APP._replace(repo_tags=(*APP.repo_tags, "docker.io/library/app:latest"))
    named = listing(
        images=(app, UNUSED), named_images=frozenset({reference}), resolved={"alias": APP.id}
    )
    assert fates(plan(named)) == "unused goes, app in_use (guard)"


@pytest.mark.parametrize("reference", ["later:1", f"app@{OTHER_DIGEST}", OTHER_DIGEST])
def test_what_a_spec_names_and_no_image_has_is_not_pulled_yet(reference: str) -> None:
    """It keeps no image, whether or not the runtime was asked about it."""
    for resolved in ({}, {reference: None}):
        listed = listing(resolved=resolved)
        assert plan(listed._replace(named_images=frozenset({reference}))) == plan(listed)


# ---- what else keeps an image


def test_as_long_as_the_sandbox_image_is_unknown_no_image_is_removed() -> None:
    """No configuration, no ready sandbox, no pin of an image that is called `pause`: any of them
    might be the image that no pod starts without."""
    for pinned, expected in (
        (APP, "app sandbox_image_unknown (guard), unused sandbox_image_unknown (guard)"),
        (APP._replace(pinned=True), "app pinned (kubelet), unused sandbox_image_unknown (guard)"),
        (
            APP._replace(pinned=True, repo_tags=("mirror.example/my-pause:3",)),
            "unused goes, app pinned (kubelet)",
        ),
    ):
        assert fates(plan(Listing((pinned, UNUSED)))) == expected


@rows("""
    entries      | known | listed | expected            | what
    plain        | 120   | 120    | goes                | exactly old enough
    plain        | 119   | 119    | too_young (kubelet) | too young
    plain        | 60    | 120    | too_young (guard)   | not to the kubelet
    plain        | 60    | 119    | too_young (kubelet) | to the kubelet too
    pinned       | 500   | 500    | pinned (kubelet)    | pinned
    plain pinned | 500   | 500    | pinned (kubelet)    | the later pin
    pinned plain | 500   | 500    | pinned (guard)      | the earlier pin is ours
    pinned kata  | 500   | 500    | pinned (guard)      | for one runtime handler
    plain kata   | 500   | 500    | goes                | for two, by one removal
""")
def test_why_an_image_stays(entries: str, known: float, listed: str, expected: str) -> None:
    """An age and a pin are the kubelet's, as far as it knows them; an id that is listed twice is
    one image. Seconds since it was first detected, and listed."""
    images = {"plain": UNUSED, "pinned": PINNED, "kata": KATA}
    record = ImageRecord(NOW - known, first_listed=NOW - float(listed))
    made = plan(
        listing(images=tuple(images[each] for each in entries.split())), {UNUSED.id: record}
    )
    assert fates(made) == f"unused {expected}"


def test_a_verdict_says_what_goes_and_a_plan_when_the_next_may() -> None:
    """Of two entries for one runtime handler the later has the size, of two for two the sum of
    theirs counts. An image without a record is seen for the first time. A plan waits for the next
    object, not for the last; an age that only the runtime tells is not the kubelet's."""
    for entries, size in (((UNUSED, UNUSED._replace(size_bytes=20)), 20), ((UNUSED, KATA), 30)):
        (verdict,) = plan(listing(images=entries), {UNUSED.id: ImageRecord(NOW - 500.0)}).remove
        assert (verdict.name, verdict.size_bytes, verdict.age_seconds, verdict.rule) == (
            *UNUSED.repo_tags,
            size,
            500.0,
            Rule.KUBELET,
        )
    new = plan_image_gc(listing(), {APP.id: ImageRecord(NOW - 30.0)}, POLICY, now=NOW)
    assert fates(new) == "app too_young (kubelet), unused too_young (kubelet)"
    assert new.eligible_in_seconds == 90.0
    told = plan(listing(), {UNUSED.id: ImageRecord(0.0, first_listed=NOW - 119.0)})
    assert [verdict.rule for verdict in told.remove] == [Rule.KUBELET, Rule.GUARD]


NOT_PULLED = ImageRecord(0.0, 5.0, pulled=False)
RECORDS = {
    "not-pulled": NOT_PULLED,
    "pulled": replace(NOT_PULLED, pulled=True),
    "unknown": replace(NOT_PULLED, pulled=None),
    "never-used": replace(NOT_PULLED, last_used=None),
}


@rows("""
    keep  | record     | part  | expected                            | what
    auto  | not-pulled | all   | app goes, unused goes               | last
    false | not-pulled | all   | unused goes, app goes               | like others
    true  | not-pulled | all   | app goes, unused not_pulled (guard) | never
    true  | unknown    | all   | unused goes, app goes               | it may have been pulled
    true  | pulled     | all   | unused goes, app goes               | it was
    true  | never-used | all   | unused goes, app goes               | it may be on its way to the first pod
    auto  | never-used | all   | unused goes, app goes               | the same
    auto  | not-pulled | first | app goes, unused not_pulled (guard) | held back until nothing else is enough
    auto  | not-pulled | last  | unused goes                         | and then alone
    auto  | not-pulled | age   | app goes, unused not_pulled (guard) | for its age nothing needs its space
    true  | not-pulled | age   | app goes, unused not_pulled (guard) | nor here
    false | not-pulled | age   | unused goes, app goes               | like others
    auto  | not-pulled | exact | app goes, unused goes               | a kubelet would remove it
""")
def test_an_image_that_the_kubelet_did_not_pull_goes_last_or_never(
    keep: str, record: str, part: str, expected: str
) -> None:
    """It was used last at 5 s, the other at 6 s."""
    records = {UNUSED.id: RECORDS[record], APP.id: ImageRecord(0.0, 6.0, pulled=True)}
    keeps: bool | Literal["auto"] = "auto" if keep == "auto" else keep == "true"
    policy = ImageGCPolicy(keep_not_pulled=keeps, max_age_seconds=60.0)
    made = plan(listing(), records, policy)
    if part in ("age", "exact"):
        made = plan_maximum_age(
            listing(), records, policy, now=NOW, started_at=0.0, exact=part == "exact"
        )
    elif part != "all":
        made = part_of(made, last=part == "last")
    assert fates(made) == expected


# ---- the newest of each repository


@rows("""
    count | records     | stays   | what
    0     | 1 2 3 4     | -       | none
    2     | 1 2 3 4     | 3 4     | those that were detected last
    9     | 1 2 3 4     | 1 2 3 4 | all
    2     | 5/9 5/8 5 5 | 1 2     | of those detected together, the ones used last
    1     | 5 5 5 5     | 4       | equals go by id
""")
def test_the_newest_of_a_repository_stay_and_the_older_ones_go(
    count: int, records: str, stays: str
) -> None:
    """By a guard of ours. Written as first detected/last used."""
    images = tuple(image(number, f"registry.example/app:{number}") for number in range(1, 5))
    known = dict[str, ImageRecord]()
    for each, times in zip(images, records.split(), strict=True):
        detected, _, used_at = times.partition("/")
        known[each.id] = ImageRecord(float(detected), float(used_at) if used_at else None)
    made = plan(listing(images=images), known, ImageGCPolicy(keep_newest_per_repository=count))
    newest = [each.id for each in made.keep if each.reason is Reason.NEWEST_OF_REPOSITORY]
    assert sorted(newest) == [image_id(int(number)) for number in stays.split() if number != "-"]
    assert len(made.remove) == 4 - len(newest)


@rows("""
    names                                 | repositories                | what
    busybox:1 docker.io/library/busybox:2 | docker.io/library/busybox   | short names
    localhost:5000/app@sha256:abc         | localhost:5000/app          | a digest
    a.example/app:old a.example/new:1     | a.example/app a.example/new | in two
    -                                     | -                           | in none
    <none>:<none> <none>@<none>           | -                           | as Docker lists it
""")
def test_the_repositories_of_an_image(names: str, repositories: str) -> None:
    """Whatever tag or digest; a short name is one of Docker Hub; one without a name is in none."""
    tags = names.replace("-", "").split()
    assert repositories_of(image(1, *tags)) == set(repositories.replace("-", "").split())


# ---- the maximum age


@rows("""
    known | unused | mode    | expected                      | what
    90000 | 3601   | guarded | maximum_age (kubelet) None    | longer
    90000 | 3600   | guarded | within_limit (kubelet) 0.0    | exactly as long
    90000 | 3599   | exact   | within_limit (kubelet) 1.0    | shorter
    3     | -      | exact   | maximum_age (kubelet) None    | never used is old
    3     | -      | guarded | too_young (guard) 117.0       | not to us
    120   | -      | guarded | within_limit (guard) 3480.0   | from its detection
    3600  | -      | guarded | within_limit (guard) 0.0      | exactly so long
    3601  | -      | guarded | maximum_age (kubelet) None    | by both readings
    60    | 1      | guarded | too_young (kubelet) 60.0      | the kubelet keeps it too
    60    | 1      | exact   | within_limit (kubelet) 3599.0 | no minimum age
    7199  | 3601   | old     | too_young (guard) 1.0         | a longer minimum age
    7200  | 3601   | old     | maximum_age (kubelet) None    | is inclusive
""")
def test_an_image_goes_for_its_age(known: float, unused: str, mode: str, expected: str) -> None:
    """So many seconds since its detection and its last use, by a maximum age of an hour; and how
    long it still has to wait. Exactly as the kubelet, or with our guards on age."""
    policy = ImageGCPolicy(min_age_seconds=7200.0 if mode == "old" else 120.0, max_age_seconds=3600)
    now = 100_000.0
    record = ImageRecord(now - known, None if unused == "-" else now - float(unused))
    alone = Listing((UNUSED,), sandbox_image_references=KNOWN)
    made = plan_maximum_age(
        alone, {UNUSED.id: record}, policy, now=now, started_at=0.0, exact=mode == "exact"
    )
    (verdict,) = (*made.remove, *made.keep)
    assert f"{verdict.reason} ({verdict.rule}) {verdict.eligible_in_seconds}" == expected


@rows("""
    uptime | maximum | sweeps
    60     | 60      |
    61     | 60      | yes
    61     | 0       |
""")
def test_there_is_no_sweep_until_the_loop_has_run_for_longer_than_the_maximum_age(
    uptime: float, maximum: float, sweeps: bool
) -> None:
    """Last uses may not be known yet. 0 is off: nothing is said of any image then."""
    policy = ImageGCPolicy(max_age_seconds=maximum)
    made = plan_maximum_age(listing(), {}, policy, now=NOW, started_at=NOW - uptime, exact=True)
    assert (made != Plan()) is sweeps


# ---- any node

numbers = range(1, 9)
tags = ["app:1", "app:2", "x:1"]
references = st.sampled_from([*map(image_id, numbers), *tags, bare_hex(image_id(3)), "gone:1"])
pins = st.sampled_from([False, False, False, False, True])


def listed_images(number: int) -> st.SearchStrategy[list[Image]]:
    """One or two entries of an image."""
    one = st.builds(image, st.just(number), st.sampled_from(tags), pinned=pins)
    return st.lists(one, min_size=1, max_size=2)


listings = st.builds(
    partial(Listing),  # of a named tuple it would draw all fields
    images=st.tuples(*map(listed_images, numbers)).map(lambda each: tuple(chain(*each))),
    containers=st.lists(
        st.builds(
            container,
            st.uuids().map(str),
            state=st.sampled_from(ContainerState),
            references=st.lists(references, min_size=1, max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    sandbox_image_references=st.sampled_from([frozenset(), frozenset({"x:1"}), None]),
)
times = st.sampled_from([0.0, 5.0, 9_000.0, 9_879.0, 9_880.0, 9_881.0, NOW])
histories = st.dictionaries(
    st.sampled_from([*map(image_id, numbers)]),
    st.builds(
        ImageRecord, times, st.none() | times, st.none() | times, pulled=st.none() | st.booleans()
    ),
    min_size=4,
)
KEEPS = {"app:1": {"app:1"}, "app": {"app:1", "app:2"}, "*:1": {"app:1", "x:1"}, "none": set()}
policies = st.builds(
    partial(ImageGCPolicy),  # of a named tuple it would draw all fields
    max_age_seconds=st.sampled_from([100.0, 500.0]),
    keep=st.sampled_from([*KEEPS, "none", "none"]).map(lambda entry: parse_keep_list([entry])),
    keep_not_pulled=st.sampled_from([True, False]),
    keep_newest_per_repository=st.integers(0, 2),
)


def used(listed: Listing) -> tuple[set[str], bool]:
    """Which images containers and sandboxes use, and whether all of that can be told."""
    found: dict[str, set[str]] = {}
    for each in listed.images:
        for name in (each.id, bare_hex(each.id), *each.repo_tags):
            found.setdefault(name, set()).add(each.id)
    said = [each.image_references for each in listed.containers]
    sandboxes = listed.sandbox_image_references
    told = sandboxes is not None
    for names in said:  # an id settles it; of tags, one is enough
        told &= any(name in found for name in [n for n in names if len(n) >= 64] or names)
    for name in sandboxes or ():  # a tag may not be pulled yet
        told &= name in found or len(name) < 64
    return set().union(
        *(found.get(name, set()) for name in (*chain(*said), *(sandboxes or ())))
    ), told


@given(listings, histories, policies, st.sampled_from(["space", "age", "exact"]))
def test_a_plan_is_the_kubelets_without_what_the_guards_keep(
    listed: Listing,
    records: dict[str, ImageRecord],
    policy: ImageGCPolicy,
    mode: str,
) -> None:
    """The kubelet's rule once more: what goes is never in use by its id nor pinned, for space older
    than the minimum age, for age unused for longer than the maximum age; the least recently used
    first. Beside it only what is used in other words, pinned by any entry, on the keep list, among
    the newest of a repository, young or not pulled stays, and each such verdict is a guard's."""
    last = {each.id: each for each in listed.images}
    ids, told = used(listed)
    known = {each: records.get(each) or ImageRecord(NOW) for each in last}
    first_said = {each.image_references[0] for each in listed.containers if each.image_references}

    def old(each: str, detected: float) -> tuple[bool, bool]:
        """Whether it is old enough for space, and for its age."""
        last_used = known[each].last_used
        unused = NOW - (detected if last_used is None else last_used)
        return NOW - detected >= 120.0, unused > policy.max_age_seconds

    kubelets, ours = set(), set()
    for each, record in known.items():
        for_space, for_age = old(each, record.first_detected)
        by_kubelet = record.last_used is None or for_age
        if mode == "space":
            by_kubelet = NOW - record.listed_since >= 120.0
        if (
            each not in first_said
            and not last[each].pinned
            and record.last_use < NOW
            and by_kubelet
        ):
            kubelets.add(each)
        if {"space": for_space, "age": for_space and for_age, "exact": by_kubelet}[mode]:
            ours.add(each)
    for repository in ("app", "x"):
        of_it = {each.id for each in listed.images if each.repo_tags[0].startswith(repository)}
        by_age = [(known[each].first_detected, known[each].last_use, each) for each in of_it]
        ours -= {each for *_, each in sorted(by_age)[::-1][: policy.keep_newest_per_repository]}
    ours -= ids | {
        each.id
        for each in listed.images
        if each.pinned
        or KEEPS[policy.keep.entries[0]].intersection(each.repo_tags)
        or known[each.id].last_use >= NOW
        or (policy.keep_not_pulled and known[each.id].not_pulled)
    }

    exact = mode == "exact"
    made = (
        plan_image_gc(listed, records, policy, now=NOW)
        if mode == "space"
        else plan_maximum_age(listed, records, policy, now=NOW, started_at=0.0, exact=exact)
    )
    order = sorted(ours, key=lambda each: (known[each].last_use, known[each].first_detected, each))
    assert removed(made) == (order if told else [])
    assert sorted([*removed(made), *(each.id for each in made.keep)]) == sorted(last)
    assert all((each.id in kubelets) is (each.rule is Rule.KUBELET) for each in made.remove)
    assert all(each.rule is Rule.GUARD for each in made.keep if each.id in kubelets)


# ---- how much a periodic pass has to free


@rows("""
    capacity            | available           | high | low | usage | target | what
    1000                | 150                 | 85   | 80  | 85    | 50     | exactly at the high mark
    1000                | 159                 | 85   | 80  | 85    | 41     | usage is rounded up
    1000                | 160                 | 85   | 80  | 84    | None   | below it
    999                 | 159                 | 85   | 80  | 85    | 40     | the target is rounded down
    1000                | 9                   | 100  | 80  | 100   | 191    | 100 acts below 1 % available
    1000                | 10                  | 100  | 80  | 99    | None   | not at 1 %
    1000                | 205                 | 80   | 80  | 80    | -5     | nothing may have to go
    1000                | 1200                | 85   | 80  | 0     | None   | more than there is
    1000                | None                | 85   | 80  | 100   | 200    | unknown is none
    1000                | -1                  | 85   | 80  | 100   | 200    | nor is less than none
    1000                | 1000                | 0    | 0   | 0     | 0      | everything is too much
    9223372036854775807 | 4611686018427387904 | 50   | 50  | 50    | -1     | integers
""")
def test_usage_is_rounded_up_and_the_target_is_the_low_mark(
    capacity: int, available: str, high: int, low: int, usage: int, target: str
) -> None:
    """Usage in percent and bytes to free, as the kubelet counts them, with both marks."""

    def number(text: str) -> int | None:
        return None if text == "None" else int(text)

    policy = ImageGCPolicy(high_threshold_percent=high, low_threshold_percent=low)
    decided = decide_space(number(available), capacity, policy)
    assert decided == SpaceDecision(usage, capacity, number(target))


@pytest.mark.regression
def test_less_than_the_target_is_an_event() -> None:
    """With its numbers; exactly the target is enough, a target of 0 is reached without any candidate,
    and below the high mark there is nothing to say."""
    full = SpaceDecision(usage_percent=91, capacity_bytes=40 * GIB, target_bytes=500)
    event = not_enough_freed(full, 123)
    assert event is not None
    assert event.reason == "FreeDiskSpaceFailed"
    assert "(91% of 40.0 GiB used)" in event.message
    assert event.values == {**full._asdict(), "freed_bytes": 123}
    for target, freed in ((500, 500), (0, 0), (-5, 0), (None, 0)):
        assert not_enough_freed(full._replace(target_bytes=target), freed) is None


@rows("""
    size_bytes       | text       | what
    0                | 0 B        | nothing
    1023             | 1023 B     | whole bytes
    1024             | 1.0 KiB    | one decimal
    1048575          | 1024.0 KiB | rounded up
    1048576          | 1.0 MiB    | a MiB
    2415919104       | 2.2 GiB    | rounded down
    5497558138880000 | 5000.0 TiB | the largest unit
""")
def test_sizes_for_people_have_one_decimal_from_1_kib_on(size_bytes: int, text: str) -> None:
    """As the kubelet writes them."""
    assert human_size(size_bytes) == text


@rows("""
    high | maximum | has_work
    100  | 0       |
    100  | 1       | yes
    99   | 0       | yes
""")
def test_only_a_high_mark_of_100_without_a_maximum_age_has_no_periodic_work(
    high: int, maximum: float, has_work: bool
) -> None:
    """Kubelet from v1.30 on: else the loop is started."""
    policy = ImageGCPolicy(max_age_seconds=maximum, high_threshold_percent=high)
    assert policy.has_periodic_work is has_work
