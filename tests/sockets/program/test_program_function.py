"""A program of the user's own as a function of the table: run, measured,
reported, and asked for its plan.
"""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import Pass, PassResult
from reclaim.function import Pressure
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.program.function import OBJECT, Program, program_function
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve, result_of
from tests.pages import RECLAIM, code_blocks
from tests.sockets.program.scripts import PRUNE, Runs, script

CACHED = 4


class Cache:
    """Four files of 4 MiB on a node's disk, and tables with a program before
    the product's own functions.
    """

    def __init__(
        self, small: SmallNode, text: str, timeout: float = 60.0, *, asks_plan: bool = True
    ):
        self.directory = small.disk / "cache"
        self.directory.mkdir()
        for number in range(CACHED):
            (self.directory / f"{number}").write_bytes(os.urandom(4 * MIB))
        self.lines: list[str] = []
        bin_directory = small.disk.parent / "bin"
        bin_directory.mkdir()
        self.path = script(bin_directory, f"cd {self.directory}\n{text}")
        program = Program(PRUNE, (self.path,), timeout, self.lines.append, asks_plan=asks_plan)
        self.function = program_function(program, FilesystemRole.NODEFS)
        self.tables: dict[str, Any] = {
            "functions": table_of(self.function, *FUNCTIONS.values()),
            "first": PRUNE,
        }

    def left(self) -> list[str]:
        """What is in the cache."""
        return sorted(path.name for path in self.directory.iterdir())

    def relieve(self, small: SmallNode, above: int, **options: Any) -> Pass:
        """A pass under pressure until `above` more bytes are free."""
        return relieve(small.node(Signal.NODEFS_AVAILABLE, above, **self.tables, **options))


def told(record: Pass) -> list[tuple[str, str, str, str, str | None]]:
    """What became of the program, or of what it says."""
    removals = to_json(pass_json(record))["removals"]
    return [
        (each["kind"], each["id"], each["name"], each["reason"], each["result"])
        for each in removals
    ]


def test_what_a_program_frees_is_measured_and_relieves_the_disk(small_node: SmallNode) -> None:
    """8 MiB are wanted: it frees 16 MiB, no image goes, and the record has it."""
    cache, images = Cache(small_node, 'rm -- *; echo "removed four"'), small_node.add_images(2)
    record = cache.relieve(small_node, 8 * MIB)
    assert cache.left() == []
    assert told(record) == [("program", PRUNE, cache.path, "in_table", "removed")]
    assert record.result is PassResult.SATISFIED
    assert 16 * MIB <= record.removals[0].freed.bytes < 17 * MIB
    assert record.removals[0].freed.inodes == CACHED
    assert set(images) <= small_node.images()
    assert cache.lines == ["removed four"]


def test_a_program_that_says_it_has_freed_something_is_not_believed(small_node: SmallNode) -> None:
    """Exit 0, and not a byte came: the next function goes on."""
    cache, images = Cache(small_node, "exit 0"), small_node.add_images(2)
    record = cache.relieve(small_node, 2 * MIB)
    assert told(record)[0][4] == "removed"
    assert record.removals[0].freed.bytes == 0
    assert result_of(record, images[0]) == "removed"
    assert record.result is PassResult.SATISFIED


def test_a_program_that_fails_is_told_and_the_next_function_goes_on(small_node: SmallNode) -> None:
    """With its sentence."""
    cache, images = Cache(small_node, "echo no >&2; exit 3"), small_node.add_images(2)
    record = cache.relieve(small_node, 2 * MIB)
    assert told(record)[0][4] == "failed"
    assert record.removals[0].error == f"the program {cache.path} exited with 3; its last line: no"
    assert result_of(record, images[0]) == "removed"


