"""The JSON form of a pass, on which scripts and dashboards rely."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eviction.records.json_shapes import LEFT_OUT, Document, LeftOut, to_json
from eviction.records.observations_json import observations_json, threshold_json, timestamp
from eviction.records.pass_json import outcome_json, pass_json, pass_summary
from eviction.records.passes import Pass, PassResult, Timings, Trigger
from eviction.types import Decision, NodeCondition
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    Action,
    Amounts,
    Kind,
    Outcome,
    Reason,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.types import FilesystemIdentity, FsLayout, Signal
from tests.pure.values import GIB, MIB, observation, observations_of, threshold

LOW = replace(threshold(Signal.NODEFS_AVAILABLE, "10%", min_reclaim="2%"), origin="flag")
GONE = Outcome(
    Verdict(Kind.IMAGE, "sha256:1", "app:1", Action.REMOVE, Reason.UNUSED, MIB, 7200.12345),
    Result.REMOVED,
    duration_seconds=0.25,
    freed=Amounts(2 * MIB, 3),
)
STAYS = Outcome(Verdict(Kind.CONTAINER, "c", "pod/app#0", Action.KEEP, Reason.RUNNING))
PINNED = replace(STAYS, verdict=STAYS.verdict._replace(reason=Reason.PINNED))


class Form(Document):
    """What is printed of an outcome here."""

    name: str
    result: str
    duration_seconds: float
    pass_: str | LeftOut = LEFT_OUT
    error: str | LeftOut = LEFT_OUT


def test_a_document_takes_what_is_given_then_what_the_first_record_has_then_its_default() -> None:
    """Numbers are rounded to a microsecond.

    What is left out is not printed, nor the `_` after a keyword of Python.
    """
    outcome = replace(GONE, duration_seconds=0.12345678, error="lost")
    given = Form.of(outcome, GONE, GONE.verdict, name="given", error=LEFT_OUT)
    assert to_json(given) == {"name": "given", "result": "removed", "duration_seconds": 0.123457}
    assert to_json(replace(given, pass_=given.name)) == {**to_json(given), "pass": "given"}
    with pytest.raises(TypeError):
        Form.of(GONE.verdict)


@pytest.mark.parametrize(
    ("wall", "text"),
    [(0.0, "1970-01-01T00:00:00.000Z"), (1_800_000_000.25, "2027-01-15T08:00:00.250Z")],
)
def test_times_are_rfc_3339_in_utc_with_milliseconds(wall: float, text: str) -> None:
    """Whatever the machine's time zone."""
    assert timestamp(wall) == text


def test_an_observation_carries_the_wall_time_of_its_reading() -> None:
    """Read 5 s before the observation ended: its time is 5 s earlier."""
    where = FilesystemIdentity("/var/lib/kubelet", 7, "/dev/sda1", "ext4")
    nodefs = replace(observation(Signal.NODEFS_AVAILABLE, GIB, time=95.0), filesystem=where)
    images = observation(Signal.IMAGEFS_AVAILABLE, GIB, time=100.0, stale=True)
    found = observations_json(
        replace(observations_of(images, nodefs, time=100.0), wall_time=1_800_000_005.0)
    )
    assert to_json(found) == [
        {
            "signal": "nodefs.available",
            "available": GIB,
            "capacity": 100 * GIB,
            "time": "2027-01-15T08:00:00.000Z",
            "stale": False,
            "filesystem": {"path": "/var/lib/kubelet", "device": "/dev/sda1", "type": "ext4"},
        },
        {
            "signal": "imagefs.available",
            "available": GIB,
            "capacity": 100 * GIB,
            "time": "2027-01-15T08:00:05.000Z",
            "stale": True,
            "filesystem": None,
        },
    ]


@pytest.mark.parametrize(("capacity", "effective"), [(100 * GIB, 10737418400), (None, None)])
def test_a_threshold_carries_its_mark_at_the_present_capacity(
    capacity: int | None, effective: int | None
) -> None:
    """Null where the capacity is not known."""
    seen = observations_of(
        *([observation(Signal.NODEFS_AVAILABLE, 0, capacity)] if capacity else [])
    )
    assert to_json(threshold_json(LOW, seen)) == {
        "signal": "nodefs.available",
        "value": "10%",
        "margin": None,
        "effective": effective,
        "min_reclaim": "2%",
        "hard": True,
        "grace_seconds": 0.0,
        "origin": "flag",
    }


def test_what_is_coming_is_in_the_documents_where_it_is_not_zero() -> None:
    """What is promised with what is available, what is needed with a hard mark."""
    coming = replace(observation(Signal.NODEFS_AVAILABLE, GIB), promised=5, needed=7)
    seen = observations_of(coming, observation(Signal.IMAGEFS_AVAILABLE, GIB))
    assert [to_json(each).get("promised") for each in observations_json(seen)] == [5, None]
    soft = threshold(Signal.NODEFS_AVAILABLE, "20%", grace_seconds=1)
    assert [to_json(threshold_json(each, seen)).get("needed") for each in (LOW, soft)] == [7, None]


