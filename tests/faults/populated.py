"""A small node with everything that must stay, and what may go.

Everything is made in the runtime itself, not over its socket, which may be the part that fails; and
in no directory of pods, which may be, too.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from reclaim.types import Kind
from tests.nodes.small_node import DEAD_SECONDS, MIB, Pod, SmallNode

SMALL_BYTES = 64 << 10
LIVE_PODS = ("web", "crashed", "rebooted", "bare")
KINDS = (Kind.IMAGE, Kind.CONTAINER, Kind.SANDBOX)


class PopulatedNode(SmallNode):
    """A running pod whose init container has exited, a crashed pod with two containers, after a
    reboot one with its dead container and one that has only its sandbox; a pinned image, logs, and
    a file of somebody else. `protected`: ids of the objects that every pass must keep."""

    def __init__(self, directory: Path, **options: Any) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, **options)
        self._numbers, self._born = itertools.count(), time.monotonic()
        self._removable: dict[Kind, set[str]] = {kind: set() for kind in KINDS}
        self._gone_pod: set[str] = set()
        init = self.add_image("registry.example/init:1", SMALL_BYTES)
        pinned = self.add_image("registry.example/pinned:1", SMALL_BYTES, pinned=True)
        web, self._crashed, rebooted, bare = pods = [self.run_pod(name) for name in LIVE_PODS]
        self.running, crashed, dead = (
            self.run(web),
            self.exited(self._crashed, attempt=3),
            self.exited(rebooted),
        )
        self.protected = {
            *(self.running, crashed, dead, self.exited(self._crashed, name="side")),
            *(self.exited(web, "registry.example/init:1", name="init"), init, pinned),
            *(self.pause_id, self.app_id),
            *(pod.sandbox_id for pod in pods),
        }
        for pod in (rebooted, bare):
            self.runtime.kill_sandbox(pod.sandbox_id)
            self.runtime.age(pod.sandbox_id, DEAD_SECONDS)
        foreign = self.disk / "foreign" / "data"
        foreign.parent.mkdir()
        foreign.write_text("of somebody else\n")
        self._files = {
            foreign,
            self.log("web", self.running),
            self.log("crashed", crashed, 3),
            self.log("rebooted", dead),
        }

    def begins(self, pod: Pod, name: str) -> None:
        """No directory is made: those of pods may be what fails."""

    def lost(self) -> list[str]:
        """What is gone and had to stay: objects by the runtime's own record,
        files by their names.
        """
        removable = set().union(*self._removable.values())
        gone = [each for each in self.runtime.removals if each.id not in removable]
        missing = sorted(str(file) for file in self._files if not file.exists())
        return [f"{each.kind} {each.id}" for each in gone] + [f"file {path}" for path in missing]

    def removed_at(self, kind: Kind) -> list[float]:
        """When objects of this kind were really removed, wall seconds, in order."""
        return [each.wall_seconds for each in self.runtime.removals if each.kind == kind]

    def left(self, kind: Kind) -> set[str]:
        """The objects of this kind that may go and are still there."""
        return self._removable[kind] - set(self.removed())

    def add(self, kind: Kind, *, unknown: bool = False) -> None:
        """One more object of this kind that may go: an unused image, an older dead copy,
        the sandbox of a gone pod. `unknown`: the runtime has lost the copy's state, so it is
        stopped before it is removed.
        """
        number = next(self._numbers)
        match kind:
            case Kind.IMAGE:
                made = self.add_image(f"registry.example/old/{number}:1", 2 * MIB)
            case Kind.CONTAINER:
                made = self.run(self._crashed) if unknown else self.exited(self._crashed)
                # older than the newest copy, however long this node is used
                self.runtime.age(made, 2 * DEAD_SECONDS + time.monotonic() - self._born)
                if unknown:
                    self.runtime.lose_container(made)
            case _:
                made = self.run_sandbox(f"gone-{number}")
                self.runtime.kill_sandbox(made)
                self.runtime.age(made, DEAD_SECONDS)
        self._removable[kind].add(made)

    def populate(self) -> set[str]:
        """Adds what is missing of: two unused images, an older dead copy, and the container and
        sandbox of a deleted pod. So one node serves many passes. Returns the ids of everything that
        is removable now."""
        for kind in (Kind.IMAGE, Kind.IMAGE, Kind.CONTAINER):
            if len(self.left(kind) - self._gone_pod) < 2 - (kind is Kind.CONTAINER):
                self.add(kind)
        if self._gone_pod.intersection(self.removed()) or not self._gone_pod:
            pod = self.run_pod(f"gone-{next(self._numbers)}")
            container = self.exited(pod)
            self.vanish(pod)
            self._gone_pod = {container, pod.sandbox_id}
            self._removable[Kind.CONTAINER].add(container)
            self._removable[Kind.SANDBOX].add(pod.sandbox_id)
        return self.leftovers()

    def present(self) -> set[str]:
        """Ids of everything on the node, without asking over the socket."""
        return (self.protected | set().union(*self._removable.values())) - set(self.removed())

    def leftovers(self) -> set[str]:
        """Ids of the removable objects that are still there."""
        return set().union(*map(self.left, KINDS))
