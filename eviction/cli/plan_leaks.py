"""`reclaimd plan --leaks`: what takes space on the runtime's disk and belongs to nobody. Read-only.

To name what somebody needs would be worse than to miss a leak. So everything is read twice, and named only if both
readings agree and nothing about it has changed for a day. A pull or a pod that is just beginning can look like a leak
meanwhile; containerd's leases end after a day too, and so does the patience of `crio check`. What is younger is only
counted. The clock of a node may be wrong at first, so nothing is older than the node has been up. While directories of
a kind are being deleted, or if they cannot be counted in time, that kind is not known.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal

from eviction.cli.options import answer, columns, configuration_of, exit_with
from eviction.cli.plan import located
from eviction.cli.progress import Progress
from eviction.exit_codes import EXIT_OK, EXIT_READING, EXIT_USAGE
from eviction.node.node import Node
from eviction.reporting.json_shapes import Count, Document, Time, Versioned
from eviction.reporting.observations_json import timestamp
from eviction.reporting.space import TimeLimit, Tree, count_trees
from eviction.reporting.tables import table
from reclaim.cri.status import CallError
from reclaim.leaks import LeakKind, Mounts, NotKnown, Unowned, unowned_in_store, unowned_pod_directories
from reclaim.types import RuntimeUnavailable
from reclaim.workers import in_time
from signals.clock import Clock
from signals.mounts import read_mounts
from signals.quantity import counted, format_bytes

YOUNG_SECONDS = 86400.0
APART_SECONDS = 5.0  # from the end of one reading to the next
READ_SECONDS = 60.0  # for one source
COUNT_SECONDS = 20.0  # for all directories together
UNREADABLE = (NotKnown, RuntimeUnavailable, CallError, OSError, ValueError, LookupError, TypeError)

_COLLECTED = "containerd's garbage collector takes it; at once: ctr leases create --id x, ctr leases delete --sync x"
_CHECKED = "an administrator decides: crio check --repair deletes it, with the node drained and CRI-O stopped"
_LEFT = "an administrator decides: check that nothing is mounted below it, save what is needed, and delete it"
REMEDIES: Mapping[LeakKind, str] = {
    LeakKind.SNAPSHOT: _COLLECTED,
    LeakKind.SNAPSHOT_DIRECTORY: "nothing: containerd deletes it with the next snapshot that it removes",
    LeakKind.CONTENT: _COLLECTED,
    LeakKind.INGEST: _COLLECTED,
    LeakKind.LAYER: _CHECKED,
    LeakKind.LAYER_DIRECTORY: _CHECKED,
    LeakKind.POD_DIRECTORY: _LEFT,
}


class Leak(Document):
    """Something that belongs to nobody."""

    kind: LeakKind
    """What it is."""
    name: str
    """Its name or id; of a directory, its path."""
    namespace: str | None
    """containerd's namespace; null if it is in none."""
    bytes: Count | None
    """What it takes; null if that is unknown."""
    since: Time
    """When it last changed: it has belonged to nobody since then, or less long."""
    remedy: str
    """What can be done about it."""


class Leaks(Versioned):
    """What takes space on the runtime's disk and belongs to nobody: the answer of `reclaimd plan --leaks`."""

    kind: Literal["Leaks"] = "Leaks"
    leaks: tuple[Leak, ...]
    """The largest first."""
    not_known: tuple[str, ...]
    """What is not known, and why; also how much looks like leaks, but is too young to be named."""


Reading = Mapping[tuple[LeakKind, str, str], Unowned]


