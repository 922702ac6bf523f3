"""`reclaimd install --systemd` and `reclaimd uninstall` of the wheel, below another root: what they
place, tell, keep, refuse and remove, and what somebody who may write there makes of it.

At /, with a service: `test_bundle.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from eviction.cli.below_root import NotTrustedError, proven
from tests.distributions import environment_of
from tests.repository import ROOT

pytestmark = pytest.mark.house(
    "config/systemd",
    "eviction/cli/below_root.py",
    "eviction/cli/install.py",
    "eviction/cli/uninstall.py",
    "eviction/shipped.py",
    "pyproject.toml",
    "reclaim/trust.py",
)

UNITS = ROOT / "config" / "systemd"
CONFIGURATION = "/etc/reclaimd/reclaimd.yaml"
RECORD = "/usr/local/share/reclaimd/installed-files"


def files_in(root: Path) -> dict[str, bytes]:
    """Everything but directories: by path, the content, or where a symlink leads."""
    return {
        "/" + str(path.relative_to(root)): (
            os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        )
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def root(wheel: Path, tmp_path: Path) -> Path:
    """Another root, with the program in /opt/reclaimd."""
    environment_of(wheel, tmp_path / "opt" / "reclaimd")
    return tmp_path


INSTALL, UNINSTALL = ("install", "--systemd"), ("uninstall",)


def run(
    root: Path, *words: str, by: tuple[str, ...] = (), umask: int = -1
) -> subprocess.CompletedProcess[str]:
    """A command, to its end; without words it installs.

    `by`: the program, if it is not the one in /opt/reclaimd.
    """
    program = by or (str(root / "opt/reclaimd/bin/reclaimd"),)
    command = [*program, *(words or INSTALL), "--root", str(root)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, umask=umask, timeout=60.0
    )


def told(root: Path, *words: str, by: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """What it says of which path; it has ended well."""
    process = run(root, *words, by=by)
    assert (process.returncode, process.stderr) == (0, "")
    lines = (line.split() for line in process.stdout.splitlines())
    return [(word, path) for word, path, *_ in lines]


def placed_in(root: Path) -> dict[str, bytes]:
    """What is there but the program."""
    return {
        path: content for path, content in files_in(root).items() if not path.startswith("/opt/")
    }


def test_everything_is_where_the_unit_looks_for_it(root: Path) -> None:
    """What the unit starts and reads, manual, completions, drop-ins as examples; each is told."""
    lines = told(root)
    placed = placed_in(root)
    assert {word for word, _ in lines} == {"new"}
    assert {path for _, path in lines} == placed.keys()
    units = root / "etc" / "systemd" / "system"
    assert {path.name for path in units.iterdir() if path.is_file()} == {
        p.name for p in UNITS.iterdir() if p.is_file()
    }
    drop_ins = {path.name for path in (units / "reclaimd.service.d").iterdir()}
    assert drop_ins == {f"{path.name}.example" for path in (UNITS / "reclaimd.service.d").iterdir()}
    (start,) = re.findall(
        r"^ExecStart=(.*)$", (units / "reclaimd.service").read_text(), re.MULTILINE
    )
    program, subcommand, *options = shlex.split(start)
    assert (program, subcommand) == ("/opt/reclaimd/bin/reclaimd", "run")
    configuration = root / options[options.index("--config") + 1].lstrip("/")
    assert configuration.stat().st_mode & 0o777 == 0o600
    assert (
        configuration.parent / configuration.read_text().splitlines()[0].partition("$schema=")[2]
    ).is_file()
    assert placed[RECORD].decode().split() == [path for _, path in lines if path != CONFIGURATION]
    shared = (
        "man/man1/reclaimd.1",
        "bash-completion/completions/reclaimd",
        "zsh/site-functions/_reclaimd",
    )
    assert {
        f"/usr/local/share/{path}" for path in (*shared, "fish/vendor_completions.d/reclaimd.fish")
    } <= placed.keys()


def test_no_file_names_the_root_below_which_it_was_staged_and_who_may_write_is_not_for_the_umask(
    root: Path,
) -> None:
    """All of it works at /."""
    assert run(root, umask=0).returncode == 0
    assert [
        path for path, content in placed_in(root).items() if str(root).encode() in content
    ] == []
    outside = [path for name in ("etc", "usr") for path in (root / name).rglob("*")]
    assert [str(path) for path in outside if path.stat().st_mode & 0o022] == []


def test_the_unit_starts_the_program_that_has_placed_it(root: Path, wheel: Path) -> None:
    """Wherever it is, also with characters that systemd expands or splits at."""
    environment_of(wheel, root / "srv" / "my 100%")
    told(root, by=(str(root / "srv/my 100%/bin/python"), "-I", "-m", "eviction"))
    unit = (root / "etc/systemd/system/reclaimd.service").read_text()
    assert "\nExecStart='/srv/my 100%%/bin/reclaimd' run --config " in unit
    assert "\nExecReload='/srv/my 100%%/bin/reclaimd' reload --config " in unit


def test_once_more_keeps_the_configuration_and_tells_what_changed(root: Path) -> None:
    """A file that another version had is gone, one that differs is as it should be,
    and nothing else is told.
    """
    told(root)
    (root / CONFIGURATION.lstrip("/")).write_text("mine")
    units = root / "etc/systemd/system"
    former = units / "reclaimd-xfs.service"
    for path in (units / "reclaimd.service", former):
        path.write_text("of another version")
    with (root / RECORD.lstrip("/")).open("a") as record:
        record.write("/etc/systemd/system/reclaimd-xfs.service\n")
    assert told(root) == [
        ("gone", "/etc/systemd/system/reclaimd-xfs.service"),
        ("changed", "/etc/systemd/system/reclaimd.service"),
        ("changed", RECORD),
        ("kept", CONFIGURATION),
    ]
    assert (root / CONFIGURATION.lstrip("/")).read_text() == "mine"
    assert (units / "reclaimd.service").read_text() == (UNITS / "reclaimd.service").read_text()
    assert not former.exists()
    assert told(root) == [("kept", CONFIGURATION)]


def test_what_was_placed_is_removed_and_the_rest_is_left_and_told(root: Path) -> None:
    """Configuration and records stay, unless they are purged; a drop-in of the
    operator's always.
    """
    told(root)
    mine = root / "etc/systemd/system/reclaimd.service.d/network.conf"
    mine.write_text("[Service]\nPrivateNetwork=no\n")
    state = root / "var/lib/reclaimd/images.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    record = (root / RECORD.lstrip("/")).read_text().split()
    drop_ins = "/" + str(mine.parent.relative_to(root))
    assert told(root, "uninstall") == [
        *(("gone", path) for path in record),
        ("left", "/etc/reclaimd"),
        ("left", "/var/lib/reclaimd"),
        ("left", drop_ins),
    ]
    assert placed_in(root).keys() == {
        CONFIGURATION,
        f"{drop_ins}/network.conf",
        "/var/lib/reclaimd/images.json",
    }
    assert told(root, "uninstall", "--purge") == [
        ("gone", "/etc/reclaimd"),
        ("gone", "/var/lib/reclaimd"),
        ("left", drop_ins),
    ]
    assert placed_in(root).keys() == {f"{drop_ins}/network.conf"}
    assert told(root, "uninstall") == [("left", drop_ins)]


def test_a_program_that_the_service_could_not_see_is_refused(root: Path) -> None:
    """In a temporary directory, as it is not below the other root: the sentence
    names it and a way that works.
    """
    command = [
        str(root / "opt/reclaimd/bin/reclaimd"),
        "install",
        "--systemd",
        "--root",
        str(root / "elsewhere"),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60.0)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith(
        f"reclaimd: the service could not run {root}/opt/reclaimd/bin/reclaimd "
    )
    assert "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install" in process.stderr
    assert process.stderr.count("\n") == 1
    assert not (root / "elsewhere").exists()


def test_a_file_that_cannot_be_written_is_named(root: Path) -> None:
    """And nothing is a traceback."""
    (root / "etc").write_text("no directory")
    process = run(root)
    assert process.returncode == 1
    assert process.stderr.startswith("reclaimd: ")
    assert f"{root}/etc" in process.stderr
    assert process.stderr.count("\n") == 1


# ---- somebody else may write there


BY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
SOMEBODY = 12345


def refused(process: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal, before which nothing was done."""
    assert (process.returncode, process.stdout) == (2, ""), process.stderr
    assert process.stderr.count("\n") == 1, process.stderr
    return process.stderr