def test_an_outcome_has_the_result_of_an_object() -> None:
    """Bytes are integers, durations seconds; the result of a kept object is null."""
    assert to_json(outcome_json(GONE)) == {
        "kind": "image",
        "id": "sha256:1",
        "name": "app:1",
        "size": MIB,
        "age_seconds": 7200.12345,
        "verdict": "remove",
        "reason": "unused",
        "rule": "kubelet",
        "result": "removed",
        "error": None,
        "duration_seconds": 0.25,
        "freed": {"bytes": 2 * MIB, "inodes": 3},
    }
    kept = to_json(outcome_json(STAYS))
    assert (kept["verdict"], kept["reason"], kept["result"], kept["size"], kept["age_seconds"]) == (
        "keep", "running", None, None, None,
    )  # fmt: skip


def test_a_pass_is_one_json_document() -> None:
    """With its observations, decision, removals, measurements and durations."""
    seen = observations_of(observation(Signal.NODEFS_AVAILABLE, GIB))
    row = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)
    record = Pass(
        id="abc",
        started_wall=0.0,
        trigger=Trigger.WATCH,
        observations=seen,
        decision=Decision(
            frozenset({NodeCondition.RECLAIM_PRESSURE}), (LOW,), LOW, row, FsLayout.SINGLE
        ),
        row=row,
        functions=(
            ReclaimResult("DeleteUnusedImages", (GONE,), (STAYS, PINNED, STAYS), error="lost"),
        ),
        measured=Amounts(2 * MIB, 3),
        result=PassResult.NOT_ENOUGH,
        reason="because",
        timings=Timings(total_seconds=1.5),
        after=seen,
        still_met=(LOW,),
    )
    document = json.loads(json.dumps(to_json(pass_json(record)), allow_nan=False))
    assert (document["id"], document["trigger"], document["layout"]) == ("abc", "watch", "single")
    assert document["conditions"] == ["ReclaimPressure"]
    assert (
        document["acted_on"]["signal"] == document["still_met"][0]["signal"] == "nodefs.available"
    )
    assert document["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert [one["id"] for one in document["removals"] + document["kept"]] == [
        "sha256:1",
        "c",
        "c",
        "c",
    ]
    assert document["measured"] == {"bytes": 2 * MIB, "inodes": 3}
    assert document["nominal"] == {"bytes": MIB, "inodes": None}
    assert (document["result"], document["reason"], document["errors"]) == (
        "not_enough",
        "because",
        ["lost"],
    )
    assert document["timings"]["total_seconds"] == 1.5
    assert "kept" not in to_json(pass_json(record, with_kept=False))
    assert to_json(pass_json(record, with_kept=False))["kept_by_reason"] == {
        "pinned": 1,
        "running": 2,
    }


def test_a_pass_of_fifty_thousand_removals_made_a_line_of_17_megabytes() -> None:
    """Journald cuts at 48 KiB, and twenty such passes were kept for the control socket: now the
    first 32 removals are reported, of all of them the numbers, also where names and errors are
    as long as they may be."""
    long = replace(
        GONE,
        verdict=GONE.verdict._replace(id="sha256:" + "7" * 64, name="n" * 10_000),
        error="refused" * 1000,
    )
    seen = observations_of(observation(Signal.NODEFS_AVAILABLE, GIB))
    functions = (
        ReclaimResult("DeleteAllUnusedContainers", (long,) * 30, (STAYS,) * 1000),
        ReclaimResult("DeleteUnusedImages", (long,) * 50_000, (STAYS,)),
    )
    record = Pass(
        "abc",
        0.0,
        Trigger.WATCH,
        seen,
        Decision(frozenset(), (), None, (), None),
        functions=functions,
    )
    summary = to_json(pass_summary(record))
    assert len(json.dumps(summary)) < 48 << 10
    assert (len(summary["removals"]), summary["removals_left_out"]) == (32, 49_998)
    assert summary["removals_by_result"] == {"image": {"removed": 50_030}}
    assert summary["kept_by_reason"] == {"running": 1001}
    assert [function["removed"] for function in summary["functions"]] == [30, 50_000], (
        "of all, not of the first 32"
    )
    assert "kept" not in summary
    few = replace(record, functions=(ReclaimResult("DeleteUnusedImages", (GONE,), (STAYS,)),))
    assert to_json(pass_summary(few)) == {
        **to_json(pass_json(few, with_kept=False)),
        "removals_left_out": 0,
    }
