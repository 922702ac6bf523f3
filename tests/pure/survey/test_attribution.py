"""Attribution: the parts add up, nothing counts twice, and what cannot be
attributed is in everything else.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records.attribution import About, Attribution, Remark, Share, Use
from eviction.records.json_shapes import to_json
from eviction.survey.open_files import HiddenSpace, OpenFile
from eviction.survey.space import Measured, attribute, class_of_log, sentence
from eviction.survey.trees import TreeUsage
from eviction.wording.explain import attribution_lines
from reclaim.types import Action, Amounts, Kind, Outcome, Reason, Result, Verdict
from signals.types import FilesystemRole, FsStats, SignalObservations
from tests.pure.values import GIB, MIB, observations_of, seen_filesystems

NODEFS, IMAGEFS, CONTAINERFS = (
    FilesystemRole.NODEFS,
    FilesystemRole.IMAGEFS,
    FilesystemRole.CONTAINERFS,
)


def filesystem(used_bytes: int) -> FsStats:
    """A filesystem of 10 GiB with so much used."""
    return FsStats(10 * GIB - used_bytes, 10 * GIB - used_bytes, 10 * GIB, 500, 1000, 0.0)


def seen(**devices: tuple[int, int]) -> SignalObservations:
    """Observations from role -> (device, used bytes)."""
    found = {
        FilesystemRole(role): (device, filesystem(used)) for role, (device, used) in devices.items()
    }
    return replace(observations_of(), filesystems=seen_filesystems(found))


ONE = seen(nodefs=(1, 8 * GIB), imagefs=(1, 8 * GIB), containerfs=(1, 8 * GIB))


def image(name: str, reason: Reason, size: int, result: Result | None = None) -> Outcome:
    action = Action.REMOVE if reason is Reason.UNUSED else Action.KEEP
    return Outcome(Verdict(Kind.IMAGE, name, name, action, reason, size), result)


def dead(name: str, reason: Reason = Reason.NEWEST_OF_LIVE_POD) -> Outcome:
    return Outcome(Verdict(Kind.CONTAINER, name, name, Action.KEEP, reason))


def counted(size: int, *, complete: bool = True) -> TreeUsage:
    return TreeUsage(1, {"all": size}, complete)


def having(**measured: Any) -> Measured:
    """Nothing was measured but this."""
    nothing = Measured(
        store_reported=None,
        store=TreeUsage(),
        content=TreeUsage(),
        writable_in_store=True,
        writable_layers={},
        kubelets=(),
        filesystems={},
        unseen=None,
    )
    return replace(nothing, **measured)


IMAGES = (
    image("used", Reason.IN_USE, GIB),
    image("old", Reason.UNUSED, 2 * GIB, Result.PLANNED),
    image("spare", Reason.RELIEVED, GIB),
    image("new", Reason.TOO_YOUNG, MIB),
    image("pause", Reason.PINNED, MIB),
    image("went", Reason.UNUSED, GIB, Result.REMOVED),
)


def shares(attribution: Attribution) -> dict[Use, int]:
    return {share.use: share.bytes for share in attribution.shares}


def test_images_are_classified_by_their_reason() -> None:
    """In use, removable (planned or not needed), too young, kept; removed
    images are not counted.
    """
    (answer,) = attribute(ONE, IMAGES, having())
    assert shares(answer) == {
        Use.IMAGES_IN_USE: GIB,
        Use.IMAGES_MAY_GO: 3 * GIB,
        Use.IMAGES_TOO_YOUNG: MIB,
        Use.IMAGES_KEPT: MIB,
        Use.ELSE: 8 * GIB - 4 * GIB - 2 * MIB,
    }
    assert {share.use: share.objects for share in answer.shares}[Use.IMAGES_MAY_GO] == 2
    assert answer.used == 8 * GIB


def test_the_classes_of_images_divide_the_size_of_the_store() -> None:
    """Sizes add up to 4 GiB, the store takes 2 GiB unpacked and 1 GiB compressed: each
    class counts three quarters.
    """
    images = (image("used", Reason.IN_USE, GIB), image("old", Reason.UNUSED, 3 * GIB))
    measured = having(store_reported=2 * GIB, content=counted(GIB))
    (answer,) = attribute(ONE, images, measured)
    assert shares(answer)[Use.IMAGES_IN_USE] == 3 * GIB // 4
    assert shares(answer)[Use.IMAGES_MAY_GO] == 9 * GIB // 4


PAUSE_BYTES = 4 * MIB


@pytest.mark.regression
def test_a_figure_of_the_runtime_that_is_out_of_date_is_not_believed() -> None:
    """It still reports 167 MiB; the store was counted, and holds the 4 MiB of
    the one image that is left.
    """
    images = (
        image("pause", Reason.PINNED, PAUSE_BYTES),
        image("went", Reason.UNUSED, 160 * MIB, Result.REMOVED),
    )
    measured = having(store_reported=167 * MIB, store=counted(PAUSE_BYTES))
    (answer,) = attribute(ONE, images, measured)
    assert shares(answer)[Use.IMAGES_KEPT] == PAUSE_BYTES


@pytest.mark.regression
@pytest.mark.parametrize(
    "content", [TreeUsage(), counted(0)], ids=["unpacked sizes", "compressed sizes"]
)
def test_what_is_being_freed_is_a_part_of_its_own(content: TreeUsage) -> None:
    """Removed images of 160 MiB have freed 16 MiB so far, and 4 MiB more came late, which the store
    no longer has: the pinned one does not take what is missing."""
    gone = replace(image("went", Reason.UNUSED, 160 * MIB, Result.REMOVED), freed=Amounts(16 * MIB))
    images = (image("pause", Reason.PINNED, PAUSE_BYTES), gone)
    store = 144 * MIB
    measured = having(store_reported=store, store=counted(store), content=content)
    (answer,) = attribute(ONE, images, measured)
    assert shares(answer)[Use.BEING_FREED] == 140 * MIB
    assert shares(answer)[Use.IMAGES_KEPT] == PAUSE_BYTES
    assert sum(shares(answer).values()) == answer.used


def test_images_that_shared_their_layers_are_not_being_freed() -> None:
    """Nine of 100 MiB have freed 10 MiB each; their base is that of the one in use, which
    explains the whole store.
    """
    gone = [
        replace(
            image(f"went {n}", Reason.UNUSED, 100 * MIB, Result.REMOVED), freed=Amounts(10 * MIB)
        )
        for n in range(9)
    ]
    (answer,) = attribute(
        ONE, (image("used", Reason.IN_USE, 100 * MIB), *gone), having(store_reported=100 * MIB)
    )
    assert Use.BEING_FREED not in shares(answer)
    assert shares(answer)[Use.IMAGES_IN_USE] == 100 * MIB


def test_content_that_cri_does_not_show_is_the_rest_of_the_store() -> None:
    """2 GiB of snapshots that the runtime does not report, 1 GiB of blobs beyond
    all sizes: at least 3 GiB.
    """
    images = (image("used", Reason.IN_USE, GIB),)
    measured = having(
        store_reported=GIB, store=counted(3 * GIB, complete=False), content=counted(2 * GIB)
    )
    (answer,) = attribute(ONE, images, measured)
    assert shares(answer) == {Use.IMAGES_IN_USE: 2 * GIB, Use.HIDDEN: 3 * GIB, Use.ELSE: 3 * GIB}
    assert next(share for share in answer.shares if share.use is Use.HIDDEN).at_least


def test_writable_layers_are_no_images() -> None:
    """If they are in the store, they are subtracted from its size; those of dead
    containers are a part of their own.
    """
    measured = having(store_reported=3 * GIB, writable_layers={"live": GIB, "dead": MIB})
    (answer,) = attribute(ONE, (image("used", Reason.IN_USE, 5 * GIB), dead("dead")), measured)
    assert shares(answer)[Use.IMAGES_IN_USE] == 2 * GIB - MIB
    assert shares(answer)[Use.CONTAINERS_LIVE] == GIB
    assert shares(answer)[Use.CONTAINERS_DEAD] == MIB


def test_each_filesystem_has_the_parts_that_are_on_it() -> None:
    """Split layout: images alone; writable layers, volumes and logs with the kubelet's data."""
    split = seen(nodefs=(1, 5 * GIB), imagefs=(2, 4 * GIB), containerfs=(1, 5 * GIB))
    measured = having(
        store_reported=GIB,
        writable_in_store=False,
        writable_layers={"live": 2 * GIB},
        kubelets=(
            TreeUsage(1, {Use.LOGS_LIVE: MIB, Use.LOGS_ROTATED: 2 * MIB}, complete=True),
            TreeUsage(1, {Use.VOLUMES: 3 * MIB}, complete=True),
        ),
    )
    node, images = attribute(split, (image("used", Reason.IN_USE, GIB),), measured)
    assert (node.filesystems, images.filesystems) == ((NODEFS, CONTAINERFS), (IMAGEFS,))
    assert shares(images) == {Use.IMAGES_IN_USE: GIB, Use.ELSE: 3 * GIB}
    assert shares(node) == {
        Use.CONTAINERS_LIVE: 2 * GIB,
        Use.VOLUMES: 3 * MIB,
        Use.LOGS_ROTATED: 2 * MIB,
        Use.LOGS_LIVE: MIB,
        Use.ELSE: 3 * GIB - 6 * MIB,
    }