def test_a_program_that_frees_and_then_fails_has_relieved_the_disk_all_the_same(
    small_node: SmallNode,
) -> None:
    """Only the filesystem is believed."""
    cache, images = Cache(small_node, "rm -- *; exit 1"), small_node.add_images(2)
    record = cache.relieve(small_node, 8 * MIB)
    assert [each[4] for each in told(record)] == ["failed"]
    assert record.result is PassResult.SATISFIED
    assert record.measured.bytes >= 16 * MIB
    assert set(images) <= small_node.images()


def test_a_program_that_hangs_holds_up_the_next_function_for_its_time_only(
    small_node: SmallNode,
) -> None:
    """It is waited for until it is ended, and is never parked before."""
    cache, images = (
        Cache(small_node, "trap '' TERM; while :; do sleep 600; done", timeout=1.0),
        small_node.add_images(2),
    )
    record = cache.relieve(small_node, 2 * MIB, removalPatience="1s")
    assert record.removals[0].error.endswith(
        "had not ended after 1 s; SIGTERM has not ended it, SIGKILL has"
    )
    assert told(record)[0][4] == "failed"
    assert result_of(record, images[0]) == "removed"


def test_a_program_that_is_refused_has_failed_and_the_next_function_goes_on(
    small_node: SmallNode,
) -> None:
    """Somebody may write it since the start."""
    cache, images = Cache(small_node, "rm -- *"), small_node.add_images(2)
    Path(cache.path).chmod(0o777)
    record = cache.relieve(small_node, 2 * MIB)
    assert "every user may write it" in record.removals[0].error
    assert len(cache.left()) == CACHED
    assert result_of(record, images[0]) == "removed"


# ---- dry runs

LISTS = r"""
if [ "$1" = plan ]; then
    for file in *; do printf '{"name": "%s", "size": %s, "reason": "oldest"}\n' "$file" "$(stat -c %s "$file")"; done
    exit
fi
rm -- *
"""


def test_a_dry_run_shows_what_the_program_says_and_credits_it(small_node: SmallNode) -> None:
    """6 MiB are wanted: two of its objects are planned, and nothing is removed."""
    cache = Cache(small_node, LISTS)
    record = cache.relieve(small_node, 6 * MIB, dry_run=True)
    assert told(record) == [
        (
            "program_object",
            f"{PRUNE}/{number}",
            f"{number - 1} (oldest)",
            "listed_by_program",
            "planned",
        )
        for number in (1, 2)
    ]
    assert record.reason == "would remove 2 objects of nominally 8.0MiB"
    assert len(cache.left()) == CACHED


def test_a_pass_does_not_ask_for_the_plan(small_node: SmallNode) -> None:
    """One that is broken stops nobody."""
    cache = Cache(small_node, 'test "$1" != plan || exec sleep 600\nrm -- *')
    assert cache.relieve(small_node, 8 * MIB).result is PassResult.SATISFIED
    assert cache.left() == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 2", "exited with 2"),
        ("exit 0", "printed nothing"),
        (
            "echo would remove 3 files",
            f"printed as line 1 'would remove 3 files'; allowed is {OBJECT}",
        ),
        ('yes \'{"name": "x"}\' | head -c 1048578', "printed more than 1048576 bytes"),
    ],
)
def test_a_program_without_a_plan_is_one_object_without_a_size(
    small_node: SmallNode, text: str, why: str
) -> None:
    """With the reason, which is also logged; the functions after it are planned as well."""
    cache, images = Cache(small_node, text), small_node.add_images(2)
    record = cache.relieve(small_node, 2 * MIB, dry_run=True)
    assert told(record)[0] == (
        "program",
        PRUNE,
        f"{cache.path} (asked for its plan it {why})",
        "in_table",
        "planned",
    )
    assert record.removals[0].verdict.size_bytes is None
    assert cache.lines[-1] == f"[asked for its plan it {why}]"
    assert result_of(record, images[0]) == "planned"


def test_a_program_that_would_remove_nothing_says_so(small_node: SmallNode) -> None:
    """An empty object; it is not in the record then."""
    cache = Cache(small_node, "echo '{}'")
    small_node.add_images(2)
    record = cache.relieve(small_node, 2 * MIB, dry_run=True)
    assert {each[0] for each in told(record)} == {"image"}
    assert (cache.lines, record.errors) == ([], ())


