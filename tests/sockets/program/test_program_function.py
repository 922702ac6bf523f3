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
from eviction.records.passes import Pass
from reclaim.function import Pressure
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.program.function import OBJECT, Program, program_function
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.pages import RECLAIM, code_blocks
from tests.sockets.program.scripts import PRUNE, Runs, script

CACHED = 4
OPEN_TO_ALL = 0o777


class Cache:
    """Four files of 4 MiB on a node's disk, and a program before the product's own functions."""

    def __init__(self, small: SmallNode, text: str, *, mode: int = 0o755, asks_plan: bool = True):
        self.small = small
        self.directory = small.disk / "cache"
        self.directory.mkdir()
        for number in range(CACHED):
            (self.directory / f"{number}").write_bytes(os.urandom(4 * MIB))
        self.lines: list[str] = []
        self.path = script(small.disk.parent, f"cd {self.directory}\n{text}", mode=mode)
        program = Program(PRUNE, (self.path,), 2.0, self.lines.append, asks_plan=asks_plan)
        self.function = program_function(program, FilesystemRole.NODEFS)

    def relieve(self, above: int, **options: Any) -> Pass:
        """A pass under pressure until `above` more MiB are free."""
        table = table_of(self.function, *FUNCTIONS.values())
        options.update(functions=table, first=PRUNE)
        return relieve(self.small.node(Signal.NODEFS_AVAILABLE, above * MIB, **options))

    @property
    def left(self) -> int:
        """How many files are in the cache."""
        return len(os.listdir(self.directory))


def told(record: Pass) -> list[tuple[str, str, str, str, str | None]]:
    """What became of the program, or of what it says."""
    return [
        (each["kind"], each["id"], each["name"], each["reason"], each["result"])
        for each in to_json(pass_json(record))["removals"]
    ]


@pytest.mark.parametrize(
    ("text", "mode", "result", "error", "frees"),
    [
        ('test "$1" != plan || exec sleep 600\nrm -- *', 0o755, "removed", "", True),
        ("rm -- *; exit 1", 0o755, "failed", "exited with 1", True),
        ("exit 0", 0o755, "removed", "", False),
        ("echo no >&2; exit 3", 0o755, "failed", "exited with 3; its last line: no", False),
        ("exec sleep 600", 0o755, "failed", "had not ended after 2 s", False),
        ("rm -- *", OPEN_TO_ALL, "failed", "every user may write it", False),
    ],
    ids=["frees", "frees and fails", "frees nothing", "fails", "hangs", "is refused"],
)
def test_a_program_is_believed_by_what_the_disk_shows(
    small_node: SmallNode, text: str, mode: int, result: str, error: str, frees: bool
) -> None:
    """Whatever it says: what it has freed relieves the disk, and no image goes; where it has freed
    nothing the next function goes on. It is not asked for its plan, it is waited for until it is
    ended, though other removals are parked sooner, and its error is told."""
    cache = Cache(small_node, text, mode=mode)
    images = small_node.add_images(2)
    record = cache.relieve(8, removalPatience="1s")
    assert told(record)[0] == ("program", PRUNE, cache.path, "in_table", result)
    program = record.removals[0]
    assert error in program.error if error else not program.error
    assert str(record.result) == "satisfied"
    assert cache.left == (0 if frees else CACHED)
    assert (record.measured.bytes >= 16 * MIB) is frees
    if result == "removed":
        freed = program.freed.bytes // MIB, program.freed.inodes
        assert freed == ((16, CACHED) if frees else (0, 0))
    assert (set(images) <= small_node.images()) is frees


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
    record = cache.relieve(6, dry_run=True)
    assert told(record) == [
        ("program_object", f"{PRUNE}/{n + 1}", f"{n} (oldest)", "listed_by_program", "planned")
        for n in range(2)
    ]
    assert record.reason == "would remove 2 objects of nominally 8.0MiB"
    assert cache.left == CACHED


@pytest.mark.parametrize(
    ("text", "asks_plan", "why"),
    [
        ("exit 2", True, " (asked for its plan it exited with 2)"),
        ("exit 0", True, " (asked for its plan it printed nothing)"),
        (
            "echo would remove 3 files",
            True,
            f" (asked for its plan it printed as line 1 'would remove 3 files'; allowed is {OBJECT})",
        ),
        (
            'yes \'{"name": "x"}\' | head -c 1048578',
            True,
            " (asked for its plan it printed more than 1048576 bytes)",
        ),
        ("rm -- *", False, ""),
    ],
)
def test_a_program_without_a_plan_is_one_object_without_a_size(
    small_node: SmallNode, text: str, asks_plan: bool, why: str
) -> None:
    """With the reason, which is also logged; the functions after it are planned as well. One that
    does its work whatever its arguments are is not started."""
    cache = Cache(small_node, text, asks_plan=asks_plan)
    small_node.add_images(2)
    record = cache.relieve(2, dry_run=True)
    first, second, *_ = told(record)
    assert first == ("program", PRUNE, f"{cache.path}{why}", "in_table", "planned")
    assert record.removals[0].verdict.size_bytes is None
    assert cache.lines[-1:] == ([f"[{why[2:-1]}]"] if why else [])
    assert (second[0], second[4], cache.left) == ("image", "planned", CACHED)


@pytest.mark.parametrize(
    ("text", "mode", "error"),
    [("echo '{}'", 0o755, ""), (LISTS, OPEN_TO_ALL, "every user may write it")],
    ids=["would remove nothing", "is refused"],
)
@pytest.mark.parametrize("asks_plan", [True, False])
def test_a_program_that_would_not_run_is_not_in_a_dry_run(
    small_node: SmallNode, text: str, mode: int, error: str, asks_plan: bool
) -> None:
    """An empty object says so; one that is refused is an error."""
    cache = Cache(small_node, text, mode=mode, asks_plan=asks_plan or not error)
    small_node.add_images(2)
    record = cache.relieve(2, dry_run=True)
    assert {each[0] for each in told(record)} == {"image"}
    assert error in "".join(record.errors)
    assert bool(record.errors) is bool(error)


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
    """`plan` is the last argument, and there are 10 s at most. What it prints as errors is logged,
    and no part of it."""
    runs = Runs(pressure=Pressure("nodefs.available"))
    line = json.dumps({"name": "a", "size": None})
    path = script(
        tmp_path,
        'printf \'{"name": "%s"}\\n\' "$*" "$RECLAIMD_DRY_RUN" "$RECLAIMD_DEADLINE_SECONDS"'
        f" \"$RECLAIMD_SIGNAL\"; echo looking >&2; echo '{line}'",
    )
    planned = runs.plan(path, "--age", "7d")
    assert [name for name, _ in planned] == ["--age 7d plan", "true", "10", "nodefs.available", "a"]
    assert runs.lines == ["looking"]


def test_what_a_program_prints_instead_of_a_plan_takes_no_memory(tmp_path: Path) -> None:
    """It prints on, as fast as it is read, until it is ended at its time, as any run."""
    tracemalloc.start()
    try:
        path = script(tmp_path, "exec cat /dev/zero")
        ((shown, _),) = Runs().plan(path, timeout=1.0)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert shown == f"{path} (asked for its plan it printed more than 1048576 bytes)"
    path = script(tmp_path, "echo '{}'; sleep 600")
    ((shown, _),) = Runs().plan(path, timeout=0.5)
    assert shown == f"{path} (asked for its plan it had not ended after 0.5 s)"
