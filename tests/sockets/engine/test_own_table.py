"""Filesystems and rows of the configuration, relieved by the product on real filesystems: a build
cache of its own, a function that waits for a lower mark, and a machine without a runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.drill.runtime.private_mounts import unmount
from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.types import Extent
from eviction.wording.configuration_warnings import warnings_on_node
from reclaim.function import (
    GONE,
    STATUS_FRESH_SECONDS,
    Ready,
    ReclaimContext,
    ReclaimFunction,
    Refused,
    Stage,
)
from reclaim.functions.table import FUNCTIONS, FunctionTable, table_of
from reclaim.types import Action, Plan, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.sockets.mounts import mounted_tmpfs

CACHE = Signal("buildcache.available")
PRUNE = "prune"


@dataclass
class Files:
    """Files of a directory, by name, as a function removes them; `calls`: how often
    it was asked for its plan.
    """

    directory: Path
    clock: Clock | None = None
    fresh_seconds: float = STATUS_FRESH_SECONDS
    frees_late: bool = False
    listed_at: float | None = None
    patience_seconds: float | None = None
    calls: list[int] = field(default_factory=list)

    def write(self, count: int, size_bytes: int = 4 * MIB) -> None:
        """So many files."""
        self.directory.mkdir(exist_ok=True)
        for number in range(count):
            (self.directory / f"{number}").write_bytes(os.urandom(size_bytes))

    def left(self) -> list[str]:
        """The files that are left."""
        return sorted(path.name for path in self.directory.iterdir())

    def function(
        self, frees: str, name: str = PRUNE, cooldown_seconds: float = 0.0
    ) -> ReclaimFunction:
        """The function that removes them."""
        return ReclaimFunction(
            name, FilesystemRole(frees), ("file",), self.stages, cooldown_seconds=cooldown_seconds
        )

    def stages(self, context: ReclaimContext) -> tuple[Stage, ...]:
        """One stage: all files, in the order of their names."""
        self.clock = context.clock
        return (self,)

    def plan(self) -> Plan:
        """Every file."""
        self.calls.append(len(self.left()))
        sizes = {name: (self.directory / name).stat().st_size for name in self.left()}
        return Plan(
            tuple(
                Verdict("file", n, n, Action.REMOVE, "listed", size_bytes=size)
                for n, size in sizes.items()
            )
        )

    def check(self, verdict: Verdict) -> Ready | Refused:
        """It is still there."""
        assert self.clock is not None
        return Ready(self.clock.monotonic()) if self.present(verdict) else GONE

    def remove(self, verdict: Verdict) -> bool:
        """The one call."""
        (self.directory / verdict.id).unlink()
        return True

    def present(self, verdict: Verdict) -> bool:
        """Whether it is there."""
        return (self.directory / verdict.id).exists()


def functions(*own: ReclaimFunction) -> FunctionTable:
    """The product's functions, and these."""
    return table_of(*FUNCTIONS.values(), *own)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MiB of its own."""
    directory = tmp_path / "buildcache"
    mounted_tmpfs(str(directory), 64 * MIB, 4000)
    yield directory
    unmount(str(directory))


def entry(name: str = PRUNE, frees: str = "buildcache") -> dict[str, object]:
    """An entry of `reclaimFunctions`; what it does is the test's."""
    return {"name": name, "exec": ["/bin/true"], "frees": frees}


def available(directory: Path) -> int:
    """Bytes available there."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def test_a_filesystem_of_ones_own_is_relieved_by_its_own_row(
    small_node: SmallNode, cache: Path
) -> None:
    """6 MiB are wanted there: two files go, no image, and the node reports no pressure."""
    files, images = Files(cache / "entries"), small_node.add_images(2)
    files.write(4)
    node = small_node.node(
        functions=functions(files.function("buildcache")),
        filesystems=[{"name": "buildcache", "path": str(cache)}],
        reclaimFunctions=[entry()],
        reclaimTable={str(CACHE): [PRUNE]},
        evictionHard={str(CACHE): str(available(cache) + 6 * MIB)},
        evictionMinimumReclaim={str(CACHE): "0"},
    )
    before = available(cache)
    record = relieve(node)
    assert files.left() == ["2", "3"]
    assert set(images) <= small_node.images()
    assert (record.result, record.decision.conditions) == (PassResult.SATISFIED, frozenset())
    assert record.measured.bytes == available(cache) - before == 8 * MIB
    document = to_json(pass_json(record))
    assert document["row"] == [PRUNE]
    assert document["functions"] == [
        {
            "name": PRUNE,
            "removed": 2,
            "measured": {"bytes": 8 * MIB, "inodes": 2},
            "nominal": {"bytes": 8 * MIB, "inodes": None},
            "seconds": document["functions"][0]["seconds"],
            "relieved": True,
            "skipped": None,
            "error": None,
        }
    ]
    assert [one["signal"] for one in document["observations"]][-2:] == [
        str(CACHE),
        "buildcache.inodesFree",
    ]


def test_a_function_that_waits_is_called_only_below_its_own_mark(small_node: SmallNode) -> None:
    """An image of two is enough for its mark; the ballast's mark is never reached."""
    ballast, images = Files(small_node.disk / "ballast"), small_node.add_images(2)
    ballast.write(2)
    record = relieve(waiting_node(small_node, ballast, above=2 * MIB, below=-8 * MIB))
    assert (ballast.left(), ballast.calls) == (["0", "1"], [])
    assert record.result is PassResult.SATISFIED
    assert set(images) - small_node.images() == {images[0]}


