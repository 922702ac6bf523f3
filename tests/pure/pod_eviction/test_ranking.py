"""The order of evictions for a disk signal, rule by rule.

Source: kubelet, `pkg/kubelet/eviction/helpers.go` at tag v1.36.0; each test names the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.pod_eviction import (
    ContainerUsage,
    EvictablePod,
    FsUsage,
    Measured,
    PodUsage,
    RankedPod,
    Reason,
    rank_pods,
)
from signals.types import FilesystemRole, FsLayout, Signal

GIB = 1 << 30
BYTES, INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE


def pod(name: str, **fields: object) -> EvictablePod:
    """A pod whose UID is its name."""
    return EvictablePod(uid=name, namespace="default", name=name, **fields)  # type: ignore[arg-type] # as given


def logs(used_bytes: int | None = None, inodes_used: int | None = None) -> PodUsage:
    """A pod that uses so much for the logs of one container."""
    return PodUsage((ContainerUsage("app", logs=FsUsage(used_bytes, inodes_used)),))


def ranked(
    *pods: tuple[EvictablePod, PodUsage | None], signal: Signal = BYTES, layout: FsLayout = FsLayout.SINGLE
) -> tuple[RankedPod, ...]:
    """The ranking of pods given with their usage, None for a pod without statistics."""
    usages = {each.uid: usage for each, usage in pods if usage is not None}
    return rank_pods([each for each, _ in pods], usages, signal, layout)


def names(ranking: tuple[RankedPod, ...]) -> list[str]:
    """The names, in their order."""
    return [each.name for each in ranking]


def test_a_pod_without_statistics_goes_first() -> None:
    """exceedDiskRequests, disk: before any other, whatever its priority; two of them by priority."""
    ranking = ranked(
        (pod("large"), logs(50 * GIB)),
        (pod("unknown-high", priority=1000), None),
        (pod("unknown-low", priority=7), None),
    )
    assert names(ranking) == ["unknown-low", "unknown-high", "large"]
    assert [each.reason for each in ranking] == [Reason.NO_STATISTICS, Reason.NO_STATISTICS, Reason.OVER_REQUEST]
    assert (ranking[0].used, ranking[0].usage, ranking[0].over_request) == (None, None, None)


def test_a_pod_over_its_request_goes_before_one_within() -> None:
    """exceedDiskRequests: whatever the priority and however much the other one uses."""
    ranking = ranked(
        (pod("within", request=Fraction(100 * GIB)), logs(99 * GIB)), (pod("over", priority=1000000), logs(1))
    )
    assert names(ranking) == ["over", "within"]
    assert [each.reason for each in ranking] == [Reason.OVER_REQUEST, Reason.WITHIN_REQUEST]


def test_usage_that_equals_the_request_is_within_it() -> None:
    """exceedDiskRequests: only a comparison of 1 exceeds, and it is exact: a tenth of a byte decides."""
    ranking = ranked(
        (pod("equal", request=Fraction(GIB)), logs(GIB)),
        (pod("a-tenth-below", request=GIB + Fraction(1, 10)), logs(GIB)),
        (pod("a-tenth-over", request=GIB - Fraction(1, 10)), logs(GIB)),
    )
    assert {each.name: each.reason for each in ranking} == {
        "equal": Reason.WITHIN_REQUEST,
        "a-tenth-below": Reason.WITHIN_REQUEST,
        "a-tenth-over": Reason.OVER_REQUEST,
    }


def test_lower_priority_goes_before_larger_usage() -> None:
    """priority: a pod without one has 0, and negative ones exist."""
    ranking = ranked(
        (pod("high", priority=1), logs(9 * GIB)), (pod("none"), logs(2)), (pod("negative", priority=-1), logs(1))
    )
    assert names(ranking) == ["negative", "none", "high"]


def test_of_one_priority_the_larger_usage_above_the_request_goes_first() -> None:
    """disk: what is above the request counts, not the usage itself."""
    ranking = ranked((pod("uses-most", request=Fraction(9 * GIB)), logs(10 * GIB)), (pod("most-over"), logs(2 * GIB)))
    assert names(ranking) == ["most-over", "uses-most"]
    assert [each.over_request for each in ranking] == [2 * GIB, GIB]


def test_within_the_request_the_nearest_to_it_goes_first() -> None:
    """disk: the difference is negative there, and the larger one goes first."""
    ranking = ranked(
        (pod("far", request=Fraction(9 * GIB)), logs(GIB)), (pod("near", request=Fraction(2 * GIB)), logs(GIB))
    )
    assert names(ranking) == ["near", "far"]


def test_for_inodes_every_pod_with_an_inode_exceeds_its_request() -> None:
    """exceedDiskRequests with the resource `inodes`: nothing can request those, so the request is 0."""
    ranking = ranked(
        (pod("none", request=Fraction(GIB)), logs(GIB, 0)),
        (pod("one", request=Fraction(GIB), priority=1000), logs(0, 1)),
        signal=INODES,
    )
    assert names(ranking) == ["one", "none"]
    assert [(each.used, each.reason) for each in ranking] == [(1, Reason.OVER_REQUEST), (0, Reason.WITHIN_REQUEST)]


def test_for_inodes_the_requested_bytes_are_subtracted() -> None:
    """disk: it takes the request of ephemeral storage for inode signals too, so a pod without one goes first."""
    ranking = ranked(
        (pod("a-million", request=Fraction(GIB)), logs(0, 1_000_000)), (pod("few"), logs(0, 3)), signal=INODES
    )
    assert names(ranking) == ["few", "a-million"]
    assert [each.over_request for each in ranking] == [3, 1_000_000 - GIB]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"static": True}, Reason.STATIC),
        ({"mirror": True}, Reason.MIRROR),
        ({"priority": 2_000_000_000}, Reason.CRITICAL_PRIORITY),
        ({"priority": 2_000_001_000}, Reason.CRITICAL_PRIORITY),
    ],
)
def test_critical_pods_are_never_evicted(fields: dict[str, object], reason: Reason) -> None:
    """`pkg/kubelet/types/pod_update.go`, IsCriticalPod, asked by evictPod: shown last, without a rank."""
    ranking = ranked((pod("critical", **fields), logs(90 * GIB)), (pod("web"), logs(0)))
    assert [(each.name, each.rank) for each in ranking] == [("web", 1), ("critical", None)]
    assert ranking[-1].reason is reason
    assert ranking[-1].used == 90 * GIB


def test_the_highest_priority_of_users_is_not_critical() -> None:
    """`pkg/apis/scheduling/types.go`: users reach 1000000000; one below the system's is not critical either."""
    ranking = ranked((pod("users", priority=1_000_000_000), logs(1)), (pod("below", priority=1_999_999_999), logs(1)))
    assert [each.rank for each in ranking] == [1, 2]