def test_logs_on_another_disk_are_not_counted_here() -> None:
    """With /var/log on a disk of its own, logs are no part of nodefs."""
    measured = having(kubelets=(TreeUsage(9, {Use.LOGS_LIVE: GIB}, complete=True),))
    (answer,) = attribute(ONE, (), measured)
    assert shares(answer) == {Use.ELSE: 8 * GIB}


def test_images_that_a_pass_did_not_judge_are_one_part() -> None:
    """A pass that calls only DeleteAllUnusedContainers has no verdicts on images;
    they count as not judged.
    """
    (answer,) = attribute(ONE, (), having(store_reported=2 * GIB, content=counted(GIB)))
    assert shares(answer)[Use.IMAGES_UNJUDGED] == 3 * GIB


SIZES = st.integers(0, 20 * GIB)


@given(
    used=SIZES,
    sizes=st.lists(st.tuples(st.sampled_from(list(Reason)), SIZES), max_size=6),
    reported=st.none() | SIZES,
    store=st.none() | SIZES,
    content=st.none() | SIZES,
    layers=st.dictionaries(st.sampled_from("abc"), SIZES),
)
def test_no_part_is_negative_and_the_parts_are_all_that_is_used(
    used: int,
    sizes: list[tuple[Reason, int]],
    reported: int | None,
    store: int | None,
    content: int | None,
    layers: dict[str, int],
) -> None:
    """For any measurement: everything else is the rest, and 0 where the parts
    exceed what is used.
    """
    measured = having(
        store_reported=reported,
        store=TreeUsage() if store is None else counted(store),
        content=TreeUsage() if content is None else counted(content),
        writable_layers=layers,
    )
    node = seen(
        nodefs=(1, min(used, 10 * GIB)),
        imagefs=(1, min(used, 10 * GIB)),
        containerfs=(1, min(used, 10 * GIB)),
    )
    outcomes = [image(str(number), reason, size) for number, (reason, size) in enumerate(sizes)]
    (answer,) = attribute(node, outcomes, measured)
    assert all(share.bytes >= 0 for share in answer.shares)
    others = sum(share.bytes for share in answer.shares if share.use is not Use.ELSE)
    assert shares(answer)[Use.ELSE] == max(answer.used - others, 0)
    assert [share.use for share in answer.shares].count(Use.ELSE) == 1


