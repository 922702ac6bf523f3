"""Which images go, which stay and why, and in which order: beside the kubelet's own rule, and in
tables; how each is checked right before its removal, against fresh lists and what begins; and what
each form of entry of the keep-list keeps, what is refused, what it costs.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.references import bare_hex
from reclaim.function import ReclaimContext, Refused
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.keep_list import KEEP_NOTHING, LONGEST_ENTRY, parse_keep_list
from reclaim.images.plan import (
    ImageGCPolicy,
    SpaceDecision,
    decide_space,
    human_size,
    part_of,
    plan_image_gc,
    plan_maximum_age,
    repositories_of,
)
from reclaim.images.records import ImageRecords
from reclaim.types import (
    Action,
    ContainerState,
    Image,
    ImageRecord,
    Kind,
    Listing,
    Plan,
    PolicyError,
    Reason,
    Result,
    Rule,
    Verdict,
)
from tests.inline import configured, disk_with, run_stages
from tests.pure.contexts import context_of
from tests.pure.evidence.test_pods import Node as BeginningPods
from tests.pure.memory_runtime import MemoryPods
from tests.pure.values import MIB, container, image, image_id
from tests.rows import rows
from tests.work import lines_run

DIGEST, OTHER_DIGEST = ("sha256:" + digit * 64 for digit in "de")
APP = image(1, "docker.io/library/app:1", digests=(f"docker.io/library/app@{DIGEST}",))
UNUSED = image(5, "docker.io/library/unused:1", size_bytes=10)
LOADED = image(7, "app:1")  # from a file: it has a name and no digest
STRANDED = image(8)
PAUSE = image(9, "registry.k8s.io/pause:3.9")
KATA = UNUSED._replace(runtime_handler="kata", size_bytes=20)
PINNED = UNUSED._replace(pinned=True)
OLD = f"docker.io/library/app@{OTHER_DIGEST}"
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
    "other-tag@digest": f"app:other@{DIGEST}",
    "elsewhere@digest": f"elsewhere.io/a@{DIGEST}",
    "tag-and-other": f"app:1@{OTHER_DIGEST}",
    "lost-id": image_id(77),
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
    app                     | unused goes, app in_use (guard)             | `latest`
    other-tag@digest        | unused goes, app in_use (guard)             | a digest behind another tag
    elsewhere@digest        | unused goes, app in_use (guard)             | under another name
    alias                   | unused goes, app in_use (guard)             | the runtime knows
""")
def test_an_image_is_in_use_by_all_that_a_container_says(references: str, expected: str) -> None:
    """The kubelet compares the first reference with ids, as they are written; the rest is ours. An
    id that is listed settles which image it is. What is mounted is in use as well, and what the
    spec of a pod names; the kubelet knows that by containers only."""
    said = tuple(SAID.get(word, word) for word in references.split())
    app = APP._replace(repo_tags=(*APP.repo_tags, "docker.io/library/app:latest"))
    known: dict[str, Any] = {"images": (app, UNUSED), "resolved": {"alias": APP.id}}
    assert fates(plan(listing(said, **known))) == expected
    if len(said) == 1:
        mounts = listing((PAUSE.id,), image_volumes={"c0": (said,)}, **known)
        assert fates(plan(mounts)) == expected
        named = listing(named_images=frozenset(said), **known)
        assert fates(plan(named)) == expected.replace("kubelet", "guard")