@pytest.mark.parametrize("words", [INSTALL, UNINSTALL], ids=" ".join)
def test_a_record_names_nothing_that_no_installer_has_placed(
    root: Path, words: tuple[str, ...]
) -> None:
    """With `/../` and without: it is left, and named. What is of an earlier version goes."""
    told(root)
    outside = root.with_name(f"{root.name}-outside")
    former = root / "etc/systemd/system/reclaimd-xfs.socket"
    others = [outside, root / "etc" / "shadow", former]
    for path in others:
        path.write_text("of somebody else")
    names = [f"/../{outside.name}", f"/usr/../../{outside.name}", "/etc/shadow", "etc/shadow", "/"]
    with (root / RECORD.lstrip("/")).open("a") as record:
        record.write(
            "".join(f"{name}\n" for name in (*names, "/etc/systemd/system/reclaimd-xfs.socket"))
        )
    lines = told(root, *words)
    assert [path.exists() for path in others] == [True, True, False]
    assert [path for word, path in lines if word == "left"][: len(names)] == names
    assert ("gone", "/etc/systemd/system/reclaimd-xfs.socket") in lines


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_by_a_record_that_no_installer_can_have_written_nothing_is_removed(
    root: Path, mode: int
) -> None:
    """A GiB, or others may write it: it is not read. Once installed anew, everything is removed."""
    told(root)
    before, record = placed_in(root).keys(), root / RECORD.lstrip("/")
    if mode == 0o644:
        os.truncate(record, 1 << 30)
    record.chmod(mode)
    process = run(root, *UNINSTALL)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(
        f"reclaimd: {RECORD} is not as an installer has written it: install once more"
    )
    assert told(root) == [("changed", RECORD), ("kept", CONFIGURATION)]
    assert placed_in(root).keys() == before
    told(root, *UNINSTALL)
    assert placed_in(root).keys() == {CONFIGURATION}


