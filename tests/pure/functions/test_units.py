"""What goes of caches and checkpoints, and in which order: by ages, sizes and names alone."""

from __future__ import annotations

from typing import Any

import pytest

from reclaim.evidence.states import PodStates, Why, distrust
from reclaim.functions.caches import CacheSettings, plan_cache_units
from reclaim.functions.checkpoints import (
    CheckpointSettings,
    plan_checkpoints,
    pods_that_may_exist,
)
from reclaim.functions.units import HIDDEN, OPEN, Unit, reason_to_keep
from reclaim.types import Listing, PodSandbox, PodSandboxState

NOW, HOUR = 1e9, 3600.0
CACHES = CacheSettings(("/cache",), HOUR, keep=("models--kept--*", "hub/datasets--*"))


def unit(
    name: str, hours: float = 2, size: int = 10, problem: str = "", root: str = "/cache"
) -> Unit:
    """A unit below `root/hub` that was last used so many hours ago."""
    names = (b"hub", name.encode())
    return Unit(root, names, (1, 2), size, NOW - hours * HOUR, problem)


@pytest.mark.parametrize(
    ("given_unit", "reason", "goes"),
    [
        pytest.param(unit("models--a"), "cached", True, id="what was long not used goes"),
        pytest.param(unit("models--a", 0.9), "used_lately", False, id="what was used stays"),
        pytest.param(unit("models--a", problem=OPEN), OPEN, False, id="what is open stays"),
        pytest.param(unit("models--kept--a"), "keep_list", False, id="a pattern of the name keeps"),
        pytest.param(unit("datasets--a"), "keep_list", False, id="a pattern of the path keeps"),
        pytest.param(
            unit((HIDDEN + b"7").decode(), 0), "interrupted", True, id="what was begun is finished"
        ),
        pytest.param(
            unit((HIDDEN + b"7").decode(), 0, problem=OPEN), OPEN, False, id="unless it is open"
        ),
    ],
)
def test_a_unit_of_a_cache(given_unit: Unit, reason: str, goes: bool) -> None:
    """Goes, or stays, and why."""
    plan = plan_cache_units([given_unit], CACHES, NOW)
    (verdict,) = plan.remove + plan.keep
    assert (verdict.reason, verdict.removed) == (reason, goes)
    assert (verdict.eligible_in_seconds is not None) == (reason == "used_lately")


def test_what_is_over_the_limit_of_its_directory_goes_first() -> None:
    """The oldest of 60 bytes below /cache until 30 are left, then what was left over, by age; the
    limit of one directory is not that of another, and what stays counts, too."""
    settings = CACHES._replace(roots=("/cache", "/other"), max_bytes=30)
    units = [
        unit("young", 0, 20),
        *(unit(name, hours) for name, hours in (("a", 5), ("b", 4), ("c", 3), ("d", 2))),
        unit("small", 9, 30, root="/other"),
        unit((HIDDEN + b"1").decode(), 0, 0),
    ]
    plan = plan_cache_units(units, settings, NOW)
    order = [(verdict.id.rpartition("/")[2], verdict.reason) for verdict in plan.remove]
    over = [(name, "over_limit_of_cache") for name in ("a", "b", "c")]
    left = ((HIDDEN + b"1").decode(), "interrupted")
    assert order == [left, *over, ("small", "cached"), ("d", "cached")]


# ---- checkpoints

CHECKPOINTS = CheckpointSettings("/root", 24 * HOUR, keep=1)
TIME = "2026-11-29T10:00:0{}Z"


def checkpoint(of: str, hours: float, number: int = 0, problem: str = "") -> Unit:
    """A checkpoint as the kubelet names it, written so many hours ago."""
    name = f"checkpoint-{of}-{TIME.format(number)}.tar"
    return Unit("/root/checkpoints", (name.encode(),), (1, 2), 10, NOW - hours * HOUR, problem)