@rows("""
    references     | answered       | goes                         | in_doubt                   | what
                   |                |                              | app loaded stranded unused | nothing is said
    gone:1         |                |                              | app loaded stranded unused | a tag that no image has
    gone:1         | gone:1         |                              | app loaded stranded unused | nor the runtime: it moved
    lost-id        |                |                              | app loaded stranded unused | an id that no image has
    app:1 lost-id  |                |                              | stranded unused            | an id must be known by itself
    other-digest   |                |                              | app loaded stranded unused | a digest is not settled by a tag
    tag-and-other  |                |                              | app loaded stranded unused | nor with that tag in it
    other-digest   | other-digest   | app                          |                            | any without a digest may be it
    lost-id gone:1 | lost-id gone:1 | app unused loaded stranded   |                            | an id that the runtime has not
""")
def test_one_container_whose_image_cannot_be_told_stops_everything(
    references: str, answered: str, goes: str, in_doubt: str
) -> None:
    """Nothing is assumed unused by guess. `answered`: what the runtime was asked for, and has not.
    Nor is what is mounted: that the container's own image is known settles nothing."""
    said, none = (
        tuple(SAID.get(word, word) for word in words.split()) for words in (references, answered)
    )
    images = (APP, UNUSED, LOADED, STRANDED)
    made = plan(listing(said, images=images, resolved=dict.fromkeys(none)))
    doubts = {NAMES[each.id] for each in made.keep if each.reason is Reason.UNRESOLVED_IMAGE}
    assert (doubts, [NAMES[each] for each in removed(made)]) == ({*in_doubt.split()}, goes.split())
    if said and not none:
        mounts = listing((PAUSE.id, "pause:1"), image_volumes={"c0": (said,)})
        assert removed(plan(mounts)) == []


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
    entries      | known | listed | unused | mode    | expected                      | what
    plain        | 120   | 120    |        | space   | unused (kubelet) None         | exactly old enough
    plain        | 119   | 119    |        | space   | too_young (kubelet) 1.0       | too young
    plain        | 60    | 120    |        | space   | too_young (guard) 60.0        | not to the kubelet
    plain        | 60    | 119    |        | space   | too_young (kubelet) 60.0      | to the kubelet too
    pinned       | 500   | 500    |        | space   | pinned (kubelet) None         | pinned
    plain pinned | 500   | 500    |        | space   | pinned (kubelet) None         | the later pin
    pinned plain | 500   | 500    |        | space   | pinned (guard) None           | the earlier pin is ours
    pinned kata  | 500   | 500    |        | space   | pinned (guard) None           | for one runtime handler
    plain kata   | 500   | 500    |        | space   | unused (kubelet) None         | for two, by one removal
    plain        | 90000 |        | 3601   | guarded | maximum_age (kubelet) None    | longer
    plain        | 90000 |        | 3600   | guarded | within_limit (kubelet) 0.0    | exactly as long
    plain        | 90000 |        | 3599   | exact   | within_limit (kubelet) 1.0    | shorter
    plain        | 3     |        |        | exact   | maximum_age (kubelet) None    | never used is old
    plain        | 3     |        |        | guarded | too_young (guard) 117.0       | not to us
    plain        | 120   |        |        | guarded | within_limit (guard) 3480.0   | from its detection
    plain        | 3600  |        |        | guarded | within_limit (guard) 0.0      | exactly so long
    plain        | 3601  |        |        | guarded | maximum_age (kubelet) None    | by both readings
    plain        | 60    |        | 1      | guarded | too_young (kubelet) 60.0      | the kubelet keeps it too
    plain        | 60    |        | 1      | exact   | within_limit (kubelet) 3599.0 | no minimum age
    plain        | 7199  |        | 3601   | old     | too_young (guard) 1.0         | a longer minimum age
    plain        | 7200  |        | 3601   | old     | maximum_age (kubelet) None    | is inclusive
