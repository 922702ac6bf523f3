"""Runs a scenario on a real node: files in a directory make the pressure.

The daemon's own loop relieves the node in this process, or another component does and
is only observed. Everything is freed at the end, however the drill ends.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext

from eviction.drill.judge import DrillResult, Response, judge_real
from eviction.drill.observer import Limits, NodeObservation
from eviction.drill.real_fill_plan import FillPlan
from eviction.drill.scenario import Scenario
from eviction.drill.schedule import PREFIX, Bytes, Files, Grower, PressureSchedule
from eviction.surface.daemon import Daemon
from eviction.types import EvictionError
from eviction.wording.log import Log

SHORTEST_WAIT_SECONDS = 10.0  # wait at least this long for relief by our own daemon
OBSERVED_WAIT_SECONDS = 120.0  # a kubelet observes every 10 s, and its statistics may be 10 s old
LARGEST_FOUND = 3  # foreign entries that a message names at most


class FillFailed(EvictionError):
    """The disk could not be filled. The message says why."""


def run_in_directory(
    scenario: Scenario,
    plan: FillPlan,
    directory: str,
    *,
    observation: NodeObservation,
    response: Response,
    log: Log,
    limits: Limits,
) -> DrillResult | None:
    """Prefills a directory, applies pressures in it, observes, frees everything, and judges.

    `response`: what relieves the node, the daemon's loop in this process or another component.

    Returns None if `observation.stopping` was set. Raises FillFailed. Everything
    has been freed then, too.
    """
    stopping = observation.stopping
    ours = response is Response.OURS
    patience = SHORTEST_WAIT_SECONDS if ours else OBSERVED_WAIT_SECONDS
    patience = max(patience, (scenario.expect.relieved_within_seconds or 0.0) * 2)
    with ExitStack() as filled:

        def grow(inodes: bool, rate: int, amount: int | None, *, file_bytes: int = 0) -> Grower:
            made = (Files if inodes else Bytes)(
                path=directory,
                file="unnamed",
                rate=rate,
                amount=amount,
                file_bytes=file_bytes,
                reserve=plan.units[inodes].reserve,
            )
            filled.callback(made.free)
            return made

        pressures = PressureSchedule(
            scenario.pressures,
            lambda each, _: grow(
                each.counts_inodes, each.rate, each.amount, file_bytes=each.file_bytes
            ),
        )
        try:
            # before the clock starts and anything is measured
            for inodes, unit in plan.units.items():
                prefill = grow(inodes, 0, unit.prefill)
                while prefill.goes_on() and not stopping.is_set():
                    pass
        except OSError as error:
            raise FillFailed(error.strerror or str(error)) from None
        if not stopping.is_set():
            daemon = observation.beside(Daemon(observation.node, log)) if ours else nullcontext()
            with daemon:
                observation.watch(limits._replace(patience_seconds=patience), pressures)
        if pressures.problem:
            raise FillFailed(pressures.problem)
    if stopping.is_set():
        return None
    observation.measured.pressures = pressures.periods
    identity = plan.identity
    return DrillResult(
        scenario.name,
        scenario.why,
        f"{identity.type or 'the filesystem'} of {identity.path}, on a real node",
        measurements=observation.measured,
        checks=judge_real(scenario.expect, observation.measured, response),
        response=response,
    )


# ---- what is in the directory before


def traces(directory: str) -> list[str]:
    """The entries of other drills, which fill the directory or were killed with what fills it."""
    return sorted(name for name in os.listdir(directory) if name.startswith(PREFIX))


def mount_point(directory: str) -> str:
    """The highest directory above `directory` on the same filesystem."""
    path = os.path.realpath(directory)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def foreign_entries(directory: str, own: Iterable[str]) -> list[str]:
    """The first few paths on the directory's filesystem that are not, nor lead to, one in `own`.

    Raises OSError if a directory cannot be read.
    """
    known = {os.path.realpath(path) for path in (*own, directory)}
    top = mount_point(directory)
    found: list[str] = []
    pending = [top]
    while pending and len(found) < LARGEST_FOUND:
        at = pending.pop()
        for name in sorted(os.listdir(at)):
            path = os.path.join(at, name)
            if path in known or (at == top and name == "lost+found") or name.startswith(PREFIX):
                continue
            if any(each.startswith(f"{path}/") for each in known) and not os.path.islink(path):
                pending.append(path)
            else:
                found.append(path)
    return found[:LARGEST_FOUND]