@pytest.mark.parametrize(
    "link", ["etc", "usr/local", "usr/local/share/man", "etc/systemd/system/reclaimd.service.d"]
)
@pytest.mark.parametrize("words", [INSTALL, UNINSTALL], ids=" ".join)
def test_no_symlink_below_the_root_is_followed(
    root: Path, words: tuple[str, ...], link: str
) -> None:
    """It is named, and nothing is written or removed on either side."""
    told(root)
    outside = root.with_name(f"{root.name}-outside")
    (root / link).rename(outside)
    (root / link).symlink_to(outside)
    (outside / "mine").write_text("")
    before = files_in(outside), files_in(root)
    assert f"{root}/{link} is a symlink, which is not followed" in refused(run(root, *words))
    assert (files_in(outside), files_in(root)) == before


@pytest.mark.parametrize("name", ["reclaimd.1", "reclaimd.1.new"])
def test_what_was_prepared_under_a_name_of_ours_is_not_written_to(root: Path, name: str) -> None:
    """A symlink, a hard link, a FIFO: what it leads to stays as it is, nothing is waited
    for, and the file is ours.
    """
    outside = root / "precious"
    outside.write_text("of somebody else")
    directory = root / "usr/local/share/man/man1"
    directory.mkdir(parents=True)
    for prepare in (Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)):
        prepare(directory / name, outside)
        assert run(root).returncode == 0
        assert outside.read_text() == "of somebody else"
        manual = os.lstat(directory / "reclaimd.1")
        assert (stat.S_IFMT(manual.st_mode), manual.st_nlink) == (stat.S_IFREG, 1)
        assert (directory / "reclaimd.1").read_bytes() == (
            ROOT / "config/man/reclaimd.1"
        ).read_bytes()
        (directory / name).unlink()


