"""The bench itself: a pass that breaks its promises is found out, so a row without findings means something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reclaim.cri import cri_pb2 as pb
from reclaim.types import Outcome, Result
from tests.faults.bench import LONGEST_LINE_BYTES, LivedNode, log_line, pass_under_fault, untruths
from tests.sockets.mounts import need_mounts


@pytest.fixture
def lived(tmp_path: Path) -> LivedNode:
    """A node after one pass without any fault."""
    need_mounts()
    return LivedNode(tmp_path / "node")


def test_a_pass_without_faults_has_no_findings_and_removes_all_that_may_go(lived: LivedNode) -> None:
    """Two images, an older copy, and a pod that is gone with container and sandbox go; everything protected stays."""
    may_go = lived.populate()
    findings = pass_under_fault(lived)
    assert findings.wrong == []
    assert set(lived.removed()) == may_go
    assert lived.leftovers() == set()
    lived.close()


def test_what_a_record_says_falsely_is_found(lived: LivedNode) -> None:
    """Told as failed and gone, told as removed and there, gone and not told: each is one finding."""
    lived.populate()
    record = pass_under_fault(lived).record
    assert record is not None
    went = set(lived.removed())
    first = record.removals[0]

    def with_first(*outcomes: Outcome) -> list[str]:
        function = record.functions[0]
        changed = replace(function, outcomes=(*outcomes, *function.outcomes[1:]))
        return untruths(replace(record, functions=(changed, *record.functions[1:])), went, lived)

    assert with_first(first) == []
    assert "told as failed and has gone" in with_first(replace(first, result=Result.FAILED))[0]
    assert "is not told" in with_first()[0]
    invented = replace(first, verdict=first.verdict._replace(id=lived.running))
    assert any("told as removed and is there" in each for each in with_first(first, invented))
    lived.close()


def test_the_loss_of_what_must_stay_is_found(lived: LivedNode) -> None:
    """A running container that somebody removes during the pass is among the findings."""
    assert lived.protected & lived.present() == lived.protected
    before = len(lived.removed())
    lived.runtime.remove_container(pb.RemoveContainerRequest(container_id=lived.running))
    assert set(lived.removed()[before:]) & lived.protected == {lived.running}
    assert lived.running not in lived.present()
    lived.close()


def test_a_line_that_is_cut_by_whoever_stores_it_is_found(lived: LivedNode) -> None:
    """A sentence of 50 000 characters is a finding."""
    record = pass_under_fault(lived).record
    assert record is not None
    _, problems = log_line(replace(record, reason="x" * LONGEST_LINE_BYTES))
    assert len(problems) == 1
    assert "bytes" in problems[0]
    lived.close()