""")
def test_why_an_image_goes_or_stays(
    entries: str, known: float, listed: float | None, unused: float | None, mode: str, expected: str
) -> None:
    """For space, or for a maximum age of an hour, exactly as the kubelet or with our guards on age;
    and how long it still has to wait. An age and a pin are the kubelet's, as far as it knows them;
    an id that is listed twice is one image. In seconds since it was first detected, listed, and
    used last."""
    now, images = 100_000.0, {"plain": UNUSED, "pinned": PINNED, "kata": KATA}
    since = (None if ago is None else now - ago for ago in (known, unused, listed))
    records = {UNUSED.id: ImageRecord(*since)}  # type: ignore[arg-type] # it has been detected
    alone = Listing(tuple(images[each] for each in entries.split()), sandbox_image_references=KNOWN)
    policy = ImageGCPolicy(min_age_seconds=7200.0 if mode == "old" else 120.0, max_age_seconds=3600)
    if mode == "space":
        made = plan_image_gc(alone, records, policy, now=now)
    else:
        exact = mode == "exact"
        made = plan_maximum_age(alone, records, policy, now=now, started_at=0.0, exact=exact)
    (verdict,) = (*made.remove, *made.keep)
    assert f"{verdict.reason} ({verdict.rule}) {verdict.eligible_in_seconds}" == expected


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

    kubelets, ours = set(), set()
    for each, record in known.items():
        detected, last_used = record.first_detected, record.last_used
        for_space = NOW - detected >= 120.0
        for_age = NOW - (detected if last_used is None else last_used) > policy.max_age_seconds
        by_kubelet = last_used is None or for_age
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
    1000                | 160                 | 85   | 80  | 84    |        | below it
    999                 | 159                 | 85   | 80  | 85    | 40     | the target is rounded down
    1000                | 9                   | 100  | 80  | 100   | 191    | 100 acts below 1 % available
    1000                | 10                  | 100  | 80  | 99    |        | not at 1 %
    1000                | 205                 | 80   | 80  | 80    | -5     | nothing may have to go
    1000                | 1200                | 85   | 80  | 0     |        | more than there is
    1000                |                     | 85   | 80  | 100   | 200    | unknown is none
    1000                | -1                  | 85   | 80  | 100   | 200    | nor is less than none
    1000                | 1000                | 0    | 0   | 0     | 0      | everything is too much
    9223372036854775807 | 4611686018427387904 | 50   | 50  | 50    | -1     | integers
""")
def test_usage_is_rounded_up_and_the_target_is_the_low_mark(
    capacity: int, available: int | None, high: int, low: int, usage: int, target: int | None
) -> None:
    """Usage in percent and bytes to free, as the kubelet counts them, with both marks."""
    policy = ImageGCPolicy(high_threshold_percent=high, low_threshold_percent=low)
    assert decide_space(available, capacity, policy) == SpaceDecision(usage, capacity, target)


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


PLANNED = Verdict(Kind.IMAGE, image_id(1), image_id(1), Action.REMOVE, Reason.UNUSED)
TOO_OLD_SECONDS = 0.3  # after which a list is not used any more


class Node(BeginningPods):
    """A runtime in memory with ten unused images of one repository, of which the first is the
    oldest, and two pods that have run for an hour."""

    def __init__(self, **slow: float) -> None:
        super().__init__()
        for uid in ("uid-old", "uid-touched"):
            self.runs(uid, "init")
        self.clock.step(3600.0)
        self.runtime.hold(*(image(number, f"app.test/app:{number}") for number in range(1, 11)))
        self.runtime.slow |= slow
        seed = {image_id(number): ImageRecord(float(number)) for number in range(1, 11)}
        self.records = ImageRecords(seed=seed)

    def images(self, newest: int = 0) -> UnusedImages:
        """The stage over images, with the lists of this moment."""
        policy = ImageGCPolicy(pod_start_seconds=0.0, keep_newest_per_repository=newest)
        stage = UnusedImages(self.context(images=policy))
        stage.plan()
        return stage

    def context(self, **fields: Any) -> ReclaimContext:
        """What a stage uses."""
        return context_of(self.runtime, self.clock, self.pods, records=self.records, **fields)

    def runs(self, uid: str, name: str, number: int = 2) -> None:
        """The directories of a pod and of its container, and then a container of an image, are
        made."""
        new = uid not in self.pods.begun
        self.happen(f"directory/{uid} empty/{uid} {name}/{uid}" if new else f"{name}/{uid}")
        of: dict[str, Any] = {"pod_uid": uid, "name": name, "sandbox_id": f"of {uid}"}
        references = (f"app.test/app:{number}",)
        self.lists(f"c{len(self.runtime.containers)}", image_references=references, **of)

    def removed(self, hold_off_seconds: float = 0.0) -> dict[int, Result | None]:
        """How the removals of a pass over all unused images end, by their numbers."""
        policy = ImageGCPolicy(pod_start_seconds=hold_off_seconds)
        result = run_stages(
            lambda facts: self.context(images=policy, facts=facts),
            self.clock,
            lambda context: (UnusedImages(context),),
            read=disk_with(lambda: (500 - len(self.runtime.images)) * MIB),
            configuration=configured(parallelRemovals=1),
        )
        ended = [*result.outcomes, *result.kept]
        return {int(each.verdict.id[7:15], 16): each.result for each in ended if each.result}

    def asked(self, call: str = "list_containers") -> int:
        """How often something was asked."""
        return self.runtime.calls.count(call)

    def on_status(self, number: int, do: Callable[[], object]) -> None:
        """Something happens while the status of this image is asked for."""
        self.runtime.on_call[f"image_status {image_id(number)}"] = do


