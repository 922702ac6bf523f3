"""Which thresholds are met and acted on, what is reported, which row is called; how fast what is
available falls, and when to look again.

Source: kubelet, `pkg/kubelet/eviction/eviction_manager.go` (synchronize, reclaimNodeLevelResources)
and `pkg/kubelet/eviction/helpers.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.headroom import (
    PollPolicy,
    faster,
    levels_to_watch,
    near_their_marks,
    observation_interval,
    update_fill_rates,
    urgency,
    with_needed,
)
from eviction.decision.reclaim_table import RECLAIM_TABLE, RowEntry, Rows, row
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.decision.thresholds import (
    highest_mark,
    thresholds_met,
    update_container_fs_thresholds,
)
from eviction.types import NodeCondition, Threshold
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES, NEVER
from signals.interval import FillRate
from signals.types import (
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    Poll,
    Signal,
    SignalObservation,
    SignalObservations,
)
from tests.pure.values import (
    GIB,
    MIB,
    filling,
    observation,
    observations_of,
    stats,
    threshold,
    value,
)
from tests.rows import rows, rows_of

NODEFS, INODES, IMAGEFS = KUBELET_SIGNALS[:3]
SHORT = {DELETE_ALL_UNUSED_CONTAINERS: "C", DELETE_UNUSED_IMAGES: "I"}
REPORTED = {NodeCondition.RECLAIM_PRESSURE: "ours", NodeCondition.DISK_PRESSURE: "kubelet"}


# ---- stories of several passes, each a table


def threshold_of(text: str) -> Threshold:
    """`nodefs.available < 1Gi, grace 120, reclaim 500Mi, margin 5Gi`."""
    mark, *more = text.split(", ")
    signal, least = mark.split(" < ")
    words = dict(each.split() for each in more)
    margin = value(words["margin"]) if "margin" in words else None
    one = threshold(
        Signal(signal),
        least,
        grace_seconds=float(words.get("grace", 0)),
        min_reclaim=words.get("reclaim", ""),
    )
    return replace(one, margin=margin)


def reading_of(signal: Signal, text: str, now: float) -> SignalObservation:
    """`0`, `0 stale`, `5Gi of 80Gi` (else of 100Gi), `0 at 5`: read at 5 s (else just now), `2Gi
    needs 3Gi`: for what is coming."""
    available, *words = text.split()
    told = dict(zip(words[::2], words[1::2], strict=False))
    sizes = (available, told.get("of", "100Gi"), told.get("needs", "0"))
    amount, capacity, needed = (int(value(size).amount(0)) for size in sizes)
    time = float(told.get("at", now))
    one = observation(signal, amount, capacity, time=time, stale="stale" in words)
    return one._replace(needed=needed)


def assert_story(story: str) -> None:
    """Above the table are the configuration and the thresholds by name, the kubelet's own too. Each
    line of the table is one pass: what is read, and what is decided. `acts on`: the threshold that
    is acted on, and further ones that could be."""
    above, _, table = story.strip().partition("at ")
    given = dict(line.strip().split(": ") for line in above.splitlines() if line.strip())
    seconds = {name: float(given.pop(name)) for name in [*given] if name.endswith("_seconds")}
    named = {name: threshold_of(text) for name, text in given.items()}
    kubelets = tuple(one for name, one in named.items() if name.startswith("kubelet"))
    ours = tuple(one for name, one in named.items() if not name.startswith("kubelet"))
    config = EvictionConfig(ours, kubelets=kubelets or None, rows=OWN_ROW)._replace(**seconds)  # type: ignore[arg-type] # as named
    state = ManagerState(config)

    def names(thresholds: Sequence[Threshold]) -> str:
        known = {one: name for name, one in named.items()}
        return " ".join(known.get(one, f"{one.signal} < {one.value}") for one in thresholds)

    for told in rows_of("at " + table):
        now, layout = float(told["at"]), told.get("layout", "single")
        if "in force" in told:
            thresholds = tuple(named[name] for name in told["in force"].split())
            state = state._replace(config=state.config._replace(thresholds=thresholds))
        read = [
            reading_of(Signal(name), text, now)
            for name, text in told.items()
            if "." in name and text
        ]
        observations = observations_of(
            *read, time=now, layout=None if layout == "unknown" else FsLayout(layout)
        )
        state, decision = synchronize(state, observations, now)
        acted_on = () if decision.acted_on is None else (decision.acted_on, *decision.others)
        decided = {
            "reported": " ".join(
                word for each, word in REPORTED.items() if each in decision.conditions
            ),
            "met": names(decision.thresholds_met),
            "acts on": names(acted_on),
            "row": " ".join(map(SHORT.__getitem__, decision.row)),
        }
        for name in decided.keys() & told.keys():
            assert (now, name, decided[name]) == (now, name, told[name])


def told(stories: Mapping[str, str]) -> pytest.MarkDecorator:
    """One test for each of these stories."""
    return pytest.mark.parametrize("story", stories.values(), ids=stories)


@told(
    {
        "a hard threshold acts at once, below its mark, not at it": """
            hard: nodefs.available < 1Gi
            at | nodefs.available | reported | met  | acts on | row
             0 | 1Gi              |          |      |         |
            10 | 1073741823       | ours     | hard | hard    | C I
        """,
        "a soft one is reported at once and acts after its grace, inclusively": """
            soft: nodefs.available < 1Gi, grace 120
            at    | nodefs.available | reported | met  | acts on
            0     | 0                | ours     | soft |
            119.9 | 0                | ours     | soft |
            120   | 0                | ours     | soft | soft
        """,
        "with a grace of 0 it is hard": """
            soft: nodefs.available < 1Gi, grace 0
            at | nodefs.available | acts on
             0 | 0                | soft
        """,
        "one pass without pressure starts its grace over": """
            soft: nodefs.available < 1Gi, grace 120
            at  | nodefs.available | acts on
            0   | 0                |
            100 | 1Gi              |
            110 | 0                |
            229 | 0                |
            230 | 0                | soft
        """,
        "each signal has a grace of its own": """
            a: nodefs.available < 1Gi, grace 120
            b: imagefs.available < 1Gi, grace 120
            at    | nodefs.available | imagefs.available | acts on
            0     | 0                | 1Gi               |
            60    | 0                | 0                 |
            120   | 0                | 0                 | a
            179.9 | 1Gi              | 0                 |
            180   | 1Gi              | 0                 | b
        """,
        "and each of several thresholds of one signal": """
            hard: nodefs.available < 1Gi
            soft: nodefs.available < 2Gi, grace 60
            at | nodefs.available | met       | acts on
            0  | 1.5Gi            | soft      |
            10 | 0.5Gi            | hard soft | hard
            60 | 1.5Gi            | soft      | soft
        """,
        "a percentage follows a filesystem that is resized": """
            hard: nodefs.available < 10%
            at | nodefs.available | acts on
            0  | 9Gi of 100Gi     | hard
            10 | 9Gi of 80Gi      |
            20 | 9Gi of 200Gi     | hard
        """,
        "of a filesystem without inodes a share is never met, a number always": """
            share: nodefs.inodesFree < 5%
            number: nodefs.inodesFree < 1
            at | nodefs.inodesFree | met
             0 | 0 of 0            | number
        """,
        "what is coming meets hard ones only": """
            hard: nodefs.available < 1Gi
            soft: nodefs.available < 1Gi, grace 60
            at | nodefs.available | met
            0  | 2Gi needs 2Gi    |
            10 | 2Gi needs 3Gi    | hard
        """,
        "without thresholds there is no pressure": """
            at | nodefs.available | reported | met | acts on | row
             0 | 0                |          |     |         |
        """,
    }
)
def test_a_threshold_acts_below_its_mark_once_its_grace_is_over(story: str) -> None:
    """Each with the passes on either side of its limit."""
    assert_story(story)


@told(
    {
        "until mark and minimum reclaim are reached, never from above": """
            hard: nodefs.available < 1Gi, reclaim 500Mi
            at | nodefs.available | met  | acts on
            0  | 1073741825       |      |
            10 | 1073741823       | hard | hard
            20 | 1100Mi           | hard | hard
            30 | 1598029823       | hard | hard
            40 | 1524Mi           |      |
            50 | 1100Mi           |      |
        """,
        "not a soft one in its grace": """
            soft: nodefs.available < 1Gi, grace 120, reclaim 500Mi
            at | nodefs.available | met
            0  | 0                | soft
            10 | 1Gi              |
        """,
        "a soft one after its grace, without another grace": """
            soft: nodefs.available < 1Gi, grace 30, reclaim 500Mi
            at | nodefs.available | acts on
            0  | 0                |
            30 | 0                | soft
            40 | 1025Mi           | soft
            50 | 1524Mi           |
            60 | 0                |
        """,
        "it holds the condition, too": """
            transition_period_seconds: 15
            hard: nodefs.available < 1Gi, reclaim 500Mi
            at | nodefs.available | reported
            0  | 0                | ours
            10 | 1025Mi           | ours
            20 | 1025Mi           | ours
            30 | 1524Mi           | ours
            35 | 1524Mi           |
        """,
        "on 0 % it never triggers": """
            hard: nodefs.available < 0.0%, reclaim 1Gi
            at | nodefs.available | met
             0 | 0                |
        """,
        "one that no filesystem can have is left out": """
            more: nodefs.available < 1Gi, reclaim 500%
            as-much: nodefs.available < 1Gi, reclaim 99Gi
            at | nodefs.available | acts on
            0  | 0                | more as-much
            10 | 1073741823       | more as-much
            20 | 1Gi              |
        """,
        "so is a margin": """
            more: nodefs.available < 10Gi, margin 500Ti
            as-much: nodefs.available < 10Gi, margin 90Gi
            shares: nodefs.available < 60%, margin 50%
            at | nodefs.available | met
            0  | 64424512000      |
            10 | 10Gi             | shares
            20 | 10737418239      | more as-much shares
        """,
        "what a reload has removed is neither held nor frozen": """
            a: nodefs.available < 1Gi, reclaim 500Mi
            b: imagefs.available < 1Gi
            c: nodefs.inodesFree < 1
            at | in force | nodefs.available | imagefs.available | met
            0  | a b      | 0                | 0                 | a b
            10 | c        | 1025Mi           | 0 stale           |
        """,
    }
)
def test_minimum_reclaim_keeps_an_acted_on_threshold_met(story: str) -> None:
    """It is on top of the mark of a threshold that was acted on, and of no other."""
    assert_story(story)


@told(
    {
        "grace starts over": """
            longest_gap_seconds: 30
            soft: nodefs.available < 1Gi, grace 60
            at  | nodefs.available | acts on
            0   | 0                |
            30  | 0                |
            130 | 0                |
            160 | 0                |
            189 | 0                |
            190 | 0                | soft
        """,
        "passes that could read nothing are no gap": """
            longest_gap_seconds: 30
            soft: nodefs.available < 1Gi, grace 60
            at | nodefs.available | acts on
            0  | 0                |
            20 | 0 stale          |
            40 | 0 stale          |
            60 | 0                | soft
        """,
        "a hard threshold acts on what is read": """
            longest_gap_seconds: 30
            hard: nodefs.available < 1Gi
            at   | nodefs.available | acts on
            0    | 1Gi              |
            1000 | 0                | hard
        """,
    }
)
def test_after_a_gap_without_observations_grace_starts_over(story: str) -> None:
    """The process was stopped, or the machine suspended, for longer than 30 s."""
    assert_story(story)


@told(
    {
        "a reading is new if it is newer than that of the pass before": """
            hard: nodefs.available < 1Gi
            at | nodefs.available | acts on
            20 | 0 at 10          | hard
            21 | 0 at 5           |
            22 | 0 at 6           | hard
            23 | 0 at 6           |
        """,
        "or if that had none": """
            hard: nodefs.available < 1Gi
            at | nodefs.available | imagefs.available | acts on
            6  | 0 at 5           |                   | hard
            7  |                  | 1Gi               |
            8  | 0 at 5           |                   | hard
        """,
        "a repeated one counts for everything but acting": """
            soft: imagefs.available < 1Gi, grace 20
            at | imagefs.available | reported | met  | acts on
            2  | 0 at 1            | ours     | soft |
            12 | 0 at 1            | ours     | soft |
            22 | 0 at 1            | ours     | soft |
            32 | 0                 | ours     | soft | soft
        """,
        "a stale one is no pressure": """
            a: nodefs.available < 1Gi
            b: imagefs.available < 1Gi
            at | nodefs.available | imagefs.available | reported | met
            0  | 0 stale          |                   |          |
            10 | 0 stale          | 0                 | ours     | b
        """,
        "a filesystem that cannot be read freezes its own thresholds only": """
            transition_period_seconds: 15
            a: nodefs.available < 1Gi
            b: imagefs.available < 1Gi
            at | nodefs.available | imagefs.available | reported | met | acts on
            0  | 50Gi             | 0                 | ours     | b   | b
            30 | 0                | 0 stale           | ours     | a b | a
            60 | 50Gi             | 0 stale           | ours     | b   |
        """,
        "a pass that could read nothing changes nothing": """
            soft: nodefs.available < 1Gi, grace 60
            at  | nodefs.available | reported | met  | acts on
            0   | 0                | ours     | soft |
            400 | 50Gi stale       | ours     |      |
            401 | 0                | ours     | soft | soft
        """,
        "a grace that ends meanwhile is not served before the next reading": """
            soft: imagefs.available < 1Gi, grace 25, reclaim 5%
            at | imagefs.available | nodefs.available | acts on
            1  | 0                 |                  |
            26 | 0 stale           | 0                |
            27 | 1Gi               |                  |
        """,
        "thresholds are in the order met, unresolved, unreadable, each once": """
            inodes: nodefs.inodesFree < 5
            images: imagefs.available < 1Gi, reclaim 500Mi
            space: nodefs.available < 1Gi
            at | nodefs.inodesFree | imagefs.available | nodefs.available | met
            0  | 0                 | 0                 | 1Gi              | inodes images
            10 | 0 stale           | 1Gi               | 0                | space images inodes
            20 | 9                 | 0                 | 0                | images space
        """,
    }
)
def test_only_a_new_reading_is_acted_on_and_one_that_failed_changes_nothing(story: str) -> None:
    """Readings repeat, go back, fail, and come again."""
    assert_story(story)


@told(
    {
        "ours lasts the transition period, and a relapse acts at once": """
            transition_period_seconds: 300
            hard: nodefs.available < 1Gi, reclaim 500Mi
            at    | nodefs.available | reported | acts on
            0     | 16Gi             |          |
            60    | 750Mi            | ours     | hard
            70    | 16Gi             | ours     |
            359.9 | 16Gi             | ours     |
            360   | 16Gi             |          |
            420   | 750Mi            | ours     | hard
            430   | 1100000000       | ours     | hard
            440   | 16Gi             | ours     |
            450   | 0                | ours     | hard
        """,
        "each has its own mark, the kubelet's no transition period": """
            ours: nodefs.available < 10Gi, margin 5Gi
            kubelets: nodefs.available < 10Gi, reclaim 2Gi
            at  | nodefs.available | reported
            0   | 15Gi             |
            10  | 16106127359      | ours
            20  | 10Gi             | ours
            30  | 10737418239      | ours kubelet
            40  | 50Gi             | ours
            329 | 50Gi             | ours
            330 | 50Gi             |
        """,
        "a soft threshold of the kubelet's raises it at once": """
            ours: nodefs.available < 15Gi
            kubelets: nodefs.available < 12Gi, grace 90
            at | nodefs.available | reported
             0 | 11Gi             | ours kubelet
        """,
        "a reading that fails neither raises nor ends the kubelet's": """
            ours: nodefs.available < 15Gi
            kubelets: nodefs.available < 10Gi
            kubelets-images: imagefs.available < 15%
            at | nodefs.available | imagefs.available | reported
            0  | 5Gi stale        | 50Gi              |
            10 | 5Gi              |                   | ours kubelet
            20 | 5Gi stale        | 50Gi              | ours kubelet
            30 | 50Gi             |                   | ours
        """,
        "nothing is said of a kubelet whose marks are not known": """
            ours: nodefs.available < 15Gi
            at | nodefs.available | reported
             0 | 0                | ours
        """,
        "the pressure of a filesystem of one's own is not the node's": """
            own: buildcache.available < 10%
            at | buildcache.available | reported | acts on
             0 | 5Gi                  |          | own
        """,
    }
)
def test_each_condition_is_reported_by_its_own_marks(story: str) -> None:
    """ReclaimPressure by ours, DiskPressure by the kubelet's, which lie lower."""
    assert_story(story)


