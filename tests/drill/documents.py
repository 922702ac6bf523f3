"""Invented scenarios and measurements for tests of the drill."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from eviction.drill.measurements import (
    ConditionPeriod,
    Episode,
    MeasuredFilesystem,
    MeasuredRemoval,
    Measurements,
    Sample,
)
from eviction.drill.scenario import Scenario, scenario_of
from eviction.drill.schedule import FaultOccurrence, PressurePeriod
from eviction.records.passes import Pass, PassResult
from eviction.types import NodeCondition
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from signals.types import KUBELET_ROLES, FilesystemRole, Signal, SignalObservations
from tests.pure.records.documents import a_pass
from tests.pure.values import observation, observations_of, threshold

MIB = 1 << 20
SCENARIO: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("small.yaml").read_text())
MARK = threshold(Signal.NODEFS_AVAILABLE, "10Mi")


def document(**changes: Any) -> dict[str, Any]:
    """The document of the small scenario.

    `changes` replace entries of its parts; None removes an entry.
    """
    made: dict[str, Any] = dict(SCENARIO)
    for part, change in changes.items():
        if isinstance(change, dict) and isinstance(SCENARIO.get(part), dict):
            made[part] = {
                key: value
                for key, value in {**SCENARIO[part], **change}.items()
                if value is not None
            }
        else:
            made[part] = change
    return made


def scenario(**changes: Any) -> Scenario:
    """The small scenario, as the reader returns it."""
    return scenario_of(document(**changes), "a.yaml")


def available(left: int) -> SignalObservations:
    """Observations of a node with one filesystem of 100 MiB."""
    return observations_of(observation(MARK.signal, left, 100 * MIB))


def removed(name: str) -> Outcome:
    """An image that a pass has removed."""
    return Outcome(
        Verdict(Kind.IMAGE, f"id {name}", name, Action.REMOVE, Reason.UNUSED), Result.REMOVED
    )


def one_pass(
    *images: str, after: int, result: PassResult = PassResult.SATISFIED, reason: str = ""
) -> Pass:
    """A pass that removed images and left so many bytes available."""
    return a_pass(
        ReclaimResult("DeleteUnusedImages", tuple(map(removed, images))),
        met=MARK,
        id="p",
        started_wall=1.1,
        observations=available(9 * MIB),
        after=available(after),
        result=result,
        reason=reason,
    )


MADE: dict[str, Callable[..., object]] = {
    "conditions": lambda name, *times: ConditionPeriod(NodeCondition(name), *times),
    "ended_pods": MeasuredRemoval,
    "episodes": Episode,
    "faults": FaultOccurrence,
    "filesystems": lambda name, roles, *sizes: MeasuredFilesystem(
        FilesystemRole(name), tuple(map(FilesystemRole, roles.split())), *sizes
    ),
    "pressures": PressurePeriod,
    "removals": MeasuredRemoval,
    "samples": lambda seconds, *rooms: Sample(seconds, tuple(map(tuple, rooms))),
}


def measured(written: dict[str, Any]) -> dict[str, Any]:
    """Changes of measurements, from what a file has: a list for each of several."""
    return {
        name: tuple(MADE[name](*each) if name in MADE else each for each in value)
        if isinstance(value, list)
        else value
        for name, value in written.items()
    }


def measurements(**changes: Any) -> Measurements:
    """A run in which everything went well: crossed at 1 s, an image gone at
    1.1 s, relieved at 1.2 s.
    """
    names = {"image a:1", "image b:1", "container default/web/app#0"}
    before = {(name.split()[0], f"id {name}"): name.split()[1] for name in names}
    whole = Measurements(
        filesystems=(MeasuredFilesystem(FilesystemRole.NODEFS, KUBELET_ROLES, 100 * MIB, 1000),),
        samples=[
            Sample(0.0, ((50 * MIB, 900),)),
            Sample(1.0, ((9 * MIB, 800),)),
            Sample(2.0, ((20 * MIB, 900),)),
        ],
        thresholds=(MARK,),
        observations=available(20 * MIB),
        episodes=[Episode(1.0, 1.2)],
        conditions=[ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, 1.01, 1.7)],
        passes=[one_pass("a:1", after=20 * MIB, reason="removed 1 object")],
        removals=[MeasuredRemoval(1.1, "image", "a:1", "id a")],
        before=before,
        after={key: name for key, name in before.items() if name != "a:1"},
        new_pod_problem="",
        last_change=1.3,
        ended=2.3,
    )
    return replace(whole, **changes)