@rows("""
    happens                                   | newest | answer               | what
    -                                         | 0      | ready                | nothing
    spec app.test/app:1                       | 0      | in_use               | a spec names it
    spec app.test/app:2                       | 0      | ready                | a spec names another
    runs 1                                    | 0      | in_use               | it is in use
    runs                                      | 0      | unresolved_image     | what is in use cannot be told
    gone 3 4 5 6 7 8                          | 2      | ready                | so many newer ones are there
    gone 2 3 4 5 6 7 8 9                      | 2      | newest_of_repository | a newer one has vanished
    tags 10 app.test/other:1                  | 9      | newest_of_repository | the name of a newer one has moved
    tags 1 app.test/app:1 app.test/promoted:1 | 1      | newest_of_repository | the newest of another
    spec renamed:1, tags 1 renamed:1          | 0      | in_use               | it was pulled by a new name since it was listed
""")
def test_an_image_that_is_wanted_by_now_is_kept(happens: str, newest: str, answer: str) -> None:
    """By a spec, by a container in any state, or as one of the newest of its repository: what has
    changed since the plan counts."""
    for state in ContainerState:
        node = Node()
        stage = node.images(newest=int(newest))
        node.clock.step(TOO_OLD_SECONDS)
        for each in happens.split(", "):
            match each.split():
                case ["spec", name]:
                    node.pods.named = frozenset({name, "not-pulled-yet:1"})
                case ["runs", *numbers]:
                    references = tuple(image_id(int(number)) for number in numbers)
                    node.runtime.hold(container("c", state=state, references=references))
                case ["gone", *numbers]:
                    for number in numbers:
                        del node.runtime.images[image_id(int(number))]
                case ["tags", number, *tags]:
                    node.runtime.hold(image(int(number), *tags))
        found = stage.check(PLANNED)
        assert (found.reason if isinstance(found, Refused) else "ready") == answer


# ---- slow lists, slow looks; pods and containers that begin beside a removal


class Unreadable(MemoryPods):
    """Directories of which nothing is known."""

    def pod_directories(self, since: float | None = None) -> None:  # type: ignore[override]
        """Nothing."""


@rows("""
    look_seconds | call_seconds | readable | becomes
    1.1          | 0            | yes      | REMOVED
    0            | 1.1          | yes      | REMOVED
    0            | 1.1          |          | PARKED
""")
def test_what_is_slower_than_a_list_may_be_old_keeps_no_image(
    look_seconds: float, call_seconds: float, readable: bool, becomes: Result
) -> None:
    """Each call, ImageStatus too, or each look at directories: that does not make the list too old,
    as the last look covers all of it; where no directory can be read nothing does."""
    node = Node()
    node.pods = node.pods if readable else Unreadable()
    node.pods.on_look = lambda: node.clock.step(look_seconds)
    node.runtime.call_seconds = call_seconds
    assert {*node.removed(1.0).values()} == {becomes}


@pytest.mark.parametrize("uid", ["uid-old", "uid-new"])
def test_a_container_that_begins_after_the_list_keeps_its_image(uid: str) -> None:
    """The next container of a pod that has run for an hour, as well as the first one of a new
    pod. All others go."""
    node = Node(list_containers=0.3)
    node.on_status(1, lambda: node.runs(uid, "next", 1))
    removed = node.removed()
    assert (removed.pop(1), {*removed.values()}) == (Result.IN_USE, {Result.REMOVED})