@told(
    {
        "the largest deficit relative to its mark, and only those whose grace is over": """
            small: nodefs.available < 10Gi
            large: imagefs.available < 2Gi
            soft: imagefs.available < 3Gi, grace 60
            at | nodefs.available | imagefs.available | met              | acts on
             0 | 9Gi              | 1Gi               | small large soft | large small
        """,
        "of equal ones in the order of the signals, hard before soft": """
            images: imagefs.available < 2Gi
            soft: nodefs.available < 2Gi, grace 60
            hard: nodefs.available < 2Gi
            at | nodefs.available | imagefs.available | acts on
            0  | 1Gi              | 1Gi               | hard images
            60 | 1Gi              | 1Gi               | hard soft images
        """,
        "not what nothing relieves, however large its deficit": """
            own: nodefs.available < 10Gi
            inodes: nodefs.inodesFree < 100
            images: imagefs.available < 10Gi
            at | layout            | nodefs.available | nodefs.inodesFree | imagefs.available | acts on           | row
            0  | dedicated-imagefs | 5Gi              | 1                 | 9Gi               | images inodes own | C I
            10 | dedicated-imagefs | 5Gi              | 1                 | 50Gi              | inodes own        |
        """,
        "none of the kubelet's before the layout is known": """
            hard: nodefs.available < 1Gi
            own: buildcache.available < 1Gi
            at | layout  | nodefs.available | buildcache.available | reported | met      | acts on  | row
            0  | unknown | 0                | 2Gi                  | ours     | hard     |          |
            10 | unknown | 0                | 0.5Gi                | ours     | hard own | own      | I
            20 | single  | 0                | 0.5Gi                | ours     | hard own | hard own | C I
        """,
        "the threshold of containerfs follows the layout at once": """
            a: nodefs.available < 1Gi
            b: imagefs.available < 2Gi
            c: containerfs.available < 50%
            at | layout            | containerfs.available | acts on                     | row
            0  | single            | 1073741825            |                             |
            10 | dedicated-imagefs | 1073741825            | containerfs.available < 2Gi | C I
            20 | split             | 1073741823            | containerfs.available < 1Gi | C
            30 | unknown           | 0                     |                             |
        """,
        "the row is that of the layout": """
            hard: nodefs.inodesFree < 5%
            at | layout            | nodefs.inodesFree | row
            0  | single            | 0                 | C I
            10 | dedicated-imagefs | 0                 |
            20 | split             | 0                 | C
        """,
    }
)
def test_which_threshold_is_acted_on(story: str) -> None:
    """Of several; and which row is called."""
    assert_story(story)


