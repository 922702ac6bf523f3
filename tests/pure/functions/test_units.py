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
from tests.rows import rows

NOW, HOUR = 1e9, 3600.0
CACHES = CacheSettings(("/cache",), HOUR, keep=("models--kept--*", "hub/datasets--*"))


def unit(
    name: str, hours: float = 2, size: int = 10, problem: str = "", root: str = "/cache"
) -> Unit:
    """A unit below `root/hub` that was last used so many hours ago."""
    names = (b"hub", name.encode())
    return Unit(root, names, (1, 2), size, NOW - hours * HOUR, problem)


@rows("""
    what                         | name            | hours | problem | reason      | goes
    what was long not used goes  | models--a       | 2     |         | cached      | yes
    what was used stays          | models--a       | 0.9   |         | used_lately |
    what is open stays           | models--a       | 2     | open    | open        |
    a pattern of the name keeps  | models--kept--a | 2     |         | keep_list   |
    a pattern of the path keeps  | datasets--a     | 2     |         | keep_list   |
    what was begun is finished   | HIDDEN7         | 0     |         | interrupted | yes
    unless it is open            | HIDDEN7         | 0     | open    | open        |
""")
def test_a_unit_of_a_cache(name: str, hours: float, problem: str, reason: str, goes: bool) -> None:
    """Goes, or stays, and why."""
    one = unit(name.replace("HIDDEN", HIDDEN.decode()), hours, problem=problem and OPEN)
    plan = plan_cache_units([one], CACHES, NOW)
    (verdict,) = plan.remove + plan.keep
    assert (verdict.reason, verdict.removed) == (reason.replace("open", OPEN), goes)
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


@rows("""
    what                   | of           | pods         | problem | reason
    of a pod that is gone  | web_shop-app | none         |         | pod_gone
    pods are not known     | web_shop-app |              |         | pod_unknown
    of a pod               | web_shop-app | web_shop     |         | pod_alive
    of a whole pod         | web_shop-app | web_shop-app |         | pod_alive
    of another namespace   | web_shop-app | web_sho      |         | pod_gone
    the newest             | db_shop-app  | none         |         | newest_checkpoint
    while it is written    | web_shop-app | none         | open    | open
    another file           |              | none         |         | not_kubelets
""")
def test_a_checkpoint(of: str, pods: str | None, problem: str, reason: str) -> None:
    """Beside a newer one of `web_shop-app`: why it goes or stays."""
    one = checkpoint(of, 30, problem=problem and OPEN)
    if not of:
        one = one._replace(names=(b"notes.txt",))
    plan = plan_checkpoints([one, NEWER], pods and [pods], CHECKPOINTS, now=NOW)
    (verdict,) = (each for each in plan.remove + plan.keep if each.id == one.id)
    assert (verdict.reason, verdict.removed) == (reason.replace("open", OPEN), reason == "pod_gone")


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