def test_a_directory_that_is_touched_again_and_again_discards_no_list() -> None:
    """All of its containers are listed: it says nothing, and the list of the plan serves all, which
    is read after that of images: the order that loses no container."""
    node = Node()
    for number in range(3, 11):
        node.on_status(number, lambda: node.pods.begun.update({"uid-touched": node.clock.wall()}))
    assert {*node.removed().values()} == {Result.REMOVED}
    calls = node.runtime.calls
    assert node.asked() == 1
    assert calls.index("list_images") < calls.index("list_containers")


@pytest.mark.parametrize("hold_off_seconds", [0.0, 1.0])
def test_where_containers_keep_beginning_images_go_by_a_list_of_their_own(
    hold_off_seconds: float,
) -> None:
    """One begins with every list, and is listed with the next: each image is stopped by the last
    look once."""
    node = Node(list_containers=0.3)
    node.runtime.on_call["list_containers"] = lambda: node.runs(f"uid-{node.asked()}", "app")
    removed = node.removed(hold_off_seconds)
    assert {*removed.values()} == {Result.REMOVED}
    assert node.asked() <= 4 * len(removed)


def test_a_list_that_is_too_old_by_its_end_is_not_enough() -> None:
    """Where containers keep beginning, and sandboxes take 1.5 s after them: the last look has
    stopped the image often enough, and sees one more that begins meanwhile. It is that of the
    image."""
    node, asked = Node(list_containers=0.3, list_pod_sandboxes=1.5), [0]

    def begins() -> None:
        asked[0] += 1
        node.runs(f"uid-{asked[0]}", "app", 1 if asked[0] == 4 else 2)

    node.runtime.on_call["list_pod_sandboxes"] = begins
    begins()
    assert node.removed(1.0)[1] != Result.REMOVED
    assert image_id(1) in node.runtime.images


BUSYBOX = image(
    1, "docker.io/library/busybox:1.36", digests=(f"docker.io/library/busybox@{DIGEST}",)
)
TEAM = image(2, "registry.example/team/app:stable")
NESTED = image(3, "registry.example/team/sub/app:1")
PORT = image(4, "localhost:5000/app:2")
DANGLING = image(5)
HUB_TEAM = image(6, "docker.io/team/app:1")
DIGEST_ONLY = image(7, digests=(f"registry.example/signed@{DIGEST}",))
ALL = (BUSYBOX, TEAM, NESTED, PORT, DANGLING, HUB_TEAM, DIGEST_ONLY)
NUMBERS = {one.id: number for number, one in enumerate(ALL, start=1)}


@rows("""
    entry                                   | kept          | what
    docker.io/library/busybox:1.36          | 1             | a tag, in full
    busybox:1.36                            | 1             | in Docker's short form
    library/busybox:1.36                    | 1             | in its longer one
    index.docker.io/library/busybox:1.36    | 1             | by the old registry
    busybox:1.37                            | -             | another tag
    busybox:latest                          | -             | no tag is not `latest`
    localhost:5000/app:2                    | 4             | a registry with a port
    team/app:1                              | 6             | of Docker Hub alone
    busybox                                 | 1             | a repository: every tag and digest
    docker.io/library/busybox               | 1             | in full
    localhost:5000/app                      | 4             | a port is no tag
    registry.example/team/app               | 2             | one repository
    registry.example/team                   | -             | no part of one
    registry.example/signed                 | 7             | by digest alone
    app                                     | -             | of Docker Hub alone
    DIGEST                                  | 1 7           | a digest, whatever the repository
    busybox@DIGEST                          | 1 7           | behind a repository
    busybox:1.36@DIGEST                     | 1 7           | behind a tag
    ID5                                     | 5             | an id
    HEX5                                    | 5             | a bare id
    OTHER                                   | -             | another digest
    registry.example/team/*                 | 2 3           | a glob crosses `/`
    registry.example/*                      | 2 3 7         | and `:`
    *:stable                                | 2             | by tag
    */app:*                                 | 2 3 4 6       | in the middle
    registry.example/*/app:1                | 3             | between
    *team*                                  | 2 3 6         | anywhere
    busybox:*                               | 1             | of a short name
    busy*                                   | 1             | of a part of it
    library/busy*                           | 1             | in its longer form
    docker.io/*                             | 1 6           | of Docker Hub
    team/*                                  | 6             | the same
    *@sha256:dddd*                          | 1 7           | of digests
    *                                       | 1 2 3 4 5 6 7 | everything
    **                                      | 1 2 3 4 5 6 7 | as well
    registry.example/team/app:stable*       | 2             | a star for nothing
    registry.example/team/app:stable*stable | -             | no overlap
    *stable*stable*                         | -             | nor here
""")
def test_what_an_entry_keeps(entry: str, kept: str) -> None:
    """By its form; and an entry that keeps nothing is reported."""
    for word, text in (
        ("DIGEST", DIGEST),
        ("OTHER", "sha256:" + "e" * 64),
        ("ID5", DANGLING.id),
        ("HEX5", DANGLING.id.removeprefix("sha256:")),
    ):
        entry = entry.replace(word, text)
    keep = parse_keep_list([entry])
    found = sorted(NUMBERS[image_id] for image_id in keep.kept_ids(ALL))
    assert found == [int(number) for number in kept.split() if number != "-"]
    assert keep.unmatched(ALL) == (() if found else (entry,))