# ---- the same by an oracle


# ---- arithmetic


@rows("""
    what                        | written                  | capacity     | mark        | with_reclaim
    a quantity                  | 1Gi                      | 107374182400 | 1073741824  | 1073741824
    more of it                  | 1Gi, reclaim 500Mi       | 107374182400 | 1073741824  | 1598029824
    more as a share             | 1Gi, reclaim 10%         | 107374182400 | 1073741824  | 11811160224
    a share, of 32 bits         | 10%, reclaim 1Gi         | 107374182400 | 10737418400 | 11811160224
    rounded as such             | 70%                      | 100          | 69          | 69
    everything                  | 100%                     | 100          | 100         | 100
    nothing                     | 0%, reclaim 10           | 100          | 0           | 10
    a share of nothing          | 10%                      | 0            | 0           | 0
    one of nothing              | 1                        | 0            | 1           | 1
    a tenth is more than none   | 100m                     | 1000         | 1           | 1
    rounded up once             | 1500m, reclaim 1500m     | 100          | 2           | 3
    each share is truncated     | 33%, reclaim 38%         | 10           | 3           | 6
    a margin                    | 10, margin 5, reclaim 20 | 100          | 15          | 35
    no disk has as much         | 10, reclaim 90           | 100          | 10          | 10
    nor such a margin           | 10, margin 90            | 100          | 10          | 10
""")
def test_marks_are_the_kubelets_to_the_byte(
    written: str, capacity: int, mark: str, with_reclaim: int
) -> None:
    """And what is equal to a mark is not below it."""
    one = threshold_of(f"nodefs.available < {written}")
    for enforced, limit in ((False, int(mark)), (True, with_reclaim)):
        for available in (limit - 1, limit):
            seen = {NODEFS: observation(NODEFS, available, capacity)}
            met = thresholds_met([one], seen, enforce_min_reclaim=enforced)
            assert met == ((one,) if available < limit else ())


