"""Judges each expectation of a scenario against the measurements of a run.

On a real node only some can be judged: relief, the first removal, the lowest point, quiet,
objects whose name exists, and the condition if the daemon that reports it runs in the
drill. Instead of "no container starts again" the drill checks there that no pod that ran
has ended. All other expectations depend on the images, pods and configuration of the
scenario, and are reported as not judged.
"""

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from eviction.drill.measurements import Measurements, Objects, later
from eviction.drill.scenario import CONTAINER, INIT_CONTAINER, Expectation, PodSpec
from eviction.types import NodeCondition
from eviction.wording.explain import amount
from reclaim.types import Container, ContainerState, Kind
from signals.quantity import format_duration
from signals.types import Signal


@dataclass(frozen=True)
class Check:
    """One expectation, and whether it held."""

    name: str
    """What the expectation is about."""
    expected: str
    """What was expected, for people."""
    seen: str
    """What was measured, for people."""
    held: bool | None
    """Whether it held; null: it could not be judged."""


class Response(StrEnum):
    """What relieves the node: the daemon in this process, or a component that is only observed."""

    OURS = "reclaimd"
    OBSERVED = "observed"


class DrillResult(NamedTuple):
    """A run and its verdict."""

    scenario: str
    why: str
    filesystem: str
    measurements: Measurements
    checks: tuple[Check, ...] = ()
    response: Response = Response.OURS

    @property
    def held(self) -> bool:
        """True if every expectation that could be judged held."""
        return all(check.held is not False for check in self.checks)


def judge(expect: Expectation, measured: Measurements, faults: int = 0) -> tuple[Check, ...]:
    """All expectations of a scenario, judged, in the order of the report.

    `faults` is the number of its faults: unless all were triggered, the run did not test what the
    scenario says.
    """
    return (
        *_times(expect, measured),
        *_numbers(expect, measured),
        *_objects(expect, measured),
        *_afterwards(expect, measured, faults),
    )


def judge_real(
    expect: Expectation, measured: Measurements, response: Response
) -> tuple[Check, ...]:
    """All expectations on a real node: first those that were judged, then the others."""
    judged = {"relieved", "first removal", "quiet"}
    judged |= {f"lowest {signal}" for signal in expect.lowest}
    if response is Response.OURS:
        judged |= {"ReclaimPressure", "ReclaimPressure comes"}
    for pattern in (*expect.goes, *expect.stays):
        if pattern.rpartition(" ")[2] != "*" and _matching(pattern, measured.before):
            judged.add(pattern)
    checks = [
        check
        if check.name in judged
        else replace(
            check, seen="not judged: it depends on the node that the scenario builds", held=None
        )
        for check in judge(expect.model_copy(update={"no_restarts": False}), measured)
    ]
    if expect.no_restarts:
        ended = ", ".join(pod.name for pod in measured.ended_pods)
        seen = f"ended: {ended}" if ended else "all go on"
        checks.append(Check("pods that ran", "go on", seen, held=not ended))
    return tuple(sorted(checks, key=lambda check: check.held is None))


# ---- the expectations


