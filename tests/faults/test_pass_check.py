"""The check itself finds a pass that removes or reports the wrong thing, so that
no finding means no fault.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reclaim.cri import cri_pb2 as pb
from reclaim.types import Outcome, Result
from tests.faults.pass_check import (
    LONGEST_LINE_BYTES,
    PopulatedNode,
    contradictions,
    log_line,
    pass_under_fault,
)
from tests.sockets.mounts import need_mounts

pytestmark = pytest.mark.house("tests/faults/pass_check.py")


@pytest.fixture
def populated(tmp_path: Path) -> PopulatedNode:
    """A node with pods and nothing removable yet."""
    need_mounts()
    return PopulatedNode(tmp_path / "node")


def test_a_pass_without_faults_has_no_findings_and_removes_everything_removable(
    populated: PopulatedNode,
) -> None:
    """Two images, an older copy, a deleted pod's container and sandbox are removed;
    everything protected is kept.
    """
    removable = populated.populate()
    findings = pass_under_fault(populated)
    assert findings.wrong == []
    assert set(populated.removed()) == removable
    assert populated.leftovers() == set()
    populated.close()


def test_a_false_record_is_found(populated: PopulatedNode) -> None:
    """Reported as failed but removed, reported as removed but there, removed but not
    reported: each is one finding.
    """
    populated.populate()
    record = pass_under_fault(populated).record
    assert record is not None
    removed = set(populated.removed())
    function, *others = (each for each in record.functions if each.outcomes)
    first = function.outcomes[0]

    def with_first(*outcomes: Outcome) -> list[str]:
        changed = replace(function, outcomes=(*outcomes, *function.outcomes[1:]))
        return contradictions(replace(record, functions=(changed, *others)), removed, populated)

    assert with_first(first) == []
    assert (
        "reported as failed and was removed" in with_first(replace(first, result=Result.FAILED))[0]
    )
    assert "is not reported" in with_first()[0]
    invented = replace(first, verdict=first.verdict._replace(id=populated.running))
    assert any("reported as removed and is there" in each for each in with_first(first, invented))
    populated.close()


def test_the_removal_of_a_protected_container_is_found(populated: PopulatedNode) -> None:
    """A running container that is removed shows among the removed and not
    among the present objects.
    """
    assert populated.protected & populated.present() == populated.protected
    before = len(populated.removed())
    populated.runtime.remove_container(pb.RemoveContainerRequest(container_id=populated.running))
    assert set(populated.removed()[before:]) & populated.protected == {populated.running}
    assert populated.running not in populated.present()
    populated.close()


def test_a_log_line_longer_than_journald_keeps_is_found(populated: PopulatedNode) -> None:
    """A sentence of 50 000 characters is a finding."""
    record = pass_under_fault(populated).record
    assert record is not None
    _, problems = log_line(replace(record, reason="x" * LONGEST_LINE_BYTES))
    assert len(problems) == 1
    assert "bytes" in problems[0]
    populated.close()
