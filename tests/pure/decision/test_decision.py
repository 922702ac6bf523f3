"""Which thresholds are met and acted on, what is reported, which row is called; how fast what is
available falls, and when to look again.

Source: kubelet, `pkg/kubelet/eviction/eviction_manager.go` (synchronize, reclaimNodeLevelResources)
and `pkg/kubelet/eviction/helpers.go`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eviction.decision.headroom import (
    FillRates,
    Outlook,
    faster,
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
    Signal,
    SignalObservation,
    SignalObservations,
)
from tests.pages import DOCS
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


# ---- stories of several passes


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


STORIES = dict(
    story.split("\n", 1)
    for story in Path(__file__).with_name("stories.txt").read_text().strip().split("\n\n")
    if not story.startswith("#")
)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_is_decided_pass_by_pass(story: str) -> None:
    """In `stories.txt`: above the table are the configuration and the thresholds by name, the
    kubelet's own too. Each line of the table is one pass: what is read, and what is decided. `acts
    on`: the threshold that is acted on, and further ones that could be."""
    above, _, table = story.strip().partition("at ")
    given = dict(line.strip().split(": ") for line in above.splitlines() if line.strip())
    seconds = {name: float(given.pop(name)) for name in [*given] if name.endswith("_seconds")}
    named = {name: threshold_of(text) for name, text in given.items()}
    kubelets = tuple(one for name, one in named.items() if name.startswith("kubelet"))
    ours = tuple(one for name, one in named.items() if not name.startswith("kubelet"))
    config = EvictionConfig(ours, kubelets=kubelets or None, rows=OWN_ROW)._replace(**seconds)  # type: ignore[arg-type] # as named
    state = ManagerState()

    def names(thresholds: Sequence[Threshold]) -> str:
        known = {one: name for name, one in named.items()}
        return " ".join(known.get(one, f"{one.signal} < {one.value}") for one in thresholds)

    for told in rows_of("at " + table):
        now, layout = float(told["at"]), told.get("layout", "single")
        if "in force" in told:
            thresholds = tuple(named[name] for name in told["in force"].split())
            config = config._replace(thresholds=thresholds)
        read = [
            reading_of(Signal(name), text, now)
            for name, text in told.items()
            if "." in name and text
        ]
        observations = observations_of(
            *read, time=now, layout=None if layout == "unknown" else FsLayout(layout)
        )
        state, decision = synchronize(config, state, observations)
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
    """A copy of the last one of each unit and hardness. The kubelet's are derived in the same
    way."""
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


def test_the_table_has_a_cell_for_every_signal_in_every_layout() -> None:
    """6 signals in 3 layouts are 18 cells, none twice, none missing; each calls what the kubelet
    calls, as the page has it. Source: `pkg/kubelet/eviction/helpers.go`,
    buildSignalToNodeReclaimFuncs."""
    line = r"^\| `(\w+)\.available`, `\1\.inodesFree`" + r" \| ([CI, ]+|\(none\))" * 3 + r" \|$"
    told = re.findall(line, (DOCS / "configuration.md").read_text(), re.MULTILINE)
    assert [name for name, *_ in told] == [*KUBELET_ROLES]
    for signal in KUBELET_SIGNALS:
        cells = [[SHORT[called] for called in row(signal, layout)] for layout in FsLayout]
        assert (signal.filesystem, *(", ".join(each) or "(none)" for each in cells)) in told
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


def outlook(seen: SignalObservations, fills: FillRates) -> Outlook:
    """Read every 10 ms to 10 s, at 500 MiB/s."""
    return Outlook(seen, fills, 0.01, 10.0, 500.0 * MIB)


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
    found = outlook(observed(nodefs, imagefs, inodes), fills).interval(marks)
    assert found == pytest.approx(seconds)


def test_polls_compare_with_the_next_mark_below_on_each_filesystem() -> None:
    """Of several the highest that is not crossed; a filesystem without one is not polled, and one
    that has two roles is polled once."""
    marks = [threshold(NODEFS, text) for text in ("1Gi", "2Gi", "4Gi")]
    marks += [threshold(INODES, "700"), threshold(IMAGEFS, "9Gi")]
    seen = observed(3072, "1024", "700")
    ((path, found),) = outlook(seen, {}).levels_to_watch(marks).items()
    assert (path, found.levels, found.rates) == ("/kubelet", (2 * GIB, 700), (500.0 * MIB, 2e4))
    images = seen.signals[IMAGEFS]._replace(available=10 * GIB, filesystem=PLACES[NODEFS])
    seen = seen._replace(signals={**seen.signals, IMAGEFS: images})
    ((path, found),) = outlook(seen, {}).levels_to_watch(marks).items()
    assert (path, found.levels) == ("/kubelet", (9 * GIB, 700))


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
    assert outlook(seen, {}).near_their_marks(BOTH, ()) == ({1} if near else set())
    assert outlook(seen, {}).near_their_marks(BOTH, {1}) == ({1} if still_near else set())
    twice = {(1, False): FillRate(0, 0.0, 1000.0 * MIB)}
    seen = observed(1024 + 2 * int(above), "6024")
    assert outlook(seen, twice).near_their_marks(BOTH, ()) == ({1} if near else set())


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
    seen = with_needed(seen, filled(rate), kubelets=kubelets, lead_seconds=lead)
    found = [seen.signals[signal].needed for signal in (NODEFS, INODES)]
    assert found == [needed * MIB, 0]
