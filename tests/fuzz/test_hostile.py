"""Arbitrary names and error texts are one printable line in a table, and one object in a log.

Names of the runtime are UTF-8, names on a disk are any bytes: those come as surrogates.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.types import Decision
from eviction.wording.explain import outcomes_table, pass_lines
from eviction.wording.log import Log
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from signals.types import FsLayout, Signal
from tests.pure.values import GIB, observation, observations_of

PIECES = [
    "\n",
    "\r\n",
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u2028",
    "\x00",
    "../",
    '"',
]
on_disk = st.binary(max_size=40).map(os.fsdecode)  # surrogates where it is not UTF-8
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=8).map("".join) | on_disk
OBSERVATIONS = observations_of(observation(Signal.NODEFS_AVAILABLE, GIB, time=100.0), time=100.0)
IDLE = Decision(frozenset(), (), None, (), FsLayout.SINGLE)


def record_of(name: str, message: str) -> Pass:
    """A pass in which the removal of one object failed, with the runtime's
    error text, and one was kept.
    """
    removed = Verdict(Kind.POD_LOG, name, name, Action.REMOVE, Reason.POD_GONE, 1, 1.0)
    kept = removed._replace(action=Action.KEEP, reason=Reason.RUNNING)
    function = ReclaimResult(
        "delete_all_unused_containers",
        outcomes=(Outcome(removed, Result.FAILED, message),),
        kept=(Outcome(kept),),
        error=message,
    )
    record = Pass("0" * 12, 1_800_000_000.0, Trigger.INTERVAL, OBSERVATIONS, IDLE, ())
    return replace(record, functions=(function,), result=PassResult.FAILED, reason=message)


@given(hostile, hostile)
def test_tables_and_passes(name: str, message: str) -> None:
    """There are as many lines as rows, each printable, and all can be written as UTF-8."""
    record = record_of(name, message)
    rows = outcomes_table([*record.removals, *record.kept])
    assert len(rows) == 3
    for line in [*rows, *pass_lines(record)]:
        assert line.isprintable()
        assert len(line.splitlines()) <= 1
        line.encode("utf-8")


@given(hostile, hostile)
def test_records_in_a_log(name: str, message: str) -> None:
    """JSON output is one object with exactly that text, text output one printable line."""
    record = to_json(pass_json(record_of(name, message)))
    for as_json in (True, False):
        stream = io.StringIO()
        log = Log(lambda: 1_800_000_000.0, as_json=as_json, stream=stream)
        log.warning(message, object=name, record=record)
        line = stream.getvalue()
        assert line.endswith("\n")
        assert line[:-1].isprintable()
        line.encode("utf-8")
        if as_json:
            found = json.loads(line)
            assert (found["message"], found["object"]) == (message, name)
            assert found["record"]["removals"][0]["error"] == (message or None)