def test_several_entries_keep_what_any_of_them_keeps() -> None:
    """And each is asked by itself whether it keeps anything."""
    keep = parse_keep_list(["busybox", "gone:1", "*:stable", "gone:1", "nothing/*"])
    assert keep.kept_ids(ALL) == {BUSYBOX.id, TEAM.id}
    assert keep.unmatched(ALL) == ("gone:1", "nothing/*")
    assert parse_keep_list([]) == KEEP_NOTHING


BAD = f"""BusyBox registry.example/Team/app:1 https://registry.example/app registry.example/team/
    busybox: busybox:-1 busy..box app? [ab]* sha256:abc sha256:{"D" * 64} busybox@sha512:{"d" * 64}
    busybox@{"d" * 64} BusyBox@{DIGEST} @{DIGEST} {"a" * (LONGEST_ENTRY + 1)}"""


@pytest.mark.parametrize("entry", ["", " busybox", "busybox\n", "app *", *BAD.split()])
def test_a_bad_entry_is_refused_in_a_sentence(entry: str) -> None:
    """It names the entry, and the allowed forms."""
    with pytest.raises(PolicyError) as refusal:
        parse_keep_list(["busybox", entry])
    sentence = str(refusal.value)
    assert sentence.startswith(repr(entry[:80])[:-1])
    for form in ("a reference", "a repository", "a digest", "a glob"):
        assert form in sentence


@pytest.mark.parametrize(
    "entry", ["registry.example/*/gone-{}:*", "*gone-{}*", "gone-{}", "sha256:{:064x}"]
)
def test_what_an_image_costs_does_not_grow_with_the_entries(entry: str) -> None:
    """Counted, not timed: all globs are one expression, and all other entries are looked up."""
    names = [f"registry.example/t-{number % 50}/app-{number}" for number in range(100)]
    listed = [
        image(number, f"{name}:v{number % 7}", digests=(f"{name}@{DIGEST}",))
        for number, name in enumerate(names, 1)
    ]
    keeps = [parse_keep_list(map(entry.format, range(count))) for count in (10, 100)]
    few, many = (lines_run(partial(keep.kept_ids, listed)) for keep in keeps)
    assert few == many <= 160 * len(listed)
    assert keeps[1].kept_ids(listed) == frozenset()


def test_no_glob_makes_matching_explode() -> None:
    """A glob as long as an entry may be, over a name as long: one search for each part, not one try
    for each way to place the stars, which would not end."""
    keep = parse_keep_list(["*a" * 250 + "*b*1"])
    long_name = Image(image_id(1), ("registry.example/b" + "a" * 490 + ":1",))
    assert keep.kept_ids([long_name]) == frozenset()