def test_a_program_that_is_not_to_be_asked_is_not_started_in_a_dry_run(
    small_node: SmallNode,
) -> None:
    """For one that does its work whatever its arguments are."""
    cache = Cache(small_node, "rm -- *", asks_plan=False)
    record = cache.relieve(small_node, 2 * MIB, dry_run=True)
    assert told(record)[0] == ("program", PRUNE, cache.path, "in_table", "planned")
    assert len(cache.left()) == CACHED


@pytest.mark.parametrize("asks_plan", [True, False])
def test_a_program_that_is_refused_is_an_error_of_a_dry_run(
    small_node: SmallNode, asks_plan: bool
) -> None:
    """It is not said that it would run."""
    cache = Cache(small_node, LISTS, asks_plan=asks_plan)
    Path(cache.path).chmod(0o777)
    record = cache.relieve(small_node, 2 * MIB, dry_run=True)
    assert "every user may write it" in record.errors[0]
    assert told(record)[0][0] == "image"


def test_the_program_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    """As it is printed: planned, removed, and with nothing left to remove."""
    text = next(block for block in code_blocks(RECLAIM, "sh") if "RECLAIMD_FILESYSTEM" in block)
    cache = tmp_path / "cache"
    (cache / "layers").mkdir(parents=True)
    for name, size, days in (("old", 3000, 8.5), ("layers/older", 5000, 30.0), ("new", 7000, 0.0)):
        (cache / name).write_bytes(b"x" * size)
        os.utime(cache / name, (time.time() - days * 86400,) * 2)
    runs, path = Runs(pressure=Pressure(filesystem=str(tmp_path))), script(tmp_path, text)
    assert sorted(runs.plan(path)) == [
        ("layers/older (unused for a week)", 5000),
        ("old (unused for a week)", 3000),
    ]
    assert runs.run(path) == ""
    assert sorted(str(each.relative_to(cache)) for each in cache.rglob("*")) == ["layers", "new"]
    assert runs.plan(path) == []


def test_what_a_plan_is_told(tmp_path: Path) -> None:
    """`plan` is the last argument, and there are 10 s at most."""
    runs = Runs(pressure=Pressure("nodefs.available"))
    told = (
        'printf \'{"name": "%s"}\\n\' "$*" "$RECLAIMD_DRY_RUN" "$RECLAIMD_DEADLINE_SECONDS"'
        ' "$RECLAIMD_SIGNAL"'
    )
    planned = runs.plan(script(tmp_path, told), "--age", "7d")
    assert [name for name, _ in planned] == ["--age 7d plan", "true", "10", "nodefs.available"]


def test_the_errors_of_a_plan_are_logged_and_are_no_part_of_it(tmp_path: Path) -> None:
    """So a program may say what it does."""
    runs = Runs()
    line = json.dumps({"name": "a", "size": None})
    assert runs.plan(script(tmp_path, f"echo looking >&2; echo '{line}'")) == [("a", None)]
    assert runs.lines == ["looking"]


def test_a_plan_that_takes_too_long_is_none(tmp_path: Path) -> None:
    """It is ended as any run."""
    path = script(tmp_path, "echo '{}'; sleep 600")
    assert Runs().plan(path, timeout=0.5) == [
        (f"{path} (asked for its plan it had not ended after 0.5 s)", None)
    ]


def test_what_a_program_prints_instead_of_a_plan_takes_no_memory(tmp_path: Path) -> None:
    """It prints on, as fast as it is read, until it is ended."""
    path = script(tmp_path, "exec cat /dev/zero")
    tracemalloc.start()
    try:
        ((shown, _),) = Runs().plan(path, timeout=1.0)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert shown == f"{path} (asked for its plan it printed more than 1048576 bytes)"
