"""One small node with running pods, one pass on it under a fault, and a check of what
the pass did and reported.

Whatever a runtime answers, these hold:

* the pass ends, and ends as a record, not as an exception;
* nothing that must be kept was removed (`PopulatedNode.protected`);
* the record is true: what it reports as removed is absent, and what is absent it does not
  report as kept or failed;
* the record is one line of the log in either form, and that line can be read.
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import Pass
from eviction.wording.log import Log
from reclaim.types import Kind, Result
from signals.types import Signal
from tests.nodes.small_node import DEAD_SECONDS, EVERYTHING, SmallNode, relieve

SMALL_BYTES = 64 << 10
MOST_PASSES = 20
# journald's own limit: a longer line is cut, and then no JSON any more
LONGEST_LINE_BYTES = 48 << 10


class PopulatedNode(SmallNode):
    """A small node with a running pod whose init container has exited, a crashed pod with two
    containers, a pod that has only its sandbox after a reboot, and removable objects.

    `populate` adds the removable objects again, so that one node serves many passes. `protected`:
    ids of the objects that every pass must keep.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        directory.mkdir(parents=True)
        super().__init__(directory, **options)
        self._populated, self._born = 0, time.monotonic()
        init = self.add_image("registry.example/init:1", SMALL_BYTES)
        web, self.crashed, rebooted = map(self.run_pod, ("web", "crashed", "rebooted"))
        self.running = self.run(web)
        self.protected = {
            self.running,
            self.exited(self.crashed, attempt=1),
            self.exited(self.crashed, name="side"),
            self.exited(web, init, name="init"),
            *(self.pause_id, self.app_id, init),
            *(pod.sandbox_id for pod in (web, self.crashed, rebooted)),
        }
        self.runtime.kill_sandbox(rebooted.sandbox_id)
        self.runtime.age(rebooted.sandbox_id, 600)
        self._images: set[str] = set()
        self._older: set[str] = set()
        self._gone_pod: set[str] = set()
        self._removable: set[str] = set()

    def populate(self) -> set[str]:
        """Adds what is missing of: two unused images, an older dead copy, and the container and
        sandbox of a deleted pod. Returns the ids of everything that is removable now."""
        self._populated += 1
        if not self._not_removed(self._images):
            names = [f"registry.example/old/{self._populated}/{number}:1" for number in range(2)]
            self._images = {self.add_image(name, SMALL_BYTES) for name in names}
        if not self._not_removed(self._older):
            older = self.exited(self.crashed, attempt=0)
            # Older than the newest copy, however long this node is used.
            self.runtime.age(older, DEAD_SECONDS + time.monotonic() - self._born)
            self._older = {older}
        if len(self._not_removed(self._gone_pod)) < 2:
            pod = self.run_pod(f"gone-{self._populated}")
            self._gone_pod = {self.exited(pod), pod.sandbox_id}
            self.vanish(pod)
        self._removable |= self._images | self._older | self._gone_pod
        return self.leftovers()

    def _not_removed(self, ids: set[str]) -> set[str]:
        return ids - set(self.removed())

    def present(self) -> set[str]:
        """Ids of everything on the node, without asking over the socket."""
        return self._not_removed(self.protected | self._removable)

    def leftovers(self) -> set[str]:
        """Ids of the removable objects that are still there."""
        return self._not_removed(self._removable)


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
    findings.wrong += [f"{each} was removed, and must be kept" for each in removed & node.protected]
    findings.wrong += contradictions(record, removed, node)
    findings.wrong += problems_of_the_log(record)
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


def problems_of_the_log(record: Pass) -> list[str]:
    """What is wrong with the line of a pass as JSON, and with the text line."""
    written, text = io.StringIO(), io.StringIO()
    fields = to_json(pass_json(record))
    Log(lambda: 0.0, as_json=True, stream=written).info(record.reason, record=fields)
    Log(lambda: 0.0, stream=text).info(record.reason)
    line, problems = written.getvalue(), []
    if not line.endswith("\n") or len(line.splitlines()) != 1:
        problems.append("the record is not one line of the log")
    if len(line) > LONGEST_LINE_BYTES:
        problems.append(f"the log line has {len(line)} bytes")
    try:
        json.loads(line)
        line.encode()
    except ValueError as error:
        problems.append(f"the log line cannot be read: {error}")
    if not text.getvalue().removesuffix("\n").isprintable():
        problems.append("the text line is not printable")
    return problems
