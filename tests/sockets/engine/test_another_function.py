"""A reclaim function is one entry of a table: another one is planned, executed, measured and
reported like the others.

The function of this story releases ballast: files that were set aside so that there is
something to delete when the disk runs full. Everything that it needs is in this module;
nothing in the product knows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.surface.metrics import Metrics
from eviction.wording.explain import outcomes_table
from eviction.wording.status import NodeStatus
from reclaim.function import (
    GONE,
    STATUS_FRESH_SECONDS,
    Ready,
    ReclaimContext,
    ReclaimFunction,
    Refused,
    Stage,
)
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.types import Action, Plan, ReclaimError, RemovalFailed, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve, result_of

BALLAST = "ballast"


def plan_ballast(sizes: Mapping[str, int]) -> Plan:
    """The plan: every file, in the order of names."""
    return Plan(
        tuple(
            Verdict(BALLAST, name, name, Action.REMOVE, "set_aside", size_bytes=size)
            for name, size in sorted(sizes.items())
        )
    )


class ReleaseFiles:
    """The one stage: the files of a directory of ballast."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False
    listed_at: float | None = None
    patience_seconds: float | None = None

    def __init__(self, directory: Path, clock: Clock):
        self._directory = directory
        self._clock = clock

    def plan(self) -> Plan:
        """Every file."""
        try:
            sizes = {path.name: path.stat().st_size for path in self._directory.iterdir()}
        except OSError as error:
            raise BallastUnreadable(str(error)) from error
        return plan_ballast(sizes)

    def check(self, verdict: Verdict) -> Ready | Refused:
        """It is still there."""
        checked_at = self._clock.monotonic()
        return Ready(checked_at) if self.present(verdict) else GONE

    def remove(self, verdict: Verdict) -> bool:
        """The one call."""
        try:
            os.unlink(self._directory / verdict.id)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(str(error)) from error
        return True

    def present(self, verdict: Verdict) -> bool:
        """Whether it is there."""
        return (self._directory / verdict.id).exists()


class BallastUnreadable(ReclaimError):
    """The directory of ballast cannot be read."""


class Ballast:
    """A directory of ballast, and the product's tables with one more function in them."""

    def __init__(self, small: SmallNode, count: int):
        self.directory = small.disk / "ballast"
        self.directory.mkdir()
        for number in range(count):
            (self.directory / f"{number}").write_bytes(os.urandom(4 * MIB))
        function = ReclaimFunction(
            "ReleaseBallast", FilesystemRole.NODEFS, (BALLAST,), self._stages
        )
        self.tables: dict[str, Any] = {
            "functions": table_of(function, *FUNCTIONS.values()),
            "first": "ReleaseBallast",
        }

    def _stages(self, context: ReclaimContext) -> tuple[Stage, ...]:
        return (ReleaseFiles(self.directory, context.clock),)

    def left(self) -> list[str]:
        """The files that are left."""
        return sorted(path.name for path in self.directory.iterdir())


def node_of(small: SmallNode, ballast: Ballast, above: int, **options: object) -> Node:
    """The product on this node, under pressure until `above` more bytes are free."""
    return small.node(Signal.NODEFS_AVAILABLE, above, **ballast.tables, **options)


def test_it_is_executed_in_its_row_and_stops_when_the_disk_is_relieved(
    small_node: SmallNode,
) -> None:
    """6 MiB are wanted: two files of four go, the images stay, and the record has it all."""
    ballast, images = Ballast(small_node, 4), small_node.add_images(2)
    record = relieve(node_of(small_node, ballast, 6 * MIB))
    assert ballast.left() == ["2", "3"]
    assert set(images) <= small_node.images()
    assert record.result is PassResult.SATISFIED
    assert 8 * MIB <= record.measured.bytes < 9 * MIB
    document = to_json(pass_json(record))
    assert document["row"] == ["ReleaseBallast", "DeleteAllUnusedContainers", "DeleteUnusedImages"]
    removed = [
        (each["kind"], each["id"], each["reason"], each["result"]) for each in document["removals"]
    ]
    assert removed == [(BALLAST, name, "set_aside", "removed") for name in "01"]
    assert all(each["freed"]["bytes"] >= 4 * MIB for each in document["removals"])
    assert document["kept_by_reason"] == {"relieved": 2}
    assert outcomes_table(record.removals)[1].endswith("was set aside to be freed under pressure")


def test_where_it_is_not_enough_the_next_function_goes_on(small_node: SmallNode) -> None:
    """6 MiB are wanted and 4 MiB are ballast: an image goes as well."""
    ballast, images = Ballast(small_node, 1), small_node.add_images(2)
    record = relieve(node_of(small_node, ballast, 6 * MIB))
    assert (ballast.left(), record.result) == ([], PassResult.SATISFIED)
    assert [result_of(record, image) for image in images[:1]] == ["removed"]


def test_a_dry_run_credits_what_it_promises_where_it_frees_space(small_node: SmallNode) -> None:
    """6 MiB are wanted: two files are planned, and nothing is deleted."""
    ballast = Ballast(small_node, 4)
    record = relieve(node_of(small_node, ballast, 6 * MIB, dry_run=True))
    assert ballast.left() == ["0", "1", "2", "3"]
    assert [result_of(record, name) for name in "01"] == ["planned", "planned"]
    assert len(record.removals) == 2
    assert record.reason == "would remove 2 objects of nominally 8.0MiB"


def test_what_it_cannot_read_is_an_error_and_the_next_function_goes_on(
    small_node: SmallNode,
) -> None:
    """Its directory is gone."""
    ballast, images = Ballast(small_node, 0), small_node.add_images(2)
    ballast.directory.rmdir()
    record = relieve(node_of(small_node, ballast, 2 * MIB))
    assert "No such file or directory" in record.errors[0]
    assert result_of(record, images[0]) == "removed"


def test_its_name_and_its_kinds_are_labels_of_the_metrics(small_node: SmallNode) -> None:
    """From the first scrape on, as those of the others."""
    node = node_of(small_node, Ballast(small_node, 1), 2 * MIB)
    metrics = Metrics(NodeStatus, functions=node.functions)
    removed = f'reclaimd_removals_total{{kind="{BALLAST}",result="removed"}}'
    assert f"{removed} 0.0" in metrics.page().body.decode()
    metrics.passed(relieve(node))
    text = metrics.page().body.decode()
    assert f"{removed} 1.0" in text
    assert 'reclaimd_reclaim_duration_seconds_count{operation="ReleaseBallast"} 1.0' in text