def test_pods_that_are_equal_share_a_rank_and_are_shown_by_name() -> None:
    """multiSorter sorts by sort.Sort, which is not stable: the kubelet leaves their order open."""
    ranking = ranked((pod("b"), logs(5)), (pod("c"), logs(4)), (pod("a"), logs(5)), (pod("d"), logs(3)))
    assert [(each.name, each.rank) for each in ranking] == [("a", 1), ("b", 1), ("c", 3), ("d", 4)]


USES_ALL = PodUsage(
    (
        ContainerUsage("app", FsUsage(1, 10), FsUsage(20, 200)),
        ContainerUsage("sidecar", FsUsage(2, 20), FsUsage(40, 400)),
    ),
    {"scratch": FsUsage(300, 3000), "claim": FsUsage(4000, 40000)},
    FsUsage(999, 999),
)
KUBELETS, LAYERS, EVERYTHING = 360, 3, 363


@pytest.mark.parametrize(
    ("layout", "role", "used"),
    [
        (FsLayout.SINGLE, FilesystemRole.NODEFS, EVERYTHING),
        (FsLayout.SINGLE, FilesystemRole.IMAGEFS, EVERYTHING),
        (FsLayout.SINGLE, FilesystemRole.CONTAINERFS, EVERYTHING),
        (FsLayout.DEDICATED_IMAGEFS, FilesystemRole.NODEFS, KUBELETS),
        (FsLayout.DEDICATED_IMAGEFS, FilesystemRole.IMAGEFS, LAYERS),
        (FsLayout.DEDICATED_IMAGEFS, FilesystemRole.CONTAINERFS, LAYERS),
        (FsLayout.SPLIT, FilesystemRole.NODEFS, EVERYTHING),
        (FsLayout.SPLIT, FilesystemRole.IMAGEFS, 0),
        (FsLayout.SPLIT, FilesystemRole.CONTAINERFS, EVERYTHING),
    ],
)
def test_what_counts_depends_on_signal_and_layout(layout: FsLayout, role: FilesystemRole, used: int) -> None:
    """buildSignalToRankFunc, podDiskUsage: of the images nothing is counted, nor of volumes that are not local."""
    web = (pod("web", local_volumes=("scratch", "not-mounted")), USES_ALL)
    (in_bytes,) = ranked(web, signal=Signal(f"{role}.available"), layout=layout)
    (in_inodes,) = ranked(web, signal=Signal(f"{role}.inodesFree"), layout=layout)
    assert (in_bytes.used, in_inodes.used) == (used, used * 10)
    assert in_bytes.usage == {
        Measured.WRITABLE_LAYERS: LAYERS,
        Measured.LOGS: 60,
        Measured.LOCAL_VOLUMES: 300,
    }