def test_what_has_to_stay_available_is_the_highest_mark_of_a_disk() -> None:
    """In bytes, minimum reclaim included: not the mark of inodes, of another disk, or of what was
    not read."""
    seen = observed(1024, "1024", "10")
    written = (
        "nodefs.available < 10Gi, reclaim 1Gi",
        "nodefs.available < 5Gi, grace 60",
        "nodefs.inodesFree < 90%",
        "imagefs.available < 50%",
        "containerfs.available < 70%",
    )
    marks = [threshold_of(text) for text in written]
    assert [highest_mark(marks, seen, role) for role in KUBELET_ROLES] == [11 * GIB, 2**39, 0]
    assert highest_mark([], seen, FilesystemRole.NODEFS) == 0


@rows("""
    what                           | written                                                    | layout            | derived
    single: those of nodefs        | nodefs.available < 1Gi; nodefs.inodesFree < 5              | single            | nodefs.available < 1Gi; nodefs.inodesFree < 5
    split, too                     | nodefs.available < 1Gi; imagefs.available < 2Gi            | split             | nodefs.available < 1Gi
    else those of imagefs          | nodefs.available < 1Gi; imagefs.available < 2Gi, reclaim 5% | dedicated-imagefs | imagefs.available < 2Gi, reclaim 5%
    hard ones first                | nodefs.available < 2Gi, grace 60; nodefs.available < 1Gi   | single            | nodefs.available < 1Gi; nodefs.available < 2Gi, grace 60
    the last of each               | nodefs.available < 2Gi, grace 60; nodefs.available < 3Gi, grace 61 | single    | nodefs.available < 3Gi, grace 61
    in place of what a user set    | containerfs.available < 1Gi; imagefs.available < 2Gi       | single            |
    none while it is unknown       | nodefs.available < 1Gi; imagefs.available < 2Gi            |                   |
""")
def test_containerfs_has_the_thresholds_of_the_filesystem_with_the_writable_layers(
    written: str, layout: str, derived: str
) -> None:
    """A copy of the last one of each unit and hardness. The kubelet's are derived in the same way."""
    given, copied = (
        [threshold_of(each) for each in text.split("; ") if each] for text in (written, derived)
    )
    expected = (
        *(one for one in given if one.signal.filesystem is not FilesystemRole.CONTAINERFS),
        *(
            replace(
                one,
                signal=one.signal.on(FilesystemRole.CONTAINERFS),
                origin=f"derived from {one.signal}",
            )
            for one in copied
        ),
    )
    known = FsLayout(layout) if layout else None
    assert update_container_fs_thresholds(tuple(given), known) == expected
    config = EvictionConfig(tuple(given), kubelets=tuple(given))
    assert config.marks_to_watch(known) == (*expected, *expected)


