"""The lines of `reclaimd plan`: what may go is listed in its order; what stays is
counted where it is much.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from eviction.cli.plan import MOST_KEPT_LISTED, plan_lines
from eviction.records.attribution import Attribution, Share, Use
from eviction.records.passes import Pass, Trigger
from eviction.types import Decision
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from signals.types import FilesystemRole, FsLayout
from tests.pure.values import MIB, observations_of


def planned(kept: int) -> Pass:
    """A plan in which one image may go, and so many containers and two images stay."""
    verdict = Verdict(Kind.IMAGE, "sha256:1", "old:1", Action.REMOVE, Reason.UNUSED, size_bytes=MIB)
    used = verdict._replace(name="app:1", action=Action.KEEP, reason=Reason.IN_USE)
    running = [
        Verdict(Kind.CONTAINER, f"{number}", f"pod-{number}/app", Action.KEEP, Reason.RUNNING)
        for number in range(kept - 2)
    ]
    done = ReclaimResult(
        "DeleteUnusedImages",
        (Outcome(verdict, Result.PLANNED),),
        tuple(map(Outcome, (used, used, *running))),
    )
    decision = Decision(frozenset(), (), None, (), FsLayout.SINGLE)
    return Pass("1", 0.0, Trigger.REQUEST, observations_of(), decision, functions=(done,))


def test_many_objects_that_stay_are_counted_by_reason() -> None:
    """On a terminal; what may go is listed."""
    lines = plan_lines(planned(100), 80)
    assert not any("pod-7/app" in line for line in lines)
    assert any(line.split()[:4] == ["planned", "image", "old:1", "1.0MiB"] for line in lines)
    where = lines.index(
        "kept: 100 objects, images of 2.0MiB as the runtime counts them; by reason (--all lists"
        " them):"
    )
    assert [line.split()[0] for line in lines[where + 1 : where + 4]] == ["COUNT", "98", "2"]
    assert "may go: 1 object, images of 1.0MiB as the runtime counts them, in this order" in lines


def test_what_images_take_is_named_by_what_it_counts() -> None:
    """The plan sums the sizes of the runtime; the table beside it has bytes on
    the disk, which are others.
    """
    shares = (Share(Use.IMAGES_MAY_GO, 3 * MIB, 1), Share(Use.ELSE, MIB))
    attribution = Attribution("/disk", (FilesystemRole.IMAGEFS,), 10 * MIB, 4 * MIB, shares)
    lines = plan_lines(replace(planned(1), attributions=(attribution,)))
    assert "may go: 1 object, images of 1.0MiB as the runtime counts them, in this order" in lines
    head = next(number for number, line in enumerate(lines) if line.startswith("ON DISK "))
    assert lines[head + 1].split()[0] == "3.0MiB"
    assert "images that may go" in lines[head + 1]


def test_what_an_image_frees_and_when_it_is_needed_again_are_said() -> None:
    """Both say why it has its place in the order; the runtime's size counts layers that stay."""
    record = planned(1)
    (function,) = record.functions
    (outcome,) = function.outcomes
    foretold = outcome.verdict._replace(frees_bytes=MIB // 2, needed_in_seconds=9 * 86400.0)
    lines = plan_lines(
        replace(
            record, functions=(replace(function, outcomes=(replace(outcome, verdict=foretold),)),)
        )
    )
    assert "no container uses it; frees 512.0KiB; expected to be needed again in 9d" in lines[1]
    where = (
        "may go: 1 object, images of 1.0MiB as the runtime counts them, which free 512.0KiB, in"
        " this order"
    )
    assert where in lines


@pytest.mark.parametrize(
    ("kept", "width", "everything"),
    [(100, None, False), (100, 80, True), (MOST_KEPT_LISTED, 80, False)],
)
def test_few_objects_are_listed_and_all_where_that_is_asked_for(
    kept: int, width: int | None, everything: bool
) -> None:
    """In a pipe too, so that a name can be searched."""
    lines = plan_lines(planned(kept), width, everything=everything)
    assert sum(line.startswith("keep ") for line in lines) == kept
    assert not any("--all" in line for line in lines)
