"""A program of the user's own as a function of the table: run, measured,
reported, and asked for its plan; and which files are started as programs.
"""

from __future__ import annotations

import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import Pass
from reclaim.function import Pressure
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.program.function import (
    OBJECT,
    Printed,
    Program,
    ProgramRun,
    ProgramUser,
    examine,
    opened_program,
    program_function,
)
from reclaim.types import RemovalFailed
from signals.clock import SystemClock
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.pages import DOCS, code_blocks
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
    assert record.reason.startswith("would free ~8.0MiB with 2 objects: nodefs ")
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
    (text,) = code_blocks(DOCS / "functions.md", "sh")
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


# ---- which files are started, with real owners, modes and links

STRANGER = 12345
ALLOWED = "an absolute path without symlinks, '.', '..' and '//'"


def given_away(path: Path | str) -> None:
    """It belongs to another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, STRANGER, STRANGER)


def problem(path: str, user: ProgramUser | None = None) -> str:
    """Why it would not be started; empty if it would be."""
    try:
        examine(path, user)
    except RemovalFailed as error:
        return str(error)
    return ""


def a_link(directory: Path) -> str:
    """To a program that could be started itself."""
    path = directory / "link"
    path.symlink_to(script(directory, "exit 0"))
    return str(path)


def below_a_link(directory: Path) -> str:
    """Whoever may change the link could have another program started."""
    (directory / "real").mkdir()
    (directory / "link").symlink_to("real")
    return script(directory / "real", "exit 0").replace("/real/", "/link/")


def below(directory: Path, change: Callable[[Path], object]) -> str:
    """In a directory below one that is so."""
    (directory / "opt" / "bin").mkdir(parents=True)
    path = script(directory / "opt" / "bin", "exit 0")
    change(directory / "opt")
    return path


def in_one_of(mode: int) -> Callable[[Path], str]:
    """In a directory with this mode."""

    def made(directory: Path) -> str:
        path = script(directory, "exit 0")
        directory.chmod(mode)
        return path

    return made


def somebody_elses(directory: Path) -> str:
    """Only root's, and that of the user that reclaimd runs as, is started."""
    path = script(directory, "exit 0")
    given_away(path)
    return path


def a_fifo(directory: Path) -> str:
    """Opening it would wait."""
    os.mkfifo(directory / "fifo", 0o700)
    return str(directory / "fifo")


def with_mode(mode: int) -> Callable[[Path], str]:
    """A program with this mode."""
    return lambda directory: script(directory, "exit 0", mode=mode)


MAY_WRITE = "may write it (mode {}); allowed is at most 0755"
DIRECTORY_OF_ALL = "every user may write the directory {} (mode {})"
NO_FILE = "is refused: it is not a regular file"
GROUP = f"group {os.getegid()}"
REFUSED: dict[str, tuple[Callable[[Path], str], str]] = {
    "a symlink": (a_link, f"{ALLOWED}, such as '{{0}}/program'"),
    "below a symlink": (below_a_link, f"{ALLOWED}, such as '{{0}}/real/program'"),
    "others may write it": (with_mode(0o757), f"every user {MAY_WRITE.format('0757')}"),
    "its group may write it": (with_mode(0o775), f"{GROUP} {MAY_WRITE.format('0775')}"),
    "not executable": (with_mode(0o644), "it is not executable (mode 0644)"),
    "its group may": (in_one_of(0o775), f"{GROUP} may write the directory {{0}} (mode 0775)"),
    "all may, though it is sticky": (in_one_of(0o1777), DIRECTORY_OF_ALL.format("{0}", "1777")),
    "however far above": (
        lambda directory: below(directory, lambda path: path.chmod(0o777)),
        DIRECTORY_OF_ALL.format("{0}/opt", "0777"),
    ),
    "another user's": (somebody_elses, f"it belongs to uid {STRANGER}; allowed is root's"),
    "below another user's": (
        lambda directory: below(directory, given_away),
        f"the directory {{0}}/opt belongs to uid {STRANGER}",
    ),
    "a fifo": (a_fifo, NO_FILE),
    "a directory": (str, NO_FILE),
    "nothing": (lambda path: f"{path}/none", "/none cannot be used: No such file or directory"),
    "below a file": (
        lambda directory: script(directory, "") + "/x",
        "/x cannot be used: Not a directory",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_program_that_another_could_have_made_is_refused(tmp_path: Path, what: str) -> None:
    """Each with its own sentence, at the start and when it would be run or asked for its plan;
    /tmp is above all of them, which everybody may write, but is sticky."""
    make, words = REFUSED[what]
    directory = tmp_path / "d"
    directory.mkdir()
    path = make(directory)
    told = problem(path)
    assert words.format(directory) in told
    assert Runs().run(path) == told
    with pytest.raises(RemovalFailed):
        Runs().plan(path)


def test_a_program_of_ours_that_only_its_owner_may_write_is_started(tmp_path: Path) -> None:
    """With mode 0755."""
    assert problem(script(tmp_path, "exit 0")) == ""


@pytest.mark.parametrize("path", ["prune", "", "/usr/../bin/x", "//bin/x", "/bin/./x", "/bin/x/"])
def test_a_program_is_named_by_a_plain_absolute_path(path: str) -> None:
    """Nothing is looked for on a PATH."""
    assert problem(path).startswith(
        f"the program {path!r} is refused: allowed is {ALLOWED}, such as "
    )


def test_what_was_checked_is_what_is_started(tmp_path: Path) -> None:
    """Between the check and the start another file comes to its path: it does not run."""
    path, printed = script(tmp_path, "echo the first"), Printed(print, is_plan=True)
    with opened_program(path) as program:
        os.replace(script(tmp_path, "echo another", name="other"), path)
        run = ProgramRun(program.fileno(), (path,), {}, user=None, printed=printed)
    run.watch(60.0, SystemClock(), threading.Event())
    assert (run.status, bytes(printed.plan)) == (0, b"the first\n")
    runs = Runs()
    assert runs.run(path) == ""
    assert runs.lines == ["another"]


def test_who_may_run_it_is_known_before_the_pressure(tmp_path: Path) -> None:
    """Root may become another user, who is asked by the bits of its mode."""
    stranger, path = ProgramUser(STRANGER, STRANGER), script(tmp_path, "exit 0")
    if os.geteuid() == 0:
        assert problem(path, stranger) == ""
        os.chmod(path, 0o700)
        told = f"may not be executed by uid {STRANGER}, gid {STRANGER} (mode 0700)"
    else:
        told = f"cannot be started as uid {STRANGER}: this process may not become another user"
    assert problem(path, stranger).endswith(told)