# ---- rows

# The kubelet's table, written out once more.
KUBELETS_TABLE = """
    signal                   single  dedicated-imagefs  split
    nodefs.available         C,I     -                  C
    nodefs.inodesFree        C,I     -                  C
    imagefs.available        C,I     C,I                I
    imagefs.inodesFree       C,I     C,I                I
    containerfs.available    C,I     C,I                C
    containerfs.inodesFree   C,I     C,I                C
"""


def test_the_table_has_a_cell_for_every_signal_in_every_layout() -> None:
    """6 signals in 3 layouts are 18 cells, none twice, none missing; each calls what the kubelet
    calls. Source: `pkg/kubelet/eviction/helpers.go`, buildSignalToNodeReclaimFuncs."""
    (_, *layouts), *rows = (line.split() for line in KUBELETS_TABLE.strip().splitlines())
    assert [layouts, [name for name, *_ in rows]] == [[*FsLayout], [*KUBELET_SIGNALS]]
    for name, *cells in rows:
        found = [[SHORT[called] for called in row(Signal(name), layout)] for layout in FsLayout]
        assert [",".join(each) or "-" for each in found] == cells
    assert set(RECLAIM_TABLE) == set(FsLayout)
    assert all(set(rows) == set(KUBELET_ROLES) for rows in RECLAIM_TABLE.values())


