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

from eviction.engine.effects import Request
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import Pass
from eviction.wording.log import Log
from reclaim.types import Kind, Result
from signals.types import Signal
from tests.nodes.small_node import DEAD_SECONDS, EVERYTHING, SmallNode, relieve

SMALL_BYTES = 64 << 10
SIDE_BY_SIDE = 20  # nodes at a time: most of a pass is waiting for late space
MOST_PASSES = 20
# journald's own limit: a longer line is cut, and then no JSON any more
LONGEST_LINE_BYTES = 48 << 10


class PopulatedNode(SmallNode):
    """A small node with a running pod whose init container has exited, a crashed pod with two
    containers, a pod that has only its sandbox after a reboot, and removable objects.

    `populate` adds the removable objects again, so that one node serves many passes.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        directory.mkdir(parents=True)
        super().__init__(directory, **options)
        self._populated, self._born = 0, time.monotonic()
        init = self.add_image("registry.example/init:1", SMALL_BYTES)
        web = self.run_pod("web")
        self.running = self.run(web)
        self.crashed = self.run_pod("crashed")
        self.newest = [
            self.exited(self.crashed, attempt=1),
            self.exited(self.crashed, name="side"),
            self.exited(web, init, name="init"),
        ]
        rebooted = self.run_pod("rebooted")
        self.runtime.kill_sandbox(rebooted.sandbox_id)
        self.runtime.age(rebooted.sandbox_id, 600)
        self.kept_images = {self.pause_id, self.app_id, init}
        self.kept_sandboxes = {web.sandbox_id, self.crashed.sandbox_id, rebooted.sandbox_id}
        self._images: set[str] = set()
        self._older: set[str] = set()
        self._gone_pod: set[str] = set()
        self._removable: set[str] = set()

    @property
    def protected(self) -> set[str]:
        """Ids of the objects that every pass must keep."""
        return {self.running, *self.newest, *self.kept_images, *self.kept_sandboxes}

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
    log_bytes: int = 0


def pass_under_fault(node: PopulatedNode, request: Request = EVERYTHING, **fields: Any) -> Findings:
    """One pass under the faults that are set, by a product made for it;
    clears the faults afterwards.
    """
    findings = Findings()
    already = len(node.removed())
    product = node.node(Signal.NODEFS_AVAILABLE, above=1, **fields)  # any image relieves it
    try:
        record = findings.record = relieve(product, request)
    except Exception as error:  # noqa: BLE001 # any exception out of a pass is a finding
        findings.wrong.append(f"the pass raised {type(error).__name__}: {error}")
        return findings
    finally:
        node.failpoints.clear()
        product.close()
    removed = set(node.removed()[already:])
    findings.wrong += [f"{each} was removed, and must be kept" for each in removed & node.protected]
    findings.wrong += contradictions(record, removed, node)
    line, problems = log_line(record)
    findings.log_bytes = len(line)
    findings.wrong += problems
    return findings


def pass_without_fault(node: PopulatedNode) -> Findings:
    """The same without a fault; once more, as a daemon's next pass, where a busy machine made a
    check too old to remove by it."""
    findings = pass_under_fault(node)
    for _ in range(MOST_PASSES):
        if findings.record is None or all(
            o.result is not Result.UNANSWERED for o in findings.record.removals
        ):
            break
        findings = pass_under_fault(node)
    return findings


def contradictions(record: Pass, removed: set[str], node: PopulatedNode) -> list[str]:
    """Where the record and the node disagree."""
    wrong = []
    there = node.present()
    for outcome in record.removals:
        object_id = outcome.verdict.id
        if outcome.result is Result.REMOVED and object_id in there:
            wrong.append(f"{object_id} is reported as removed and is there")
        if outcome.result is Result.REMOVED and object_id not in removed:
            wrong.append(f"{object_id} is reported as removed by us, and was not removed")
        if outcome.result is Result.FAILED and object_id in removed:
            wrong.append(f"{object_id} is reported as failed and was removed: {outcome.error}")
    wrong += [
        f"{kept.verdict.id} is reported as kept and was removed"
        for kept in record.kept
        if kept.verdict.id in removed
    ]
    reported = {outcome.verdict.id for outcome in record.removals}
    wrong += [f"{each} was removed and is not reported" for each in removed - reported]
    nominal = sum(
        outcome.verdict.size_bytes or 0
        for outcome in record.removals
        if outcome.verdict.kind is Kind.IMAGE and outcome.result is Result.REMOVED
    )
    if record.nominal_bytes != nominal:
        wrong.append(
            f"{record.nominal_bytes} nominal bytes are reported, and what was removed has {nominal}"
        )
    return wrong


def log_line(record: Pass) -> tuple[str, list[str]]:
    """The JSON log line of a pass, and what is wrong with it and with the text line."""
    written, text = io.StringIO(), io.StringIO()
    Log(lambda: 0.0, as_json=True, stream=written).info(
        record.reason, record=to_json(pass_json(record))
    )
    Log(lambda: 0.0, stream=text).info(record.reason)
    lines, problems = written.getvalue().split("\n"), []
    if len(lines) != 2 or lines[1] or len(written.getvalue().splitlines()) != 1:
        problems.append(f"the record takes {len(lines) - 1} log lines")
    if len(written.getvalue()) > LONGEST_LINE_BYTES:
        problems.append(f"the log line has {len(written.getvalue())} bytes")
    try:
        json.loads(lines[0])
        written.getvalue().encode()
    except ValueError as error:
        problems.append(f"the log line cannot be read: {error}")
    if not text.getvalue().removesuffix("\n").isprintable():
        problems.append("the text line is not printable")
    return written.getvalue(), problems
