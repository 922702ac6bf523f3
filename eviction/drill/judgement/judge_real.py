"""Judges the expectations of a scenario on a real node, as far as they can be judged there.

Judged as on the embedded node: relief, the first removal, the lowest point (percentages of this node's sizes), quiet,
and objects of a name that exists. The condition is judged only if the daemon that reports it runs in the drill. In
place of "no container starts again" the drill checks that no pod that ran has ended. All other expectations depend on
images, pods and a configuration that the scenario would have made; they are reported as not judged.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import replace

from eviction.drill.judgement.judge import Check, judge
from eviction.drill.judgement.result import Response
from eviction.drill.measurement.measurements import MeasuredFilesystem, Measurements
from eviction.drill.scenario.types import ConditionExpectation, Expectation, ObjectPattern
from signals.quantity import format_duration
from signals.types import Signal

ANYTHING = "*"


def judge_real(expect: Expectation, measured: Measurements, response: Response) -> tuple[Check, ...]:
    """Every expectation, judged or not, in the order in which they are reported."""
    ours = response is Response.OURS
    there = tuple(pattern for pattern in expect.stays if _names_something(pattern, measured))
    to_go = tuple(pattern for pattern in expect.goes if _names_something(pattern, measured))
    judged = replace(
        expect,
        condition=replace(expect.condition, goes_within_seconds=None) if ours else ConditionExpectation(),
        first_removal_not_before_seconds=None,
        never_relieved=False,
        nothing_goes=False,
        goes=to_go,
        stays=there,
        images_left_at_least=0,
        images_lost_beyond_need=None,
        lowest=_lowest_here(expect, measured.filesystems),
        passes_at_most=None,
        says="",
        faults_triggered=0,
        no_restarts=False,
        new_pod_starts=False,
    )
    checks = judge(judged, measured)
    if not ours:  # `judge` makes this check for every scenario
        checks = tuple(check for check in checks if check.name != "ReclaimPressure")
    open_ = (
        Check(name, expected, f"not judged: {why}", None) for name, expected, why in _not_judged(expect, measured, ours)
    )
    return (*checks, *_pods(expect, measured), *open_)


def _not_judged(expect: Expectation, measured: Measurements, ours: bool) -> Iterator[tuple[str, str, str]]:
    """The expectations that cannot be judged here: name, what was expected, and why."""
    condition, earliest, beyond = (
        expect.condition,
        expect.first_removal_not_before_seconds,
        expect.images_lost_beyond_need,
    )
    goes = "" if condition.goes_within_seconds is None else f"within {format_duration(condition.goes_within_seconds)}"
    built = "it depends on a node that the scenario builds"
    configured = "it depends on the node's own configuration"
    table = (
        (not ours, "ReclaimPressure", "never" if condition.never else "comes", "reclaimd does not run in this drill"),
        (goes, "ReclaimPressure goes", goes, configured),
        (earliest, "first removal", f"not before {format_duration(earliest or 0.0)}", configured),
        (expect.never_relieved, "pressure", "remains", built),
        (expect.nothing_goes, "nothing", "goes", built),
        (expect.images_left_at_least, "images left", f"at least {expect.images_left_at_least}", built),
        (beyond is not None, "images lost beyond need", f"at most {beyond}", "the sizes of layers are not known"),
        (expect.passes_at_most is not None, "passes", f"at most {expect.passes_at_most}", built),
        (expect.says, "last pass says", expect.says, built),
        (
            expect.new_pod_starts,
            "new pod",
            "starts afterwards",
            "a drill makes no pods on a real node",
        ),
    )
    yield from ((name, expected, why) for wanted, name, expected, why in table if wanted)
    for what, patterns in (("goes", expect.goes), ("stays", expect.stays)):
        for pattern in patterns:
            if not _names_something(pattern, measured):
                yield str(pattern), what, built if pattern.glob == ANYTHING else "there was no such object"


def _names_something(pattern: ObjectPattern, measured: Measurements) -> bool:
    """True if the pattern matches an object that was there at the start. `*` does not count: it names nothing."""
    candidates = (each.name for each in measured.before if pattern.kind in ("", each.kind))
    return pattern.glob != ANYTHING and any(fnmatch.fnmatchcase(name, pattern.glob) for name in candidates)


def _pods(expect: Expectation, measured: Measurements) -> Iterable[Check]:
    if expect.no_restarts:
        ended = ", ".join(pod.name for pod in measured.ended_pods)
        yield Check("pods that ran", "go on", f"ended: {ended}" if ended else "all go on", not ended)


def _lowest_here(expect: Expectation, filesystems: tuple[MeasuredFilesystem, ...]) -> dict[Signal, int]:
    """The lowest points, with percentages of the sizes of this node."""
    lowest = dict(expect.lowest or {})
    for signal, share in expect.lowest_shares.items():
        for filesystem in filesystems:
            if signal.filesystem in filesystem.roles:
                size = filesystem.inodes_total if signal.counts_inodes else filesystem.capacity_bytes
                lowest[signal] = int(share.of(size))
    return lowest