@pytest.mark.parametrize(
    ("names", "use"),
    [
        (("default_web_uid-live", "app", "0.log"), Use.LOGS_LIVE),
        (("default_web_uid-live", "app", "0.log.20260101-120000"), Use.LOGS_ROTATED),
        (("default_web_uid-live", "app", "0.log.20260101-120000.gz"), Use.LOGS_ROTATED),
        (("default_web_uid-gone", "app", "0.log"), Use.LOGS_OF_GONE_PODS),
        (("default_web_uid-gone", "app", "0.log.20260101-120000"), Use.LOGS_OF_GONE_PODS),
        (("default_web_uid-gone",), Use.LOGS_OF_GONE_PODS),
        (("default_web_uid-live", "app.log.d", "0.log"), Use.LOGS_LIVE),
        (("stray.log.1",), Use.LOGS_LIVE),
    ],
)
def test_a_log_is_live_rotated_or_of_a_gone_pod(names: tuple[str, ...], use: Use) -> None:
    """By the pod's UID in the name of its directory, and the kubelet's names of rotated logs."""
    assert class_of_log(names, lambda uid: uid == "uid-gone") is use


@pytest.mark.parametrize("use", Use)
def test_every_part_has_a_description_and_a_remedy(use: Use) -> None:
    """Each says what can be done about it."""
    assert use.words
    assert use.remedy