def waiting_node(
    small: SmallNode, ballast: Files, *, above: int, below: int, **options: object
) -> Node:
    """Under pressure until `above` more bytes are free than now; the ballast waits for a
    mark `below` more than now.
    """
    now = small.available()
    return small.node(
        Signal.NODEFS_AVAILABLE,
        above,
        functions=functions(ballast.function("nodefs", "ballast")),
        reclaimFunctions=[entry("ballast", "nodefs")],
        reclaimTable={
            "nodefs.available": [
                "DeleteUnusedImages",
                {"function": "ballast", "below": f"{now + below}e0"},
            ],
        },
        **options,
    )


def test_it_stops_at_its_own_mark_and_the_pass_is_told_as_not_enough(small_node: SmallNode) -> None:
    """30 MiB are wanted and there is no image: of four files of ballast two bring the
    signal to the ballast's mark.
    """
    ballast = Files(small_node.disk / "ballast")
    ballast.write(4)
    record = relieve(waiting_node(small_node, ballast, above=30 * MIB, below=7 * MIB))
    assert ballast.left() == ["2", "3"]
    assert record.result is PassResult.NOT_ENOUGH


@pytest.mark.parametrize("extent", list(Extent))
def test_what_waits_is_told_as_the_reason_why_a_pass_did_not_do_more(
    small_node: SmallNode, extent: Extent
) -> None:
    """Also where a pass goes to the end of its row."""
    ballast = Files(small_node.disk / "ballast")
    ballast.write(1)
    record = relieve(
        waiting_node(small_node, ballast, above=30 * MIB, below=-MIB, extent=str(extent))
    )
    assert ballast.left() == ["0"]
    assert "ballast was not called: nodefs.available is not below" in record.reason
    assert str(to_json(pass_json(record))["functions"][-1]["skipped"]).startswith(
        "nodefs.available is not below"
    )


def test_a_plan_of_everything_shows_what_waits_too(small_node: SmallNode) -> None:
    """As `reclaimd plan` asks."""
    ballast = Files(small_node.disk / "ballast")
    ballast.write(1)
    node = waiting_node(small_node, ballast, above=MIB, below=-MIB, dry_run=True)
    everything = Request(row=("ballast",), extent=Extent.ALL, every_function=True)
    assert [outcome.verdict.id for outcome in relieve(node, everything).removals] == ["0"]


def resting_node(small_node: SmallNode, files: Files) -> Node:
    """A node whose one function rests for ten minutes after a call."""
    return small_node.node(
        Signal.NODEFS_AVAILABLE,
        40 * MIB,
        functions=functions(files.function("nodefs", cooldown_seconds=600.0)),
        reclaimFunctions=[entry(frees="nodefs")],
        reclaimTable={"nodefs.available": [PRUNE]},
    )


def test_a_function_rests_after_a_call(small_node: SmallNode) -> None:
    """The second pass skips it, and says so."""
    files = Files(small_node.disk / "entries")
    files.write(2)
    node = resting_node(small_node, files)
    assert len(relieve(node).removals) == 2
    again = relieve(node)
    assert (len(files.calls), again.removals) == (1, ())
    assert "prune was not called: its cooldown lasts another" in again.reason


def test_a_function_that_removed_nothing_does_not_rest(small_node: SmallNode) -> None:
    """Nothing was there when it was called. Something is a moment later, and goes."""
    files = Files(small_node.disk / "entries")
    files.write(0)
    node = resting_node(small_node, files)
    assert relieve(node).removals == ()
    files.write(2)
    assert len(relieve(node).removals) == 2


def test_rows_that_cannot_relieve_their_signal_are_told(small_node: SmallNode, cache: Path) -> None:
    """A function that frees elsewhere, and a row whose signal has no threshold;
    what is right is not told.
    """
    node = small_node.node(
        filesystems=[{"name": "buildcache", "path": str(cache)}],
        reclaimFunctions=[entry(), entry("elsewhere", "nodefs"), {"name": "DeleteRotatedLogs"}],
        reclaimTable={
            str(CACHE): [PRUNE, "elsewhere", "DeleteUnusedImages"],
            "buildcache.inodesFree": [PRUNE],
            "nodefs.available": ["DeleteRotatedLogs", "DeleteUnusedImages"],
        },
        evictionHard={str(CACHE): "1Mi", "nodefs.available": "1Mi"},
    )
    node.locate()
    found = list(warnings_on_node(node.configuration, node.summary.observe()))
    assert [sentence.partition(":")[0] for sentence in found] == [
        "elsewhere frees nothing where buildcache.available is short",
        "DeleteUnusedImages frees nothing where buildcache.available is short",
        "nothing calls the row of buildcache.inodesFree",
    ]


def test_a_machine_without_a_runtime_is_relieved(cache: Path) -> None:
    """Nobody is asked where images are, and `/var/lib/kubelet` need not be there."""
    files = Files(cache / "entries")
    files.write(4)
    configuration = load(
        None,
        {},
        {
            "kubeletConfig": "",
            "containerRuntimeEndpoint": "none",
            "rootDirectory": "/does-not-exist",
            "stateFile": "",
            "filesystems": [{"name": "buildcache", "path": str(cache)}],
            "reclaimFunctions": [entry()],
            "reclaimTable": {str(CACHE): [PRUNE]},
            "evictionHard": {str(CACHE): f"{available(cache) + 6 * MIB}e0"},
            "evictionMinimumReclaim": {str(CACHE): "0"},
        },
    )
    node = Node(configuration, functions=functions(files.function("buildcache")))
    try:
        assert node.locate() is None
        record = relieve(node)
    finally:
        node.close()
    assert (files.left(), record.result) == (["2", "3"], PassResult.SATISFIED)
    assert record.observations.unavailable == ()
    assert set(record.observations.signals) == {CACHE, Signal("buildcache.inodesFree")}