def _times(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    condition = expect.condition
    name = NodeCondition.RECLAIM_PRESSURE
    periods = [period for period in measured.conditions if period.condition == name]
    came = periods[0].from_seconds if periods else None
    went = periods[-1].to_seconds if periods else None
    remains = measured.under_pressure
    if condition.never:
        yield _fact(name, "never", "never" if came is None else f"after {came:.3f} s")
    elif condition.comes_within_seconds is None:
        yield _fact(name, "comes", "comes" if periods else "never came")
    if expect.never_relieved:
        yield _fact("pressure", "remains", "remains" if remains else "does not remain")
    crossing = "crossing the mark"
    nothing = "nothing was removed"
    first = measured.from_crossing_to_first_removal_seconds
    # name, since, the limit, what was measured, and what is said if it never was
    table = (
        (
            f"{name} comes",
            crossing,
            condition.comes_within_seconds,
            later(measured.crossed_seconds, came),
            "never came",
        ),
        (
            f"{name} goes",
            "relief",
            condition.goes_within_seconds,
            later(measured.last_relief, went),
            "did not go",
        ),
        (
            "relieved",
            crossing,
            expect.relieved_within_seconds,
            measured.from_crossing_to_relief_seconds,
            "not relieved" if measured.episodes else "no mark was crossed",
        ),
        ("first removal", crossing, expect.first_removal_within_seconds, first, nothing),
    )
    for what, since, limit, took, never in table:
        if limit is not None:
            seen = never if took is None else f"after {took:.3f} s"
            yield Check(
                what,
                f"within {format_duration(limit)} of {since}",
                seen,
                held=took is not None and took <= limit,
            )
    earliest = expect.first_removal_not_before_seconds
    if earliest is not None:
        expected = f"before {format_duration(earliest)} after {crossing}"
        seen = nothing if first is None else f"after {first:.3f} s"
        yield Check("no removal", expected, seen, held=first is None or first >= earliest)
    if expect.quiet_seconds is not None:
        quiet = measured.ended - measured.last_change
        expected = f"for {format_duration(expect.quiet_seconds)} at the end"
        yield Check("quiet", expected, f"for {quiet:.3f} s", held=quiet >= expect.quiet_seconds)


def _numbers(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    least = expect.images_left_at_least
    if least:
        left = sum(kind == Kind.IMAGE for kind, _ in measured.after)
        yield Check("images left", f"at least {least}", str(left), held=left >= least)
    signals = {} if measured.observations is None else measured.observations.signals
    for name, share in expect.lowest.items():
        signal = Signal(name)
        # a percentage is of the capacity that was measured
        capacity = signals[signal].capacity if signal in signals else 0
        least = share if isinstance(share, int) else share.of(capacity)
        lowest = measured.lowest(signal)
        seen = "not measured" if lowest is None else amount(signal, lowest)
        yield Check(
            f"lowest {signal}",
            f"at least {amount(signal, least)}",
            seen,
            lowest is not None and lowest >= least,
        )
    limit = expect.passes_at_most
    if limit is not None:
        passes = len(measured.passes)
        yield Check("passes", f"at most {limit}", str(passes), held=passes <= limit)


def _objects(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.nothing_goes:
        gone = ", ".join(removal.name for removal in measured.removals)
        seen = f"removed: {gone}" if gone else "nothing was removed"
        yield Check("nothing", "goes", seen, held=not gone)
    for expected, otherwise, patterns in (
        ("goes", "still there", expect.goes),
        ("stays", "gone", expect.stays),
    ):
        for pattern in patterns:
            was = _matching(pattern, measured.before)
            left = _matching(pattern, measured.after)
            wrong = left if expected == "goes" else sorted(set(was) - set(left))
            seen = f"{otherwise}: {', '.join(wrong)}" if wrong else expected
            yield _fact(pattern, expected, seen if was else "was never there")


def _matching(pattern: str, objects: Objects) -> list[str]:
    kind, _, glob = pattern.rpartition(" ")
    return sorted(
        {
            name
            for (of, _), name in objects.items()
            if kind in ("", of) and fnmatch.fnmatchcase(name, glob)
        }
    )


def _afterwards(expect: Expectation, measured: Measurements, faults: int) -> Iterator[Check]:
    if expect.says:
        reason = measured.passes[-1].reason if measured.passes else "there was no pass"
        yield Check("last pass says", expect.says, reason, held=expect.says in reason)
    if faults:
        yield _fact("faults", f"{faults} triggered", f"{len(measured.faults)} triggered")
    if expect.no_restarts:
        nothing = "starts nothing again"
        names = ", ".join(measured.would_restart)
        yield _fact("the kubelet", nothing, f"would start {names}" if names else nothing)
    if expect.new_pod_starts:
        problem = measured.new_pod_problem
        starts = "starts afterwards"
        yield _fact("new pod", starts, "not tried" if problem is None else problem or starts)


def _fact(name: str, expected: str, seen: str) -> Check:
    """A check that holds if what was seen is what was expected."""
    return Check(name, expected, seen, held=seen == expected)


# ---- the kubelet's restart rule
#
# A garbage collector can do harm that no list shows: if it removes the last record of a
# container that has finished, the kubelet runs that container again. So the drill applies the
# kubelet's rule before and after a run. It covers pods that are not being deleted, and no
# back-off, probes or sidecars.
#
# Source: kubelet, `pkg/kubelet/container/helpers.go`, ShouldContainerBeRestarted; for init
# containers, which run again only if they failed or if no record says that they ran,
# `pkg/kubelet/kuberuntime/kuberuntime_container.go`.


def would_start(
    pods: Iterable[PodSpec], containers: Iterable[Container], exit_codes: Mapping[str, int]
) -> frozenset[str]:
    """The containers (`pod/container`) that the kubelet would start now, of the pods that it knows.
    `exit_codes`: by id of the containers that have exited."""
    newest = {
        (each.pod_name, each.name): each
        for each in sorted(containers, key=lambda each: each.created_at_ns)
    }
    starts = set[str]()
    for pod in pods:
        # a name -> whether it never runs again once it has succeeded
        rules = {CONTAINER: pod.state == "completed"} if pod.known_to_kubelet else {}
        if pod.state == "initialized":
            rules[INIT_CONTAINER] = True
        for pod_name, (name, once) in product(pod.names, rules.items()):
            last = newest.get((pod_name, name))
            goes_on = last is not None and (
                last.state is ContainerState.RUNNING
                or (
                    once and last.state is ContainerState.EXITED and exit_codes.get(last.id, 0) == 0
                )
            )
            if not goes_on:
                starts.add(f"{pod_name}/{name}")
    return frozenset(starts)
