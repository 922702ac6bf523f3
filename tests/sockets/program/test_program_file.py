"""Which files are started as programs, with real owners, modes and links.

Another owner needs root to be made; what needs none runs everywhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
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
