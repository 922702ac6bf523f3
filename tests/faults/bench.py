"""One small node that is lived on, one pass on it under a fault, and whether the pass kept its promises.

Whatever a runtime answers, these hold:

* the pass ends, and ends as a record, not as an exception;
* nothing that must stay has gone (`Lived.protected`);
* the record tells the truth: what it calls removed is absent, and what is absent it does not call kept or failed;
* the record is one line of the log in either form, and that line can be read.
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eviction.node.responder import Request
from eviction.reporting.log import Log
from eviction.reporting.pass_record import Pass, pass_json
from reclaim.types import Kind, Result
from signals.types import Signal
from tests.nodes.small_node import DEAD_SECONDS, EVERYTHING, SmallNode, relieve

SMALL_BYTES = 64 << 10
SIDE_BY_SIDE = 20  # nodes at a time: most of a pass is waiting for late space
LONGEST_LINE_BYTES = 48 << 10  # journald's own limit: a longer line is cut, and then no JSON any more


class LivedNode(SmallNode):
    """A small node with a running pod after its init container, a crashed one with two containers, one after a reboot
    with nothing but its sandbox, and things that may go.

    `populate` adds what may go anew, so that one node serves many passes.
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
        self._gone: set[str] = set()
        self._may_go: set[str] = set()

    @property
    def protected(self) -> set[str]:
        """Ids of what must be there after every pass."""
        return {self.running, *self.newest, *self.kept_images, *self.kept_sandboxes}

    def populate(self) -> set[str]:
        """What is missing of: two unused images, an older dead copy, and a pod that is gone with its container and
        sandbox. Ids of everything that may go now."""
        self._populated += 1
        if not self._left(self._images):
            names = [f"registry.example/old/{self._populated}/{number}:1" for number in range(2)]
            self._images = {self.add_image(name, SMALL_BYTES) for name in names}
        if not self._left(self._older):
            older = self.exited(self.crashed, attempt=0)
            self.runtime.age(
                older, DEAD_SECONDS + time.monotonic() - self._born
            )  # than the newest, however long it lives
            self._older = {older}
        if len(self._left(self._gone)) < 2:
            pod = self.run_pod(f"gone-{self._populated}")
            self._gone = {self.exited(pod), pod.sandbox_id}
            self.vanish(pod)
        self._may_go |= self._images | self._older | self._gone
        return self.leftovers()

    def _left(self, ids: set[str]) -> set[str]:
        return ids - set(self.removed())

    def present(self) -> set[str]:
        """Ids of everything on the node, without asking over the socket."""
        return self._left(self.protected | self._may_go)

    def leftovers(self) -> set[str]:
        """Ids of what may go and is still there."""
        return self._left(self._may_go)


@dataclass(slots=True)
class Findings:
    """What was wrong with one pass; nothing if all held."""

    wrong: list[str] = field(default_factory=list)
    record: Pass | None = None
    log_bytes: int = 0


def pass_under_fault(node: LivedNode, request: Request = EVERYTHING, **fields: Any) -> Findings:
    """One pass by a product that is made for it and closed again, under the faults that are set; then they end."""
    findings = Findings()
    already = len(node.removed())
    product = node.node(Signal.NODEFS_AVAILABLE, above=1, **fields)  # any image relieves it
    try:
        record = findings.record = relieve(product, request)
    except Exception as error:  # noqa: BLE001 # whatever comes out of a pass is what this looks for
        findings.wrong.append(f"the pass raised {type(error).__name__}: {error}")
        return findings
    finally:
        node.failpoints.clear()
        product.close()
    went = set(node.removed()[already:])
    findings.wrong += [f"{each} went, which must stay" for each in went & node.protected]
    findings.wrong += untruths(record, went, node)
    line, problems = log_line(record)
    findings.log_bytes = len(line)
    findings.wrong += problems
    return findings


def untruths(record: Pass, went: set[str], node: LivedNode) -> list[str]:
    """Where the record and the node disagree."""
    wrong = []
    there = node.present()
    for outcome in record.removals:
        object_id = outcome.verdict.id
        if outcome.result is Result.REMOVED and object_id in there:
            wrong.append(f"{object_id} is told as removed and is there")
        if outcome.result is Result.REMOVED and object_id not in went:
            wrong.append(f"{object_id} is told as removed by us, and nobody removed it")
        if outcome.result is Result.FAILED and object_id in went:
            wrong.append(f"{object_id} is told as failed and has gone: {outcome.error}")
    wrong += [f"{kept.verdict.id} is told as kept and has gone" for kept in record.kept if kept.verdict.id in went]
    told = {outcome.verdict.id for outcome in record.removals}
    wrong += [f"{each} has gone and is not told" for each in went - told]
    nominal = sum(
        outcome.verdict.size_bytes or 0
        for outcome in record.removals
        if outcome.verdict.kind is Kind.IMAGE and outcome.result is Result.REMOVED
    )
    if record.nominal_bytes != nominal:
        wrong.append(f"{record.nominal_bytes} nominal bytes are told, and what went has {nominal}")
    return wrong


def log_line(record: Pass) -> tuple[str, list[str]]:
    """The JSON line of a pass, and what is wrong with it and with the line of text."""
    written, text = io.StringIO(), io.StringIO()
    Log(lambda: 0.0, as_json=True, stream=written).info(record.reason, record=pass_json(record))
    Log(lambda: 0.0, stream=text).info(record.reason)
    lines, problems = written.getvalue().split("\n"), []
    if len(lines) != 2 or lines[1] or len(written.getvalue().splitlines()) != 1:
        problems.append(f"the record takes {len(lines) - 1} lines of the log")
    if len(written.getvalue()) > LONGEST_LINE_BYTES:
        problems.append(f"the line of the log has {len(written.getvalue())} bytes")
    try:
        json.loads(lines[0])
        written.getvalue().encode()
    except ValueError as error:
        problems.append(f"the line of the log cannot be read: {error}")
    if not text.getvalue().removesuffix("\n").isprintable():
        problems.append("the line of text is not printable")
    return written.getvalue(), problems