def row_entries(text: str) -> Rows:
    """`nodefs.available: prune < 3, other; buildcache.available: prune`."""
    rows = {}
    for written in text.split("; "):
        signal, entries = written.split(": ")
        split = [entry.partition(" < ") for entry in entries.split(", ")]
        rows[Signal(signal)] = tuple(
            RowEntry(name, value(below) if below else None) for name, _, below in split
        )
    return rows


OWN_ROW = row_entries(f"buildcache.available: {DELETE_UNUSED_IMAGES}")
EVERYWHERE = "nodefs imagefs containerfs buildcache"


@rows("""
    what                            | written                                        | layout            | function           | goal
    the built-in row                | other.available: p                             | single            | DeleteUnusedImages | nodefs 10 imagefs 15 containerfs 10
    not the kubelet's own disk      | other.available: p                             | dedicated-imagefs | DeleteUnusedImages | imagefs 15 containerfs 15
    every row that names it         | nodefs.available: p; buildcache.available: p   | single            | p                  | nodefs 10 containerfs 10 buildcache 20
    only those that still do        | nodefs.available: p                            | single            | DeleteUnusedImages | imagefs 15
    one that waits                  | nodefs.available: p, q < 3                     | single            | q                  | waits nodefs 3 containerfs 3
    beside one that does not        | nodefs.available: p, q < 3                     | single            | p                  | nodefs 10 containerfs 10
    no lower mark, no wait          | nodefs.available: p < 10%                      | single            | p                  | nodefs 10 containerfs 10
    it waits in one row only        | nodefs.available: p < 3; imagefs.available: p  | single            | p                  | waits nodefs 3 imagefs 15 containerfs 3
    containerfs has its own row     | nodefs.available: p; containerfs.available: q  | single            | q                  | containerfs 10
    else that of its thresholds     | nodefs.available: p                            | dedicated-imagefs | p                  | nodefs 10
""")
def test_a_function_has_to_clear_the_thresholds_of_the_rows_that_name_it(
    written: str, layout: str, function: str, goal: str
) -> None:
    """A configured row replaces the built-in one, also for containerfs, which has none of its own;
    one that waits has its own lower mark as its goal, without minimum reclaim."""
    thresholds = tuple(
        threshold_of(f"{mark}, reclaim 2")
        for mark in (
            "nodefs.available < 10",
            "imagefs.available < 15",
            "buildcache.available < 20",
        )
    )
    config = EvictionConfig(thresholds, rows=row_entries(written))
    signals = [Signal(f"{name}.available") for name in EVERYWHERE.split()]
    seen = observations_of(
        *(observation(signal, 5, 100) for signal in signals), layout=FsLayout(layout)
    )
    marks, waits = config.goal(function, seen)
    found = {one.signal.filesystem: one for one in marks}
    words = [
        f"{name} {found[FilesystemRole(name)].mark(100)}"
        for name in EVERYWHERE.split()
        if name in found
    ]
    assert " ".join(["waits"] * waits + words) == goal
    for one in marks:
        alone = one.mark(100) == 3
        assert one.mark_with_min_reclaim(100) - one.mark(100) == (0 if alone else 2)
    assert not config.goal(function, observations_of(layout=FsLayout(layout)))[1], "nothing is read"
    names = {entry.function for entries in config.rows.values() for entry in entries}
    assert config.functions == {*SHORT, *names}


POLICY = PollPolicy(0.01, 10.0, 500.0 * MIB)
PLACES = {
    signal: FilesystemIdentity(path, device)
    for signal, path, device in (
        (NODEFS, "/kubelet", 1),
        (INODES, "/kubelet", 1),
        (IMAGEFS, "/images", 2),
    )
}


def observed(
    nodefs: float, imagefs: str = "", inodes: str = "", **fields: float
) -> SignalObservations:
    """An observation of two filesystems, in MiB and inodes. `fields`: of the reading of nodefs."""
    available = {NODEFS: int(nodefs * MIB)}
    if imagefs:
        available[IMAGEFS] = int(imagefs) * MIB
    if inodes:
        available[INODES] = int(inodes)
    readings = {
        signal: SignalObservation(signal, amount, 2**40, 0.0, filesystem=PLACES[signal])
        for signal, amount in available.items()
    }
    of_nodefs = replace(stats(available[NODEFS]), **fields)  # type: ignore[arg-type] # as named
    filesystems = {
        FilesystemRole.NODEFS: (PLACES[NODEFS], of_nodefs),
        FilesystemRole.IMAGEFS: (PLACES[IMAGEFS], stats(available.get(IMAGEFS, GIB))),
    }
    return SignalObservations(readings, FsLayout.DEDICATED_IMAGEFS, 0.0, filesystems=filesystems)


# ---- when to look again, near which marks

