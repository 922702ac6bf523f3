"""One pass on a populated node under a fault, and a check of what the pass did and reported.

Whatever a runtime answers, these hold:

* the pass ends, and ends as a record, not as an exception;
* nothing that must be kept was removed (`PopulatedNode.lost`);
* the record is true: what it reports as removed is absent, and what is absent it does not
  report as kept or failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eviction.records.passes import Pass
from reclaim.types import Kind, Result
from signals.types import Signal
from tests.faults.populated import PopulatedNode
from tests.nodes.small_node import EVERYTHING, relieve

MOST_PASSES = 20


@dataclass(slots=True)
class Findings:
    """What was wrong with one pass; empty if nothing was."""

    wrong: list[str] = field(default_factory=list)
    record: Pass | None = None


def pass_under_fault(node: PopulatedNode) -> Findings:
    """One pass under the faults that are set, by a product made for it;
    clears the faults afterwards.
    """
    findings = Findings()
    already = len(node.removed())
    product = node.node(Signal.NODEFS_AVAILABLE, above=1)  # any image relieves it
    try:
        record = findings.record = relieve(product, EVERYTHING)
    except Exception as error:  # noqa: BLE001 # any exception out of a pass is a finding
        findings.wrong.append(f"the pass raised {type(error).__name__}: {error}")
        return findings
    finally:
        node.failpoints.clear()
        product.close()
    removed = set(node.removed()[already:])
    findings.wrong += [f"{each} is gone, and must be kept" for each in node.lost()]
    findings.wrong += contradictions(record, removed, node)
    return findings


def pass_without_fault(node: PopulatedNode) -> Findings:
    """The same without a fault, after which nothing removable is left; once more, as a daemon's
    next pass, where a busy machine made a check too old to remove by it."""
    node.populate()
    findings = pass_under_fault(node)
    for _ in range(MOST_PASSES):
        if findings.record is None or all(
            each.result is not Result.UNANSWERED for each in findings.record.removals
        ):
            break
        findings = pass_under_fault(node)
    findings.wrong += [f"{left} is left over" for left in node.leftovers()]
    return findings


def contradictions(record: Pass, removed: set[str], node: PopulatedNode) -> list[str]:
    """Where the record and the node disagree."""
    wrong, nominal, there = [], 0, node.present()
    for outcome in record.removals:
        verdict, gone = outcome.verdict, outcome.verdict.id in removed
        if outcome.result is Result.REMOVED:
            if verdict.id in there:
                wrong.append(f"{verdict.id} is reported as removed and is there")
            if not gone:
                wrong.append(f"{verdict.id} is reported as removed by us, and was not removed")
            if verdict.kind is Kind.IMAGE:
                nominal += verdict.size_bytes or 0
        if outcome.result is Result.FAILED and gone:
            wrong.append(f"{verdict.id} is reported as failed and was removed: {outcome.error}")
    kept = {each.verdict.id for each in record.kept}
    reported = {each.verdict.id for each in record.removals}
    wrong += [f"{each} is reported as kept and was removed" for each in kept & removed]
    wrong += [f"{each} was removed and is not reported" for each in removed - reported]
    if record.nominal_bytes != nominal:
        wrong.append(f"{record.nominal_bytes} nominal bytes are reported, not {nominal}")
    return wrong
