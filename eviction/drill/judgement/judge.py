"""Judges each expectation of a scenario against the measurements of a run.

On a real node only some can be judged: relief, the first removal, the lowest point, quiet,
objects whose name exists, and the condition if the daemon that reports it runs in the
drill. Instead of "no container starts again" the drill checks there that no pod that ran
has ended. All other expectations depend on the images, pods and configuration of the
scenario, and are reported as not judged.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Any

from eviction.drill.measurement.measurements import Measurements, Objects, later
from eviction.drill.scenario import (
    CONTAINER,
    INIT_CONTAINER,
    Expectation,
    PodSpec,
    RestartPolicy,
)
from eviction.types import NodeCondition
from eviction.wording.tables import amount
from reclaim.types import Container, ContainerState, Kind
from signals.quantity import Percentage, format_duration
from signals.types import Signal

ANYTHING = "*"
NOT_JUDGED = "not judged: it depends on the node that the scenario builds"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class DrillResult:
    """A run and its verdict. `history`: the last observations of a daemon that ran here."""

    scenario: str
    why: str
    filesystem: str
    measurements: Measurements
    checks: tuple[Check, ...] = ()
    history: Mapping[str, Any] = field(default_factory=dict)
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
        *_conditions(expect, measured),
        *_relief(expect, measured),
        *_first_removal(expect, measured),
        *_numbers(expect, measured),
        *(_object(pattern, True, measured) for pattern in expect.goes),
        *(_object(pattern, False, measured) for pattern in expect.stays),
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
        if pattern.rpartition(" ")[2] != ANYTHING and _matching(pattern, measured.before):
            judged.add(pattern)
    checks = [
        check if check.name in judged else replace(check, seen=NOT_JUDGED, held=None)
        for check in judge(expect.model_copy(update={"no_restarts": False}), measured)
    ]
    if expect.no_restarts:
        ended = ", ".join(pod.name for pod in measured.ended_pods)
        seen = f"ended: {ended}" if ended else "all go on"
        checks.append(Check("pods that ran", "go on", seen, held=not ended))
    return tuple(sorted(checks, key=lambda check: check.held is None))


# ---- conditions and times


def _conditions(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    wanted = expect.condition
    name = "ReclaimPressure"
    periods = [
        one for one in measured.conditions if one.condition is NodeCondition.RECLAIM_PRESSURE
    ]
    came = periods[0].from_seconds if periods else None
    if wanted.never:
        seen = "never" if came is None else f"after {_time(came)}"
        yield Check(name, "never", seen, held=not periods)
        return
    since = "crossing the mark"
    never = "never came"
    if wanted.comes_within_seconds is None:
        yield Check(name, "comes", "came" if periods else never, held=bool(periods))
    took = later(measured.crossed_seconds, came)
    yield from _within(f"{name} comes", since, wanted.comes_within_seconds, took=took, never=never)
    relieved = measured.episodes[-1].relieved if measured.episodes else None
    took = later(relieved, periods[-1].to_seconds if periods else None)
    limit = wanted.goes_within_seconds
    yield from _within(f"{name} goes", "relief", limit, took=took, never="did not go")


def _relief(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.never_relieved:
        remains = bool(measured.episodes) and measured.episodes[-1].relieved is None
        seen = "remains" if remains else "does not remain"
        yield Check("pressure", "remains", seen, held=remains)
    limit = expect.relieved_within_seconds
    took = measured.from_crossing_to_relief_seconds
    never = "not relieved" if measured.episodes else "no mark was crossed"
    yield from _within("relieved", "crossing the mark", limit, took=took, never=never)


def _first_removal(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    took = measured.from_crossing_to_first_removal_seconds
    nothing = "nothing was removed"
    limit = expect.first_removal_within_seconds
    yield from _within("first removal", "crossing the mark", limit, took=took, never=nothing)
    earliest = expect.first_removal_not_before_seconds
    if earliest is not None:
        expected = f"before {format_duration(earliest)} after crossing the mark"
        seen = nothing if took is None else f"after {_time(took)}"
        yield Check("no removal", expected, seen, held=took is None or took >= earliest)
    if expect.nothing_goes:
        gone = ", ".join(removal.name for removal in measured.removals)
        yield Check("nothing", "goes", f"removed: {gone}" if gone else nothing, held=not gone)


# ---- numbers


def _numbers(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.images_left_at_least:
        left = sum(kind == Kind.IMAGE for kind, _ in measured.after)
        least = expect.images_left_at_least
        yield Check("images left", f"at least {least}", str(left), held=left >= least)
    for name, share in expect.lowest.items():
        signal = Signal(name)
        least = _least(signal, share, measured)
        lowest = measured.lowest(signal)
        seen = "not measured" if lowest is None else amount(signal, lowest)
        held = lowest is not None and lowest >= least
        yield Check(f"lowest {signal}", f"at least {amount(signal, least)}", seen, held)
    if expect.passes_at_most is not None:
        yield _at_most("passes", expect.passes_at_most, len(measured.passes))
    if expect.says:
        reason = measured.passes[-1].record.reason if measured.passes else "there was no pass"
        yield Check("last pass says", expect.says, reason, held=expect.says in reason)


def _at_most(name: str, limit: int, seen: int) -> Check:
    return Check(name, f"at most {limit}", str(seen), held=seen <= limit)


def _least(signal: Signal, share: int | Percentage, measured: Measurements) -> int:
    """The least amount. A percentage is of the capacity that was measured."""
    if isinstance(share, int):
        return share
    signals = {} if measured.observations is None else measured.observations.signals
    return share.of(signals[signal].capacity) if signal in signals else 0


# ---- objects


def _object(pattern: str, goes: bool, measured: Measurements) -> Check:
    was = _matching(pattern, measured.before)
    left = _matching(pattern, measured.after)
    wrong = left if goes else sorted(set(was) - set(left))
    wanted, right, otherwise = (
        ("goes", "gone", "still there") if goes else ("stays", "there", "gone")
    )
    seen = right if was else "was never there"
    if wrong:
        seen = f"{otherwise}: {', '.join(wrong)}"
    return Check(pattern, wanted, seen, held=bool(was) and not wrong)


def _matching(pattern: str, objects: Objects) -> list[str]:
    kind, _, glob = pattern.rpartition(" ")
    candidates = {name for (of, _), name in objects.items() if kind in ("", of)}
    return sorted(name for name in candidates if fnmatch.fnmatchcase(name, glob))


# ---- afterwards


def _afterwards(expect: Expectation, measured: Measurements, faults: int) -> Iterator[Check]:
    if expect.quiet_seconds is not None:
        quiet = measured.ended - measured.last_change
        expected = f"for {format_duration(expect.quiet_seconds)} at the end"
        held = quiet >= expect.quiet_seconds
        yield Check("quiet", expected, f"for {_time(quiet)}", held)
    if faults:
        triggered = len(measured.faults)
        held = triggered == faults
        yield Check("faults", f"{faults} triggered", f"{triggered} triggered", held)
    if expect.no_restarts:
        names = ", ".join(measured.would_restart)
        seen = f"would start {names}" if names else "nothing"
        yield Check("the kubelet", "starts nothing again", seen, held=not names)
    if expect.new_pod_starts:
        problem = measured.new_pod_problem
        seen = "not tried" if problem is None else problem or "started"
        yield Check("new pod", "starts afterwards", seen, held=problem == "")


def _within(
    name: str, since: str, limit: float | None, *, took: float | None, never: str
) -> Iterator[Check]:
    if limit is not None:
        expected = f"within {format_duration(limit)} of {since}"
        seen = never if took is None else f"after {_time(took)}"
        yield Check(name, expected, seen, held=took is not None and took <= limit)


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s"


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


def should_container_be_restarted(
    policy: RestartPolicy, state: ContainerState | None, exit_code: int = 0
) -> bool:
    """Whether the kubelet would start the container.

    `state`, `exit_code`: those of its newest copy; None if the runtime has no record of it.
    """
    if state is not ContainerState.EXITED:
        return state is not ContainerState.RUNNING
    return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and exit_code != 0)


def would_start(
    pods: Iterable[PodSpec], containers: Iterable[Container], exit_codes: Mapping[str, int]
) -> frozenset[str]:
    """The containers (`pod/container`) that the kubelet would start now, of the pods that it knows.
    `exit_codes`: by id of the containers that have exited."""
    newest: dict[tuple[str, str], Container] = {}
    for container in sorted(containers, key=lambda each: each.created_at_ns):
        newest[container.pod_name, container.name] = container
    starts: set[str] = set()
    for pod in pods:
        if not pod.known_to_kubelet:
            continue
        rules = {CONTAINER: pod.restart_policy}
        if pod.state == "initialized":
            # an init container that succeeded is never run again
            rules[INIT_CONTAINER] = RestartPolicy.ON_FAILURE
        for pod_name, (name, policy) in product(pod.names, rules.items()):
            last = newest.get((pod_name, name))
            state = None if last is None else last.state
            exit_code = 0 if last is None else exit_codes.get(last.id, 0)
            if should_container_be_restarted(policy, state, exit_code):
                starts.add(f"{pod_name}/{name}")
    return frozenset(starts)