def judged(first: Reading, second: Reading, now: float, up_seconds: float, not_known: Iterable[str]) -> Leaks:
    """The leaks by two readings. `now`: wall seconds at the second. `up_seconds`: how long the node has been up."""

    def old(one: Unowned) -> bool:
        return min(now - one.since, up_seconds) >= YOUNG_SECONDS

    found = [one for key, one in second.items() if first.get(key) == one and old(one)]
    moving = {one.kind for one in first.values() if one.path and old(one) and one not in found}
    moving |= {one.kind for one in found if one.path and one.size_bytes is None}
    reasons = {f"{kind}: being deleted now, or not counted in {COUNT_SECONDS:g} s: ask again" for kind in moving}
    if young := [one.size_bytes or 0 for key, one in second.items() if key in first and not old(one)]:
        reasons.add(f"{counted(len(young), 'object')} of {format_bytes(sum(young))} changed within a day: too young")
    leaks = [
        Leak(
            kind=one.kind,
            name=one.path or one.name,
            namespace=one.namespace or None,
            bytes=one.size_bytes,
            since=timestamp(one.since),
            remedy=REMEDIES[one.kind],
        )
        for one in sorted(found, key=lambda one: (-(one.size_bytes or 0), one.kind, one.name))
        if one.kind not in moving
    ]
    return Leaks(leaks=tuple(leaks), not_known=tuple(sorted(reasons.union(not_known))))


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 3 runtime unreachable; 4 nothing could be looked at, or no filesystem can be read."""
    if any((arguments.signal, arguments.until, arguments.all)):
        exit_with(EXIT_USAGE, "--signal, --until and --all have no effect with --leaks")
    doing = Progress("reading twice what belongs to nobody")
    with located(arguments, configuration_of(arguments)) as (node, _, _), doing:
        found, known = find(node, node.clock)
    answer(arguments, found, lambda: leaks_lines(found, columns()))
    return EXIT_OK if known else EXIT_READING


def find(node: Node, clock: Clock) -> tuple[Leaks, bool]:
    """The leaks of a node whose runtime has been located, and whether anything could be looked at. `clock`: what ages
    are counted by."""
    first, problems = _read(node)
    time.sleep(APART_SECONDS)
    second, more = _read(node)
    problems |= more
    found = judged(first, second, clock.wall(), clock.monotonic(), problems.values())
    return found, len(problems) < len(SOURCES)


def _read(node: Node) -> tuple[Reading, dict[Source, str]]:
    """One reading, and what could not be looked at."""
    found: list[Unowned] = []
    problems = {}
    mounts = [" ".join((mount.point, *mount.options)) for mount in read_mounts()]
    for source in SOURCES:
        try:
            found += in_time(partial(list, source(node, mounts)), READ_SECONDS)
        except UNREADABLE as error:
            problems[source] = str(error)
    directories = sorted((one for one in found if one.path), key=lambda one: one.since)  # the youngest count least
    trees = count_trees([Tree(one.path) for one in directories], TimeLimit("leaks", node.clock, COUNT_SECONDS))
    sizes = {one: usage.total_bytes for one, usage in zip(directories, trees, strict=True) if usage.complete}
    sized = [one._replace(size_bytes=sizes.get(one)) if one.path else one for one in found]
    return {(one.kind, one.namespace, one.name): one for one in sized}, problems


def _in_store(node: Node, mounts: Mounts) -> Iterator[Unowned]:
    stores, clock = node.places().stores or ("",), node.clock
    listed = lambda: node.inventory.snapshot(clock.monotonic()).listing  # noqa: E731 # asked twice
    return unowned_in_store(stores, mounts, listed, node.client.call_service, clock.wall())


def _of_pods(node: Node, mounts: Mounts) -> Iterator[Unowned]:
    pods, listing = node.inventory.pods_and_containers(node.clock.monotonic())
    return unowned_pod_directories(node.pods.directories.path, pods, listing, mounts)


Source = Callable[[Node, Mounts], Iterator[Unowned]]
SOURCES: tuple[Source, ...] = (_in_store, _of_pods)


def leaks_lines(found: Leaks, width: int | None = None) -> Iterator[str]:
    """The leaks and what can be done about each, what they take together, and what is not known."""
    rows = [["SIZE", "SINCE", "KIND", "NAMESPACE", "NAME", "WHAT CAN BE DONE"]]
    for leak in found.leaks:
        size = "-" if leak.bytes is None else format_bytes(leak.bytes)
        rows.append([size, leak.since, leak.kind, leak.namespace or "-", leak.name, leak.remedy])
    yield from table(rows, width) if found.leaks else ()
    total = format_bytes(sum(leak.bytes or 0 for leak in found.leaks))
    yield f"belongs to nobody: {counted(len(found.leaks), 'object')}, {total}; nothing is removed"
    yield from (f"not known: {reason}" for reason in found.not_known)