NEWER = checkpoint("web_shop-app", 25, 1)


@pytest.mark.parametrize(
    ("given_unit", "pods", "reason"),
    [
        pytest.param(checkpoint("web_shop-app", 30), (), "pod_gone", id="of a pod that is gone"),
        pytest.param(checkpoint("web_shop-app", 30), None, "pod_unknown", id="pods are not known"),
        pytest.param(checkpoint("web_shop-app", 30), ("web_shop",), "pod_alive", id="of a pod"),
        pytest.param(
            checkpoint("web_shop-app", 30), ("web_shop-app",), "pod_alive", id="of a whole pod"
        ),
        pytest.param(
            checkpoint("web_shop-app", 30), ("web_sho",), "pod_gone", id="of another namespace"
        ),
        pytest.param(checkpoint("db_shop-app", 30), (), "newest_checkpoint", id="the newest"),
        pytest.param(
            checkpoint("web_shop-app", 30, problem=OPEN), (), OPEN, id="while it is written"
        ),
        pytest.param(
            Unit("/root/checkpoints", (b"notes.txt",), (1, 2), 1, 0.0),
            (),
            "not_kubelets",
            id="another file",
        ),
    ],
)
def test_a_checkpoint(given_unit: Unit, pods: tuple[str, ...] | None, reason: str) -> None:
    """Beside a newer one of `web_shop-app`: why it goes or stays."""
    plan = plan_checkpoints([given_unit, NEWER], pods, CHECKPOINTS, now=NOW)
    (verdict,) = (each for each in plan.remove + plan.keep if each.id == given_unit.id)
    assert (verdict.reason, verdict.removed) == (reason, reason == "pod_gone")


def test_a_young_checkpoint_and_a_marked_one_stay_and_the_oldest_goes_first() -> None:
    """By age, by the file beside it, and by their number."""
    units = [checkpoint("a_b-c", hours, number) for number, hours in enumerate((40, 30, 20, 10))]
    marked = [checkpoint("a_b-d", hours, number) for number, hours in enumerate((60, 10))]
    plan = plan_checkpoints(units + marked, (), CHECKPOINTS, now=NOW, marked=[marked[0].id])
    assert [each.id for each in plan.remove] == [units[0].id, units[1].id]
    kept = {each.id: each.reason for each in plan.keep}
    assert kept == {
        units[2].id: "used_lately",
        units[3].id: "newest_checkpoint",
        marked[0].id: "keep_list",
        marked[1].id: "newest_checkpoint",
    }


def test_which_pods_may_exist_is_not_known_with_a_doubt_or_a_pod_without_a_name() -> None:
    """Unknown is not gone: no name is known of a pod of which the runtime holds nothing yet."""
    listing = Listing(
        sandboxes=tuple(
            PodSandbox(f"s{uid}", PodSandboxState.READY, 0, uid, name, "shop")
            for uid, name in (("u1", "web"), ("u2", "gone"))
        )
    )
    assert pods_that_may_exist(PodStates(frozenset({"u1"})), listing) == frozenset({"web_shop"})
    assert pods_that_may_exist(PodStates(frozenset({"u1", "u3"})), listing) is None
    doubt = distrust(Why.EXCHANGED, "it was exchanged")
    assert pods_that_may_exist(PodStates(frozenset({"u1"}), doubt=doubt), listing) is None
    assert pods_that_may_exist(PodStates(None), listing) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"identity": (1, 3)}, "replaced"),
        ({"used_at": NOW}, "used_lately"),
        ({"used_at": 0.0}, ""),  # renamed: its own time of change is left out
        ({"problem": OPEN}, OPEN),
    ],
)
def test_what_the_last_look_keeps(changes: dict[str, Any], reason: str) -> None:
    """Another entry of its name, a use since the plan, a process that has it."""
    planned = unit("models--a")
    assert reason_to_keep(planned, planned._replace(**changes)) == reason