BOTH = [threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi")]


@rows("""
    what                                       | nodefs | imagefs | inodes | images_fill | soft | seconds
    half of 2 s on the disk that is nearer     | 102400 | 2024    |        |             |      | 1
    inodes count beside bytes                  | 102400 |         | 5000   |             |      | 0.1
    a faster fill than assumed counts          | 102400 | 6144    |        | 5120        |      | 0.5
    not one of another filesystem              | 6144   | 102400  |        | 5120        |      | 5.12
    a mark that is met does not                | 6143   |         |        |             | 6144 | 5.119
    at a mark: the floor                       | 1024   |         |        |             |      | 0.01
    below the only one: the ceiling            | 1023   |         |        |             |      | 10
""")
def test_it_is_looked_at_again_halfway_to_the_nearest_mark(
    nodefs: float, imagefs: str, inodes: str, images_fill: str, soft: str, seconds: float
) -> None:
    """Of 1 GiB each, and 1000 inodes; at 500 MiB/s and 20 000 inodes a second, or the fastest fill
    that was seen."""
    fills = {(2, False): FillRate(0, 0.0, float(images_fill or 0) * MIB)}
    marks = [*BOTH, threshold(INODES, "1000")]
    marks += [threshold(NODEFS, f"{soft}Mi", grace_seconds=60.0)] if soft else []
    found = observation_interval(marks, observed(nodefs, imagefs, inodes), fills, policy=POLICY)
    assert found == pytest.approx(seconds)


def test_polls_compare_with_the_next_mark_below_on_each_filesystem() -> None:
    """Of several the highest that is not crossed; a filesystem without one is not polled, and one
    that has two roles is polled once."""
    marks = [threshold(NODEFS, text) for text in ("1Gi", "2Gi", "4Gi")]
    marks += [threshold(INODES, "700"), threshold(IMAGEFS, "9Gi")]
    seen = observed(3072, "1024", "700")
    ((path, found),) = levels_to_watch(marks, seen, {}, policy=POLICY).items()
    assert (path, found.levels, found.rates) == ("/kubelet", (2 * GIB, 700), (500.0 * MIB, 2e4))
    images = seen.signals[IMAGEFS]._replace(available=10 * GIB, filesystem=PLACES[NODEFS])
    seen = seen._replace(signals={**seen.signals, IMAGEFS: images})
    ((path, found),) = levels_to_watch(marks, seen, {}, policy=POLICY).items()
    assert (path, found.levels) == ("/kubelet", (9 * GIB, 700))


@given(
    st.integers(0, 2**36),
    st.integers(-(2**36), 2**36),
    st.floats(0.0, 100.0),
    st.builds(
        PollPolicy, st.floats(0.001, 1.0), st.floats(1.0, 3600.0), st.floats(MIB, 5000.0 * MIB)
    ),
    st.floats(0, 5000.0 * MIB),
    st.booleans(),
)
def test_no_fill_that_is_taken_to_be_possible_reaches_a_mark_before_the_next_reading(
    ours: int, above: int, seconds: float, policy: PollPolicy, seen_fill: float, idle: bool
) -> None:
    """It begins right after a reading, at the assumed rate or the fastest seen, so many seconds
    above our mark, whatever `pollCeiling` is and wherever the kubelet's mark is: from a reading
    above a mark by more than it writes in five floors, the next observation is above that mark too,
    and so is the next poll, which is no later. Both are within floor and ceiling."""
    fastest, marks = max(policy.assumed_fill_rate, seen_fill), (ours, max(ours - above, 0))
    available = ours + int(seconds * fastest)
    of = [threshold(NODEFS, str(mark)) for mark in marks], observed(available / MIB)
    fills = {(1, False): FillRate(available, 0.0, seen_fill)}
    waits = [observation_interval(*of, fills, policy=policy)]
    for levels in levels_to_watch(*of, fills, policy=policy).values():
        assert levels.poll_interval(Poll(0.0, available, 10**9)) <= waits[0]
        waits.append(levels.poll_interval(Poll(0.0, available, 10**9), idle=idle))
    assert all(policy.floor_seconds <= wait <= policy.ceiling_seconds for wait in waits)
    for mark in marks:
        if available - mark > 5 * policy.floor_seconds * fastest * 1.001:
            assert all(available - wait * fastest > mark for wait in waits)


@rows("""
    what                             | above | near | still_near
    it is met                        | -1    |      |
    at the mark                      | 0     | yes  | yes
    a moment before the ceiling      | 4999  | yes  | yes
    at the ceiling                   | 5000  |      | yes
    a moment before twice that       | 9999  |      | yes
    at twice the ceiling             | 10000 |      |
""")
def test_a_filesystem_is_near_its_mark_within_the_ceiling_and_no_longer_beyond_twice_that(
    above: str, near: str, still_near: str
) -> None:
    """At 500 MiB/s and 10 s: from 5 000 MiB above the mark down to it, and then up to 10 000; at a
    faster fill from farther. Another filesystem with as much is not."""
    seen = observed(1024 + int(above))
    assert near_their_marks(BOTH, seen, {}, policy=POLICY) == ({1} if near else set())
    before = near_their_marks(BOTH, seen, {}, policy=POLICY, before={1})
    assert before == ({1} if still_near else set())
    twice = {(1, False): FillRate(0, 0.0, 1000.0 * MIB)}
    seen = observed(1024 + 2 * int(above), "6024")
    assert near_their_marks(BOTH, seen, twice, policy=POLICY) == ({1} if near else set())


# ---- how fast it fills, how urgent that is, and what is coming


def test_fill_rates_are_kept_by_device_and_the_faster_one_counts() -> None:
    """512 MiB in 1 s on nodefs count there, unless more polls of it are to come; a device that is
    gone leaves nothing behind. Of two rates of one amount the faster one counts."""
    gone, later = {(9, False): FillRate(0, 0.0, 1e9)}, observed(512, time=1.0)
    first = update_fill_rates(gone, observed(1024))
    assert set(first) == {(1, False), (1, True), (2, False), (2, True)}
    second = update_fill_rates(first, later)
    assert [second[device, False].fastest for device in (1, 2)] == [512.0 * MIB, 0.0]
    assert update_fill_rates(first, later, incomplete={1})[1, False] == first[1, False]
    fills = {key: filling(rate, 100.0 * MIB) for key, rate in first.items()}
    assert faster({**fills, **gone}, first) == faster(first, fills) == fills
    assert faster({}, first) == first


def filled(mib_a_second: float) -> dict[tuple[int, bool], FillRate]:
    """Both disks are filled steadily; nodefs loses inodes as fast."""
    each = filling(FillRate(0, 0.0), mib_a_second * MIB)
    return {(1, False): each, (2, False): each, (1, True): each}


@rows("""
    what                                  | nodefs | imagefs | kubelets | step | rate | seconds
    until the kubelet's mark              | 1000   |         | 600      | 0    | 100  | 4
    it is there                           | 600    |         | 600      | 0    | 100  | 0
    until nothing is left: it is unknown  | 1000   |         |          | 0    | 100  | 10
    or it is reached                      | 500    |         | 600      | 0    | 100  | 5
    nodefs is full first                  | 50     | 200     |          | 0    | 100  | 0.5
    imagefs is                            | 200    | 50      |          | 0    | 100  | 0.5
    no fall before the next step          | 1000   |         | 600      | 2000 | 100  | 9
    which fits above the mark             | 3000   |         | 600      | 2000 | 100  | 33
    nothing fills                         | 50     |         |          | 0    | 0    | inf
""")
def test_urgency_is_the_time_until_the_level_that_must_not_be_reached(
    nodefs: int, imagefs: str, kubelets: str, step: int, rate: float, seconds: float
) -> None:
    """At so many MiB/s; where there are steps, 900 MiB are preallocated. How many inodes an object
    frees is not known before it is removed."""
    grows: Any = {"preallocated_bytes": 900 * MIB, "step_bytes": step * MIB}
    seen = observed(nodefs, imagefs, **grows if step else {})
    known = [threshold(NODEFS, f"{kubelets}Mi")] if kubelets else []
    assert urgency(BOTH, seen, filled(rate), kubelets=known) == seconds
    assert urgency(BOTH, seen, {}, kubelets=known) == NEVER
    inodes = observed(1024, inodes="10")
    assert urgency([threshold(INODES, "100")], inodes, filled(rate)) == NEVER


@rows("""
    what                                            | hard | rate | lead  | preallocated | step | needed
    what is written within the lead                 | 600  | 100  | 2     | 0            | 0    | 800
    its hard mark is not known                      |      | 100  | 2     | 0            | 0    | 0
    it is reached                                   | 1300 | 100  | 2     | 0            | 0    | 0
    the lead is switched off                        | 600  | 100  | 0     | 0            | 1024 | 0
    nothing fills                                   | 600  | 0    | 5     | 0            | 0    | 0
    into what is preallocated, a step is 15 s away  | 600  | 100  | 2     | 1500         | 3000 | 0
    the next step is 9 s away                       | 600  | 100  | 2     | 900          | 3000 | 3600
    however long the lead is                        | 600  | 100  | 0.001 | 900          | 3000 | 3600
    a file that does not grow takes no step         | 600  | 0    | 5     | 900          | 3000 | 0
    faster than its steps                           | 600  | 2000 | 2     | 900          | 3000 | 4600
    beyond what is preallocated                     | 600  | 2000 | 20    | 30000        | 3000 | 10600
""")
def test_what_is_coming_has_to_fit_above_the_kubelets_mark(
    hard: str, rate: int, lead: float, preallocated: int, step: int, needed: int
) -> None:
    """In MiB, of which 1200 are available, and MiB/s; what is coming needs no inodes. Soft marks of
    the kubelet's do not count."""
    kubelets = [threshold(NODEFS, "1Gi", grace_seconds=60.0)]
    kubelets += [threshold(NODEFS, f"{hard}Mi")] if hard else []
    grows: Any = {"preallocated_bytes": preallocated * MIB, "step_bytes": step * MIB}
    seen = observed(1200, inodes="10", **grows)
    seen = with_needed(seen, filled(rate), kubelets=kubelets, lead_seconds=lambda _: lead)
    found = [seen.signals[signal].needed for signal in (NODEFS, INODES)]
    assert found == [needed * MIB, 0]