def test_what_the_kubelet_does_not_say_is_0() -> None:
    """diskUsage, inodeUsage: a missing number counts as 0, other than a missing pod."""
    (web,) = ranked((pod("web"), PodUsage((ContainerUsage("app"),))))
    assert (web.used, web.reason) == (0, Reason.WITHIN_REQUEST)


def test_numbers_beyond_int64_wrap_as_in_the_kubelet() -> None:
    """diskUsage: `int64(*fsStats.UsedBytes)` makes 2**63 and more negative, so the pod goes last."""
    ranking = ranked((pod("beyond"), logs(2**64 - 1)), (pod("largest"), logs(2**63 - 1)), (pod("idle"), logs(0)))
    assert [(each.name, each.used) for each in ranking] == [("largest", 2**63 - 1), ("idle", 0), ("beyond", -1)]


def test_sums_do_not_wrap() -> None:
    """containerUsage adds quantities, which are exact beyond int64."""
    both = PodUsage(tuple(ContainerUsage(name, FsUsage(2**63 - 1), FsUsage(2**63 - 1)) for name in "ab"))
    (web,) = ranked((pod("web"), both))
    assert web.used == 4 * (2**63 - 1)


Stats = Mapping[str, PodUsage]
Compare = Callable[[EvictablePod, EvictablePod], int]


def kubelets_comparison(stats: Stats, used: Callable[[EvictablePod], int], *, inodes: bool) -> Compare:
    """A second writing of orderedBy(exceedDiskRequests, priority, disk): three comparisons, one after the other."""

    def before(first: bool, second: bool) -> int:
        return 0 if first == second else (-1 if first else 1)

    def exceed(one: EvictablePod, other: EvictablePod) -> int:
        if one.uid not in stats or other.uid not in stats:
            return before(one.uid not in stats, other.uid not in stats)
        first, second = ((used(each) > (0 if inodes else each.request)) for each in (one, other))
        return before(first, second)

    def priority(one: EvictablePod, other: EvictablePod) -> int:
        return (one.priority > other.priority) - (one.priority < other.priority)

    def disk(one: EvictablePod, other: EvictablePod) -> int:
        if one.uid not in stats or other.uid not in stats:
            return before(one.uid not in stats, other.uid not in stats)
        first, second = (used(each) - each.request for each in (one, other))
        return (second > first) - (second < first)

    return lambda one, other: exceed(one, other) or priority(one, other) or disk(one, other)


AMOUNTS = st.sampled_from([0, 1, 2, GIB, 2**63 - 1])


@given(
    st.lists(st.tuples(AMOUNTS, st.integers(-2, 2), st.none() | AMOUNTS), max_size=12),
    st.sampled_from([BYTES, INODES]),
)
def test_the_order_is_that_of_the_kubelets_comparisons(
    drawn: list[tuple[int, int, int | None]], signal: Signal
) -> None:
    """Any pods: sorted by its three comparisons in turn they have the same ranks."""
    pods = [
        pod(f"pod-{number:02}", request=Fraction(request), priority=priority)
        for number, (request, priority, _) in enumerate(drawn)
    ]
    amounts = {each.uid: used for each, (_, _, used) in zip(pods, drawn, strict=True) if used is not None}
    usages = {uid: logs(used, used) for uid, used in amounts.items()}
    compare = kubelets_comparison(usages, lambda each: amounts[each.uid], inodes=signal is INODES)
    ranking = rank_pods(pods, usages, signal, FsLayout.SINGLE)
    assert names(ranking) == [each.name for each in sorted(pods, key=cmp_to_key(compare))]
    by_uid = {each.uid: each for each in pods}
    for one, other in pairwise(ranking):
        assert (one.rank == other.rank) == (compare(by_uid[one.uid], by_uid[other.uid]) == 0)
