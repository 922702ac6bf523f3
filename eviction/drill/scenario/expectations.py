"""Reads the expectations of a scenario."""

from __future__ import annotations

from eviction.configuration.strict_yaml import quoted
from eviction.drill.scenario.amounts import ScenarioError, amount_of, read_text, seconds_or_none
from eviction.drill.scenario.schema import ExpectFields
from eviction.drill.scenario.types import ConditionExpectation, Expectation, NodeSpec, ObjectPattern
from signals.quantity import parse_percentage
from signals.types import Signal

KINDS = ("image", "container", "sandbox", "log", "file")


def expectation_of(written: ExpectFields, node: NodeSpec, faults: int) -> Expectation:
    """What must hold on a node, including that each of the `faults` configured faults is triggered.

    Raises ScenarioError with a sentence that names the field.
    """
    never = written.relievedWithin == "never"
    condition = written.diskPressure
    return Expectation(
        condition=ConditionExpectation(
            condition.never,
            seconds_or_none("expect.diskPressure.comesWithin", condition.comesWithin),
            seconds_or_none("expect.diskPressure.goesWithin", condition.goesWithin),
        ),
        relieved_within_seconds=None if never else seconds_or_none("expect.relievedWithin", written.relievedWithin),
        never_relieved=never,
        first_removal_within_seconds=seconds_or_none("expect.firstRemovalWithin", written.firstRemovalWithin),
        first_removal_not_before_seconds=seconds_or_none("expect.firstRemovalNotBefore", written.firstRemovalNotBefore),
        nothing_goes=written.nothingGoes,
        goes=tuple(_pattern("expect.goes", text) for text in written.goes),
        stays=tuple(_pattern("expect.stays", text) for text in written.stays),
        images_left_at_least=written.imagesLeftAtLeast,
        images_lost_beyond_need=written.imagesLostBeyondNeed,
        lowest={_signal(name, node): _minimum(name, text, node) for name, text in written.lowest.items()},
        lowest_shares={
            _signal(name, node): read_text(f"expect.lowest.{name}", text, parse_percentage)
            for name, text in written.lowest.items()
            if text.endswith("%")
        },
        passes_at_most=written.passesAtMost,
        says=written.says,
        faults_triggered=faults,
        no_restarts=written.noRestarts,
        new_pod_starts=written.newPodStarts,
        quiet_seconds=seconds_or_none("expect.quietFor", written.quietFor),
    )


def _pattern(field: str, text: str) -> ObjectPattern:
    kind, space, glob = text.partition(" ")
    if not space:
        kind, glob = "", text
    if not glob or " " in glob or (space and kind not in KINDS):
        raise ScenarioError(f"{field}: {quoted(text)} is neither a name nor a kind ({', '.join(KINDS)}) and a name")
    return ObjectPattern(kind, glob)


def _signal(name: str, node: NodeSpec) -> Signal:
    if name not in node.signals:
        raise ScenarioError(f"expect.lowest: unknown signal {name!r}; allowed are {', '.join(node.signals)}")
    return Signal(name)


def _minimum(name: str, text: str, node: NodeSpec) -> int:
    field = f"expect.lowest.{name}"
    if not text.endswith("%"):
        return amount_of(field, text)
    signal = _signal(name, node)
    spec = node.filesystems[node.role(signal.filesystem)]
    share = read_text(field, text, parse_percentage)
    return int(share.of(spec.inodes if signal.counts_inodes else spec.size_bytes))
