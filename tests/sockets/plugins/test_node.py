"""The example, installed by pip, in the table of a node: planned, executed, measured and recorded like the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.node.node import Node
from eviction.record import PassResult
from eviction.reporting.pass_record import pass_json
from reclaim.functions import FUNCTIONS, table_of
from reclaim.plugins import ENTRY_POINT_GROUP, load, plugin_function
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve, result_of
from tests.plugin_distributions import EXAMPLE, install, on_the_path, wheel_of

NAME, DISTRIBUTION = "PruneBuildCache", "reclaimd-prune-build-cache"
AN_HOUR = 3600.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory into which pip has installed the example, and nothing else."""
    directory = tmp_path_factory.mktemp("plugin")
    made = directory / "site"
    install(wheel_of(EXAMPLE, directory), made)
    with on_the_path(made):
        yield made


class BuildCache:
    """A build cache on the kubelet's filesystem of a node: files of 4 MiB, the first one used ten hours ago, each next
    one an hour later."""

    def __init__(self, small: SmallNode, count: int):
        self.directory = small.disk / "cache"
        self.directory.mkdir()
        self.names = [f"{number % 2}/{number}" for number in range(count)]
        for number, name in enumerate(self.names):
            path = self.directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(4 * MIB))
            used = time.time() - (10 - number) * AN_HOUR
            os.utime(path, (used, used))

    def ids(self, *names: str) -> list[str]:
        """The ids of these files."""
        return [str(self.directory / name) for name in names]

    def left(self) -> list[str]:
        """The files that are left, in the order in which they were used."""
        return [name for name in self.names if (self.directory / name).exists()]

    def node(self, small: SmallNode, above: int, **options: Any) -> Node:
        """The product with the installed function in each row, under pressure until `above` more bytes are free."""
        plugin = load(NAME, DISTRIBUTION, {"directory": str(self.directory), "olderThan": "7h"})
        return small.node(
            Signal.NODEFS_AVAILABLE,
            above,
            functions=table_of(plugin_function(NAME, plugin, FilesystemRole.NODEFS), *FUNCTIONS.values()),
            first=NAME,
            **options,
        )


def test_what_was_not_used_for_longest_goes_until_the_disk_is_relieved(site: Path, small_node: SmallNode) -> None:
    """6 MiB are wanted: two of four old files go, the images stay, and the record has it all."""
    cache, images = BuildCache(small_node, 6), small_node.add_images(2)
    record = relieve(cache.node(small_node, 6 * MIB))
    assert cache.left() == ["0/2", "1/3", "0/4", "1/5"]
    assert set(images) <= small_node.images()
    assert record.result is PassResult.SATISFIED
    assert 8 * MIB <= record.measured_bytes < 9 * MIB
    document = pass_json(record)
    assert document["row"][0] == NAME
    removed = [(each["kind"], each["id"], each["reason"], each["result"]) for each in document["removals"]]
    assert removed == [("cache_file", each, "not_used_lately", "removed") for each in cache.ids("0/0", "1/1")]
    assert [each["size"] for each in document["removals"]] == [4 * MIB, 4 * MIB]
    assert all(each["freed"] == {"bytes": 4 * MIB, "inodes": 1} for each in document["removals"])
    assert document["kept_by_reason"] == {"relieved": 2, "too_young": 2}


def test_where_it_is_not_enough_the_next_function_goes_on(site: Path, small_node: SmallNode) -> None:
    """18 MiB are wanted, and 16 MiB of the cache are old: an image goes as well, and what is young stays."""
    cache, images = BuildCache(small_node, 6), small_node.add_images(2)
    record = relieve(cache.node(small_node, 18 * MIB))
    assert (cache.left(), record.result) == (["0/4", "1/5"], PassResult.SATISFIED)
    assert result_of(record, images[0]) == "removed"
    assert images[1] in small_node.images()


def test_a_dry_run_says_what_would_go(site: Path, small_node: SmallNode) -> None:
    """Nothing is removed; what is promised is credited."""
    cache = BuildCache(small_node, 6)
    record = relieve(cache.node(small_node, 6 * MIB, dry_run=True))
    assert len(cache.left()) == 6
    assert [result_of(record, each) for each in cache.ids("0/0", "1/1")] == ["planned", "planned"]
    assert record.reason == "would remove 2 objects of nominally 8.0MiB"


def test_a_cache_that_cannot_be_read_is_an_error_and_the_next_function_goes_on(
    site: Path, small_node: SmallNode
) -> None:
    """Its directory is a symlink now."""
    cache, images = BuildCache(small_node, 1), small_node.add_images(2)
    node = cache.node(small_node, 2 * MIB)
    cache.directory.rename(small_node.disk / "moved")
    cache.directory.symlink_to(small_node.disk / "moved")
    record = relieve(node)
    assert record.errors[0].startswith("PruneBuildCache cannot plan: NotADirectoryError: ")
    assert (small_node.disk / "moved" / "0" / "0").exists()
    assert result_of(record, images[0]) == "removed"


ASK = f"""
from importlib.metadata import entry_points
from reclaim.plugins import load
(entry,) = entry_points(group={ENTRY_POINT_GROUP!r})
plugin = load({NAME!r}, {DISTRIBUTION!r}, {{"directory": "/", "olderThan": "1h"}})
"""


def test_a_program_of_its_own_finds_it_where_pip_has_put_it(site: Path) -> None:
    """A fresh interpreter with that directory on its path, by its metadata alone; its options are refused."""
    found = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    said = "the reclaim function 'PruneBuildCache' of the distribution 'reclaimd-prune-build-cache' refuses its options"
    assert f"{said}: ValueError: directory is '/'" in found.stderr
