"""Judges each expectation of a scenario against the measurements of a run, on the
embedded node or on a real one.

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
from typing import Any

from eviction.decision.reclaim_table import relieved_by
from eviction.drill.measurement.measurements import MeasuredPass, Measurements, Objects
from eviction.drill.scenario import (
    CONTAINER,
    INIT_CONTAINER,
    Expectation,
    PodSpec,
    PodState,
    RestartPolicy,
)
from eviction.records.passes import PassResult
from eviction.types import NodeCondition, Threshold
from eviction.wording.tables import amount
from reclaim.types import DELETE_UNUSED_IMAGES, Container, ContainerState, Kind, Result
from signals.quantity import Percentage, format_duration
from signals.types import FsLayout, Signal

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
    """What relieves the node: the daemon in this process, or another component,
    which the drill only observes.
    """

    OURS = "reclaimd"
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True)
class DrillResult:
    """A run and its verdict.

    `history`: the daemon's last observations, if an expectation did not hold.
    `lists_apart_seconds`: the longest time between two polls of the runtime's lists; None if the
    removals are from the embedded runtime's record.
    """

    scenario: str
    why: str
    layout: FsLayout | None
    filesystem: str
    simulated: bool
    measurements: Measurements
    checks: tuple[Check, ...]
    history: Mapping[str, Any] = field(default_factory=dict)
    response: Response = Response.OURS
    lists_apart_seconds: float | None = None

    @property
    def held(self) -> bool:
        """True if every expectation that could be judged held."""
        return all(check.held is not False for check in self.checks)


def judge(expect: Expectation, measured: Measurements, faults: int = 0) -> tuple[Check, ...]:
    """All expectations of a scenario, judged, in the order of the report. `faults` is the number of
    its faults: unless all were triggered, the run did not test what the scenario says."""
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
    judged = {
        "relieved",
        "first removal",
        "quiet",
        *(f"lowest {signal}" for signal in expect.lowest),
    }
    if response is Response.OURS:
        judged |= {"ReclaimPressure", "ReclaimPressure comes"}
    named = (
        pattern
        for pattern in (*expect.goes, *expect.stays)
        if pattern.rpartition(" ")[2] != ANYTHING
    )
    judged |= {pattern for pattern in named if _matching(pattern, measured.before)}
    checks = [
        check if check.name in judged else replace(check, seen=NOT_JUDGED, held=None)
        for check in judge(expect.model_copy(update={"no_restarts": False}), measured)
    ]
    if expect.no_restarts:
        ended = ", ".join(pod.name for pod in measured.ended_pods)
        checks.append(
            Check("pods that ran", "go on", f"ended: {ended}" if ended else "all go on", not ended)
        )
    return tuple(sorted(checks, key=lambda check: check.held is None))


def lost_beyond_need(measured: Measurements) -> int:
    """The number of images that were removed although the other removals of their pass were enough.

    Walks each satisfied pass back from its last image. An image was not needed if the surplus (what
    was available above the mark and the minimum reclaim at the end of the pass) is at least the
    size of its layers, except those that another image shares. Anything written during the pass
    lowers the surplus, so the number is never too high.
    """
    layers = measured.layers or {}
    left = [name for (kind, _), name in measured.after.items() if kind == Kind.IMAGE]
    needed = {layer for name in left for layer in layers.get(name, ())}
    counted: set[str] = set()  # two collectors may both report the removal of one image
    not_needed = 0
    for one in reversed(measured.passes):
        removed = [
            o
            for o in one.record.removals
            if o.verdict.kind is Kind.IMAGE and o.result is Result.REMOVED
        ]
        surplus = _surplus_at_the_end(one, measured.thresholds)
        for outcome in reversed([o for o in removed if o.verdict.name not in counted]):
            counted.add(outcome.verdict.name)
            own = set(layers.get(outcome.verdict.name, ())) - needed
            needed |= own
            taken = (sum(layer.size_bytes for layer in own), sum(layer.inodes for layer in own))
            surplus = [
                (threshold, left - taken[threshold.signal.counts_inodes])
                for threshold, left in surplus
            ]
            if not surplus or min(left for _, left in surplus) < 0:
                surplus = []  # this one was needed, and so were those removed before it
            else:
                not_needed += 1
    return not_needed


def _surplus_at_the_end(
    one: MeasuredPass, thresholds: tuple[Threshold, ...]
) -> list[tuple[Threshold, int]]:
    """The surplus of each threshold that removing images relieves; empty if unknown."""
    after, layout = one.record.after, one.record.decision.layout
    if one.record.result is not PassResult.SATISFIED or after is None or layout is None:
        return []
    surplus: list[tuple[Threshold, int]] = []
    for threshold in relieved_by(thresholds, DELETE_UNUSED_IMAGES, layout):
        observation = after.signals.get(threshold.signal)
        if observation is None:
            return []
        mark = threshold.mark_with_min_reclaim(observation.capacity)
        surplus.append((threshold, observation.available - mark))
    return surplus


# ---- conditions and times


def _conditions(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    wanted, name = expect.condition, "ReclaimPressure"
    periods = [
        one for one in measured.conditions if one.condition is NodeCondition.RECLAIM_PRESSURE
    ]
    if wanted.never:
        yield Check(
            name,
            "never",
            f"after {_time(periods[0].from_seconds)}" if periods else "never",
            not periods,
        )
        return
    if wanted.comes_within_seconds is None:
        yield Check(name, "comes", "came" if periods else "never came", bool(periods))
    else:
        crossed = measured.crossed_seconds
        came = (
            None if not periods or crossed is None else max(periods[0].from_seconds - crossed, 0.0)
        )
        yield _within(
            f"{name} comes",
            "crossing the mark",
            wanted.comes_within_seconds,
            took=came,
            never="never came",
        )
    if wanted.goes_within_seconds is not None:
        relieved = measured.episodes[-1].relieved if measured.episodes else None
        ended = periods[-1].to_seconds if periods else None
        took = None if relieved is None or ended is None else max(ended - relieved, 0.0)
        yield _within(
            f"{name} goes", "relief", wanted.goes_within_seconds, took=took, never="did not go"
        )


def _relief(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.never_relieved:
        remains = bool(measured.episodes) and measured.episodes[-1].relieved is None
        yield Check("pressure", "remains", "remains" if remains else "does not remain", remains)
    if expect.relieved_within_seconds is not None:
        never = "not relieved" if measured.episodes else "no mark was crossed"
        yield _within(
            "relieved",
            "crossing the mark",
            expect.relieved_within_seconds,
            took=measured.from_crossing_to_relief_seconds,
            never=never,
        )


def _first_removal(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    latest, earliest = expect.first_removal_within_seconds, expect.first_removal_not_before_seconds
    took, nothing = measured.from_crossing_to_first_removal_seconds, "nothing was removed"
    if latest is not None:
        yield _within("first removal", "crossing the mark", latest, took=took, never=nothing)
    if earliest is not None:
        expected = f"before {format_duration(earliest)} after crossing the mark"
        seen = nothing if took is None else f"after {_time(took)}"
        yield Check("no removal", expected, seen, took is None or took >= earliest)
    if expect.nothing_goes:
        gone = ", ".join(removal.name for removal in measured.removals)
        yield Check("nothing", "goes", f"removed: {gone}" if gone else nothing, not gone)


# ---- numbers


def _numbers(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.images_left_at_least:
        left, least = (
            sum(kind == Kind.IMAGE for kind, _ in measured.after),
            expect.images_left_at_least,
        )
        yield Check("images left", f"at least {least}", str(left), left >= least)
    if expect.images_lost_beyond_need is not None:
        lost, most = lost_beyond_need(measured), expect.images_lost_beyond_need
        yield Check("images lost beyond need", f"at most {most}", str(lost), lost <= most)
    for name, share in expect.lowest.items():
        signal = Signal(name)
        least, lowest = _least(signal, share, measured), measured.lowest(signal)
        seen = "not measured" if lowest is None else amount(signal, lowest)
        held = lowest is not None and lowest >= least
        yield Check(f"lowest {signal}", f"at least {amount(signal, least)}", seen, held)
    if expect.passes_at_most is not None:
        passes, most = len(measured.passes), expect.passes_at_most
        yield Check("passes", f"at most {most}", str(passes), passes <= most)
    if expect.says:
        reason = measured.passes[-1].record.reason if measured.passes else "there was no pass"
        yield Check("last pass says", expect.says, reason, expect.says in reason)


def _least(signal: Signal, share: int | Percentage, measured: Measurements) -> int:
    """The least amount. A percentage is of the capacity that was measured."""
    if isinstance(share, int):
        return share
    observation = (
        None if measured.observations is None else measured.observations.signals.get(signal)
    )
    return 0 if observation is None else share.of(observation.capacity)


# ---- objects


def _object(pattern: str, goes: bool, measured: Measurements) -> Check:
    was, left = _matching(pattern, measured.before), _matching(pattern, measured.after)
    wrong = left if goes else sorted(set(was) - set(left))
    words = ("goes", "gone", "still there") if goes else ("stays", "there", "gone")
    seen = f"{words[2]}: {', '.join(wrong)}" if wrong else words[1] if was else "was never there"
    return Check(pattern, words[0], seen, bool(was) and not wrong)


def _matching(pattern: str, objects: Objects) -> list[str]:
    kind, _, glob = pattern.rpartition(" ")
    candidates = {name for (of, _), name in objects.items() if kind in ("", of)}
    return sorted(name for name in candidates if fnmatch.fnmatchcase(name, glob))


# ---- afterwards


def _afterwards(expect: Expectation, measured: Measurements, faults: int) -> Iterator[Check]:
    if expect.quiet_seconds is not None:
        quiet, expected = (
            measured.ended - measured.last_change,
            format_duration(expect.quiet_seconds),
        )
        yield Check(
            "quiet",
            f"for {expected} at the end",
            f"for {_time(quiet)}",
            quiet >= expect.quiet_seconds,
        )
    if faults:
        triggered = len(measured.faults)
        yield Check("faults", f"{faults} triggered", f"{triggered} triggered", triggered == faults)
    if expect.no_restarts:
        names = ", ".join(measured.would_restart)
        yield Check(
            "the kubelet",
            "starts nothing again",
            f"would start {names}" if names else "nothing",
            not names,
        )
    if expect.new_pod_starts:
        problem = measured.new_pod_problem
        seen = "not tried" if problem is None else problem or "started"
        yield Check("new pod", "starts afterwards", seen, problem == "")


def _within(name: str, since: str, limit: float, *, took: float | None, never: str) -> Check:
    expected = f"within {format_duration(limit)} of {since}"
    return Check(
        name,
        expected,
        never if took is None else f"after {_time(took)}",
        took is not None and took <= limit,
    )


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
    """Whether the kubelet would start the container. `state`, `exit_code`: those of its newest
    copy; None if the runtime has no record of it."""
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
        if not pod.state.known_to_kubelet:
            continue
        rules = {CONTAINER: pod.restart_policy}
        if pod.state is PodState.INITIALIZED:
            # an init container that succeeded is never run again
            rules[INIT_CONTAINER] = RestartPolicy.ON_FAILURE
        for pod_name in pod.names:
            for name, policy in rules.items():
                found = newest.get((pod_name, name))
                status = (None,) if found is None else (found.state, exit_codes.get(found.id, 0))
                if should_container_be_restarted(policy, *status):
                    starts.add(f"{pod_name}/{name}")
    return frozenset(starts)