UNSEEN = Remark(About.PROCESSES_NOT_SEEN, None, "1 of 2 processes could not be looked at")


@pytest.mark.parametrize(
    ("deleted", "unreadable", "share", "rest"),
    [
        (3 * GIB, 0, Share(Use.DELETED_OPEN, 3 * GIB), 5 * GIB),
        (3 * GIB, 1, Share(Use.DELETED_OPEN, 3 * GIB, None, at_least=True), 5 * GIB),
        (9 * GIB, 0, Share(Use.DELETED_OPEN, 8 * GIB), 0),
    ],
)
def test_deleted_files_that_are_open_are_a_part_of_their_own(
    deleted: int, unreadable: int, share: Share, rest: int
) -> None:
    """They are in no directory, so they are taken from everything else; never more than there is.
    Where a process could not be looked at they are a lower bound."""
    files = (
        OpenFile("/gone", 7, "java", "", deleted, deleted=True),
        OpenFile("/wal", 7, "java", "", GIB, deleted=False),
    )
    unseen = UNSEEN if unreadable else None
    (found,) = attribute(
        ONE, (), having(filesystems={1: HiddenSpace(open_files=files)}, unseen=unseen)
    )
    assert share in found.shares
    assert shares(found)[Use.ELSE] == rest
    assert sum(shares(found).values()) == found.used


def test_remarks_go_with_their_filesystem() -> None:
    """They are below the table, and in JSON; they change no part.

    Who was not seen is said of the first one only.
    """
    apart = seen(nodefs=(1, 8 * GIB), imagefs=(2, 8 * GIB), containerfs=(2, 8 * GIB))
    gone = OpenFile("/gone", 7, "a\x1b", "", GIB, deleted=True)
    spaces = {1: HiddenSpace(), 2: HiddenSpace(open_files=(gone,))}
    first, second = attribute(apart, (), having(filesystems=spaces))
    assert first.remarks == ()
    (remark,) = second.remarks
    assert attribution_lines(second)[-1].startswith("note: a\\x1b (pid 7) holds 1.0GiB ")
    assert to_json(second)["remarks"] == [
        {"about": "deleted_open", "bytes": GIB, "at_least": False, "sentence": remark.sentence}
    ]
    first, second = attribute(apart, (), having(filesystems=spaces, unseen=UNSEEN))
    assert first.remarks == (UNSEEN,)
    assert second.remarks == (remark,)


FULL = Attribution(
    "/var/lib/kubelet",
    (NODEFS, IMAGEFS),
    10 * GIB,
    8 * GIB,
    (
        Share(Use.IMAGES_IN_USE, GIB, 3),
        Share(Use.LOGS_LIVE, MIB, None, at_least=True),
        Share(Use.ELSE, 7 * GIB - MIB),
    ),
)


def test_the_sentence_names_the_largest_parts() -> None:
    """Largest first; a lower bound says so."""
    assert (
        sentence(FULL)
        == "of 8.0GiB used on /var/lib/kubelet: everything else 7.0GiB, images in use 1.0GiB, "
        "logs of live pods at least 1.0MiB"
    )


def test_the_table_says_what_can_be_done() -> None:
    """Size, share of what is used, number of objects, words and remedy."""
    lines = attribution_lines(FULL)
    assert (
        lines[0]
        == "where the bytes are: 8.0GiB of 10.0GiB used on /var/lib/kubelet (nodefs, imagefs)"
    )
    assert lines[2].split()[:6] == ["1.0GiB", "12%", "3", "images", "in", "use"]
    assert lines[3].startswith(">= 1.0MiB")
    assert len(lines) == 5


def test_the_json_form_has_the_same() -> None:
    """Bytes as integers, the word of the use, the remedy."""
    document = json.loads(json.dumps(to_json(FULL)))
    assert (document["path"], document["filesystems"]) == (
        "/var/lib/kubelet",
        ["nodefs", "imagefs"],
    )
    assert (document["capacity"], document["used"]) == (10 * GIB, 8 * GIB)
    assert document["shares"][0] == {
        "use": "images_in_use",
        "bytes": GIB,
        "objects": 3,
        "at_least": False,
        "remedy": Use.IMAGES_IN_USE.remedy,
    }
