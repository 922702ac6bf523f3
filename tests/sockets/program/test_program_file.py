"""Which files are started as programs, with real owners, modes and links.

Another owner needs root to be made; what needs none runs everywhere.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from reclaim.program.function import (
    Printed,
    ProgramRun,
    ProgramUser,
    examine,
    opened_program,
)
from reclaim.types import RemovalFailed
from signals.clock import SystemClock
from tests.sockets.program.scripts import Runs, script

STRANGER = 12345
ALLOWED = "an absolute path without symlinks, '.', '..' and '//'"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a file away or become another user"
)


def problem(path: str, user: ProgramUser | None = None) -> str:
    """Why it would not be started; empty if it would be."""
    try:
        examine(path, user)
    except RemovalFailed as error:
        return str(error)
    return ""


def test_a_program_of_ours_that_only_its_owner_may_write_is_started(tmp_path: Path) -> None:
    """/tmp is above it, which everybody may write, but is sticky."""
    assert problem(script(tmp_path, "exit 0")) == ""


def test_a_program_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    """Also one to a program that could be started itself."""
    path = tmp_path / "link"
    path.symlink_to(script(tmp_path, "exit 0"))
    told = (
        f"the program {str(path)!r} is refused: allowed is {ALLOWED}, such as '{tmp_path}/program'"
    )
    assert problem(str(path)) == told
    assert Runs().run(str(path)) == told


def test_a_program_below_a_symlink_is_refused(tmp_path: Path) -> None:
    """Whoever may change the link could have another program started."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    script(tmp_path / "real", "exit 0")
    assert problem(f"{tmp_path}/link/program").endswith(
        f"{ALLOWED}, such as '{tmp_path}/real/program'"
    )


@pytest.mark.parametrize(
    ("mode", "who"),
    [(0o757, "every user"), (0o777, "every user"), (0o775, f"group {os.getegid()}")],
)
def test_a_program_that_others_may_write_is_refused(tmp_path: Path, mode: int, who: str) -> None:
    """Nothing of it runs, not even its plan."""
    path = script(tmp_path, f"touch {tmp_path}/ran", mode=mode)
    told = (
        f"the program {path} is refused: {who} may write it (mode {mode:04o}); allowed is at most"
        " 0755"
    )
    assert problem(path) == told
    assert Runs().run(path) == told
    with pytest.raises(RemovalFailed):
        Runs().plan(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o775, 0o1777])
def test_a_program_in_a_directory_that_others_may_write_is_refused(
    tmp_path: Path, mode: int
) -> None:
    """In a sticky one as well: a link to another program could be put there."""
    directory = tmp_path / "bin"
    directory.mkdir()
    path = script(directory, "exit 0")
    directory.chmod(mode)
    assert f"may write the directory {directory} (mode {mode:04o})" in problem(path)


def test_a_program_below_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """However far above: the one below it could be replaced."""
    directory = tmp_path / "opt" / "tools" / "bin"
    directory.mkdir(parents=True)
    path = script(directory, "exit 0")
    (tmp_path / "opt").chmod(0o777)
    assert f"every user may write the directory {tmp_path}/opt (mode 0777)" in problem(path)


@needs_root
def test_a_program_of_another_user_is_refused(tmp_path: Path) -> None:
    """Only root's, and that of the user that reclaimd runs as."""
    path = script(tmp_path, "exit 0")
    os.chown(path, STRANGER, STRANGER)
    assert (
        problem(path)
        == f"the program {path} is refused: it belongs to uid {STRANGER}; allowed is root's"
    )


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_program_below_a_directory_of_another_user_is_refused(tmp_path: Path, mode: int) -> None:
    """Its owner may replace what is in it, also in a sticky one."""
    directory = tmp_path / "theirs" / "bin"
    directory.mkdir(parents=True)
    path = script(directory, "exit 0")
    (tmp_path / "theirs").chmod(mode)
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    assert f"the directory {tmp_path}/theirs belongs to uid {STRANGER}" in problem(path)


def test_what_is_no_executable_file_is_refused(tmp_path: Path) -> None:
    """Each with its own sentence."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o700)
    assert problem(str(fifo)).endswith("is refused: it is not a regular file")
    assert problem(str(tmp_path)).endswith("is refused: it is not a regular file")
    assert problem("/").endswith("is refused: it is not a regular file")
    assert problem(script(tmp_path, "exit 0", mode=0o644)).endswith(
        "it is not executable (mode 0644)"
    )
    assert (
        problem(str(tmp_path / "none"))
        == f"the program {tmp_path}/none cannot be used: No such file or directory"
    )
    assert problem(script(tmp_path, "") + "/x").endswith("/x cannot be used: Not a directory")


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


@needs_root
def test_a_program_that_its_user_may_not_execute_is_known_before_the_pressure(
    tmp_path: Path,
) -> None:
    """By the bits of its mode."""
    stranger = ProgramUser(STRANGER, STRANGER)
    told = f"may not be executed by uid {STRANGER}, gid {STRANGER} (mode 0700)"
    assert problem(script(tmp_path, "exit 0", mode=0o700), stranger).endswith(told)
    assert problem(script(tmp_path, "exit 0"), stranger) == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may become another user")
def test_only_root_can_start_a_program_as_another_user(tmp_path: Path) -> None:
    """It is known before the pressure."""
    told = f"cannot be started as uid {STRANGER}: this process may not become another user"
    assert problem(script(tmp_path, "exit 0"), ProgramUser(STRANGER, STRANGER)).endswith(told)