def test_a_file_that_others_may_write_is_written_anew(root: Path) -> None:
    """Although its content is right: else they could change it later.

    A record of that kind is not believed.
    """
    told(root)
    unit, record = root / "etc/systemd/system/reclaimd.service", root / RECORD.lstrip("/")
    former = root / "etc/systemd/system/reclaimd-xfs.service"
    former.write_text("")
    with record.open("a") as file:
        file.write("/etc/systemd/system/reclaimd-xfs.service\n")
    for path in (unit, record):
        path.chmod(0o666)
    names = ["/etc/systemd/system/reclaimd.service", RECORD]
    assert told(root) == [*(("changed", name) for name in names), ("kept", CONFIGURATION)]
    assert [path.stat().st_mode & 0o777 for path in (unit, record)] == [0o644, 0o644]
    assert former.exists()


def test_purging_stays_below_the_root(root: Path) -> None:
    """A symlink in place of a directory goes, and what it leads to stays."""
    told(root)
    outside = root.with_name(f"{root.name}-outside")
    outside.mkdir()
    (outside / "mine").write_text("")
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/reclaimd").symlink_to(outside)
    (root / "etc/reclaimd/linked").symlink_to(outside)
    assert ("gone", "/var/lib/reclaimd") in told(root, "uninstall", "--purge")
    assert (outside / "mine").exists()
    assert placed_in(root) == {}


@BY_ROOT
@pytest.mark.parametrize("words", [INSTALL, UNINSTALL, ("uninstall", "--purge")], ids=" ".join)
@pytest.mark.parametrize(
    ("place", "owner", "group", "mode", "why"),
    [
        (".", SOMEBODY, 0, 0o755, f"belongs to uid {SOMEBODY}"),
        (".", 0, SOMEBODY, 0o775, f"group {SOMEBODY} may write"),
        (".", 0, 0, 0o1777, "every user may write"),
        ("etc/systemd", SOMEBODY, 0, 0o755, f"it belongs to uid {SOMEBODY}"),
        (
            "usr/local",
            0,
            50,
            0o2775,
            "group 50 may write it (mode 2775); allowed is at most 0755 (chown root, chmod go-w)",
        ),
        ("usr/local/share/man/man1", 0, 0, 0o757, "every user may write it"),
    ],
)
def test_a_directory_that_others_may_write_is_refused(
    root: Path, words: tuple[str, ...], place: str, owner: int, group: int, mode: int, why: str
) -> None:
    """The root, or one below it: the sentence names it, who may write, and what
    to do; nothing is changed.
    """
    told(root)
    (root / RECORD.lstrip("/")).write_text("/../somewhere\n")
    before = placed_in(root)
    os.chown(root / place, owner, group)
    (root / place).chmod(mode)
    sentence = refused(run(root, *words))
    os.chown(root / place, 0, 0)
    assert sentence.startswith(f"reclaimd: {os.path.normpath(root / place)} is not trusted: ")
    assert why in sentence
    assert placed_in(root) == before


@BY_ROOT
def test_a_directory_that_somebody_has_made_first_is_refused(root: Path) -> None:
    """In one where everybody may make entries, such as /tmp: the root, or a
    symlink to another one.
    """
    shared = root / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "look").mkdir()
    (shared / "link").symlink_to("/")
    for name in ("look", "link"):
        os.chown(shared / name, SOMEBODY, 0, follow_symlinks=False)
    program = root / "opt/reclaimd/bin/reclaimd"
    for name in ("look", "link"):
        command = [str(program), *UNINSTALL, "--root", str(shared / name)]
        sentence = refused(
            subprocess.run(command, capture_output=True, text=True, check=False, timeout=60.0)
        )
        assert f"belongs to uid {SOMEBODY}" in sentence
    with pytest.raises(NotTrustedError, match=f"belongs to uid {SOMEBODY}"):
        proven(str(shared / "look/new"), make=True)
    assert os.listdir(shared / "look") == []
