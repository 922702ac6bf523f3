"""`reclaimd install --systemd` and `reclaimd uninstall` of the wheel, below another root: what they
place, tell, keep, refuse and remove, and what somebody who may write there makes of it.

At /, with a service: `test_install.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator
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
FORMER = "/etc/systemd/system/reclaimd-xfs.socket"
"""What an earlier version has placed."""
PROGRAM = "opt/reclaimd/bin/reclaimd"
INSTALL, UNINSTALL, PURGE = ("install", "--systemd"), ("uninstall",), ("uninstall", "--purge")
SOMEBODY = 12345


def files_in(root: Path) -> dict[str, bytes]:
    """Everything but directories: by path, the content, or where a symlink leads."""
    return {
        "/" + str(path.relative_to(root)): (
            os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        )
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def placed_in(root: Path) -> dict[str, bytes]:
    """What is there but the program."""
    here = files_in(root)
    return {path: content for path, content in here.items() if not path.startswith("/opt/")}


def at(root: Path, path: str) -> Path:
    """A path of the other root."""
    return root / path.lstrip("/")


def run(
    root: Path, *words: str, by: tuple[str, ...] = (), umask: int = -1
) -> subprocess.CompletedProcess[str]:
    """A command, to its end; without words it installs. `by`: another program than the one in
    /opt/reclaimd."""
    program = by or (str(root / PROGRAM),)
    return subprocess.run(
        [*program, *(words or INSTALL), "--root", str(root)],
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
        timeout=60.0,
    )


def told(root: Path, *words: str, by: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """What it says of which path; it has ended well."""
    process = run(root, *words, by=by)
    assert (process.returncode, process.stderr) == (0, "")
    lines = (line.split() for line in process.stdout.splitlines())
    return [(word, path) for word, path, *_ in lines]


def assert_refused(process: subprocess.CompletedProcess[str], *whys: str, code: int = 2) -> None:
    """In one sentence with these words, before anything was done."""
    assert (process.returncode, process.stdout) == (code, ""), process.stderr
    assert re.fullmatch("reclaimd: .*\n", process.stderr), process.stderr
    assert [why for why in whys if why not in process.stderr] == []


@pytest.fixture
def root(wheel: Path, tmp_path: Path) -> Path:
    """Another root, with the program in /opt/reclaimd."""
    environment_of(wheel, tmp_path / "opt" / "reclaimd")
    return tmp_path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One in which everything is installed, for tests that leave it as it is."""
    root = tmp_path_factory.mktemp("installed") / "root"
    environment_of(wheel, root / "opt" / "reclaimd")
    told(root)
    return root


@pytest.fixture
def unchanged(installed: Path) -> Iterator[Path]:
    """The same; nothing was changed in it."""
    before = placed_in(installed)
    yield installed
    assert placed_in(installed) == before


def test_everything_is_where_the_unit_looks_for_it(root: Path) -> None:
    """What the unit starts and reads, manual, completions, drop-ins as examples; each is told. No
    file names the root, so that all of it works at /, and who may write is not for the umask."""
    process = run(root, umask=0)
    assert (process.returncode, process.stderr) == (0, "")
    lines = dict(line.split()[1::-1] for line in process.stdout.splitlines())
    placed = placed_in(root)
    assert {*lines.values()} == {"new"}
    assert lines.keys() == placed.keys()
    assert placed[RECORD].decode().split() == [path for path in lines if path != CONFIGURATION]
    assert not [path for path, content in placed.items() if str(root).encode() in content]
    outside = [path for name in ("etc", "usr") for path in (root / name).rglob("*")]
    assert [str(path) for path in outside if path.stat().st_mode & 0o022] == []
    wanted = {
        "/"
        + str(Path("etc/systemd/system", path.relative_to(UNITS)))
        + (".example" if path.parent != UNITS else "")
        for path in UNITS.rglob("*")
        if path.is_file()
    } | {
        f"/usr/local/share/{path}"
        for path in (
            "man/man1/reclaimd.1",
            "bash-completion/completions/reclaimd",
            "zsh/site-functions/_reclaimd",
            "fish/vendor_completions.d/reclaimd.fish",
        )
    }
    assert wanted - {CONFIGURATION} <= placed.keys()
    unit = placed["/etc/systemd/system/reclaimd.service"].decode()
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, subcommand, *options = shlex.split(start)
    assert (program, subcommand) == (f"/{PROGRAM}", "run")
    configuration = at(root, options[options.index("--config") + 1])
    assert configuration.stat().st_mode & 0o777 == 0o600
    link = configuration.read_text().splitlines()[0].partition("$schema=")[2]
    assert (configuration.parent / link).is_file()


def test_the_unit_starts_the_program_that_has_placed_it(root: Path, wheel: Path) -> None:
    """Wherever it is, also with characters that systemd expands or splits at."""
    environment_of(wheel, root / "srv" / "my 100%")
    told(root, by=(f"{root}/srv/my 100%/bin/python", "-I", "-m", "eviction"))
    unit = at(root, "/etc/systemd/system/reclaimd.service").read_text()
    assert "\nExecStart='/srv/my 100%%/bin/reclaimd' run --config " in unit
    assert "\nExecReload='/srv/my 100%%/bin/reclaimd' reload --config " in unit


def test_once_more_keeps_the_configuration_and_tells_what_changed(root: Path) -> None:
    """A file that another version had is gone, and one that differs, or that others may write, is
    as it should be; nothing else is told."""
    told(root)
    unit = "/etc/systemd/system/reclaimd.service"
    should_be = at(root, unit).read_text()
    at(root, CONFIGURATION).write_text("mine")
    for path in (unit, FORMER):
        at(root, path).write_text("of another version")
    with at(root, RECORD).open("a") as record:
        record.write(f"{FORMER}\n")
    changed = [("changed", unit), ("changed", RECORD), ("kept", CONFIGURATION)]
    assert told(root) == [("gone", FORMER), *changed]
    assert at(root, CONFIGURATION).read_text() == "mine"
    assert at(root, unit).read_text() == should_be
    assert told(root) == [("kept", CONFIGURATION)]
    # a record that others may write is not believed
    at(root, FORMER).write_text("")
    with at(root, RECORD).open("a") as record:
        record.write(f"{FORMER}\n")
    for path in (unit, RECORD):
        at(root, path).chmod(0o666)
    assert told(root) == changed
    assert [at(root, path).stat().st_mode & 0o777 for path in (unit, RECORD)] == [0o644, 0o644]
    assert at(root, FORMER).exists()


def test_what_was_placed_is_removed_and_the_rest_is_left_and_told(root: Path) -> None:
    """Configuration and records stay, unless they are purged; a drop-in of the operator's always. A
    symlink in place of a directory goes, and what it leads to stays."""
    told(root)
    drop_ins = "/etc/systemd/system/reclaimd.service.d"
    mine = f"{drop_ins}/network.conf"
    outside = root.with_name(f"{root.name}-outside")
    for path in (at(root, mine), at(root, "/var/lib/reclaimd/images.json"), outside / "mine"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    record = at(root, RECORD).read_text().split()
    left = [("left", "/etc/reclaimd"), ("left", "/var/lib/reclaimd"), ("left", drop_ins)]
    assert told(root, *UNINSTALL) == [*(("gone", path) for path in record), *left]
    assert placed_in(root).keys() == {CONFIGURATION, mine, "/var/lib/reclaimd/images.json"}
    at(root, "/var/lib/reclaimd").rename(at(root, "/etc/reclaimd/records"))
    for path in ("/var/lib/reclaimd", "/etc/reclaimd/linked"):
        at(root, path).symlink_to(outside)
    gone = [("gone", "/etc/reclaimd"), ("gone", "/var/lib/reclaimd")]
    assert told(root, *PURGE) == [*gone, ("left", drop_ins)]
    assert placed_in(root).keys() == {mine}
    assert told(root, *UNINSTALL) == [("left", drop_ins)]
    assert os.listdir(outside) == ["mine"]


def test_what_cannot_be_is_told_in_one_sentence(root: Path) -> None:
    """A program that the service could not see, in a temporary directory, as it is not below the
    other root; a file that cannot be written."""
    elsewhere = run(root / "elsewhere", by=(str(root / PROGRAM),))
    way = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install"
    assert_refused(elsewhere, f"the service could not run {root}/{PROGRAM} ", way)
    assert not (root / "elsewhere").exists()
    (root / "etc").write_text("no directory")
    process = run(root)
    assert process.returncode == 1
    assert re.fullmatch(f"reclaimd: .*{root}/etc.*\n", process.stderr)


# ---- somebody else may write there


@pytest.mark.parametrize("words", [INSTALL, UNINSTALL], ids=" ".join)
def test_a_record_names_nothing_that_no_installer_has_placed(
    root: Path, words: tuple[str, ...]
) -> None:
    """With `/../` and without: it is left, and named. What is of an earlier version goes."""
    told(root)
    outside = root.with_name(f"{root.name}-outside")
    others = [outside, root / "etc" / "shadow", at(root, FORMER)]
    for path in others:
        path.write_text("of somebody else")
    names = [f"/../{outside.name}", f"/usr/../../{outside.name}", "/etc/shadow", "etc/shadow", "/"]
    with at(root, RECORD).open("a") as record:
        record.write("\n".join([*names, FORMER, ""]))
    lines = told(root, *words)
    assert [path.exists() for path in others] == [True, True, False]
    assert [path for word, path in lines if word == "left"][: len(names)] == names
    assert ("gone", FORMER) in lines


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_by_a_record_that_no_installer_can_have_written_nothing_is_removed(
    root: Path, mode: int
) -> None:
    """A GiB, or others may write it: it is not read. Once installed anew, everything is removed."""
    told(root)
    before, record = placed_in(root).keys(), at(root, RECORD)
    if mode == 0o644:
        os.truncate(record, 1 << 30)
    record.chmod(mode)
    why = f"{RECORD} is not as an installer has written it: install once more"
    assert_refused(run(root, *UNINSTALL), why, code=1)
    assert told(root) == [("changed", RECORD), ("kept", CONFIGURATION)]
    assert placed_in(root).keys() == before
    told(root, *UNINSTALL)
    assert placed_in(root).keys() == {CONFIGURATION}


@pytest.mark.parametrize("link", ["etc", "usr/local", "etc/systemd/system/reclaimd.service.d"])
def test_no_symlink_below_the_root_is_followed(unchanged: Path, tmp_path: Path, link: str) -> None:
    """It is named, and nothing is written or removed on either side."""
    outside = tmp_path / "outside"
    (unchanged / link).rename(outside)
    (unchanged / link).symlink_to(outside)
    before = files_in(outside)
    for words in (INSTALL, UNINSTALL):
        why = f"{unchanged}/{link} is a symlink, which is not followed"
        assert_refused(run(unchanged, *words), why)
    assert files_in(outside) == before
    (unchanged / link).unlink()
    outside.rename(unchanged / link)


@pytest.mark.parametrize("name", ["reclaimd.1", "reclaimd.1.new"])
def test_what_was_prepared_under_a_name_of_ours_is_not_written_to(root: Path, name: str) -> None:
    """A symlink, a hard link, a FIFO: what it leads to stays as it is, nothing is waited for, and
    the file is ours."""
    outside, directory = root / "precious", root / "usr/local/share/man/man1"
    outside.write_text("of somebody else")
    directory.mkdir(parents=True)
    manual = directory / "reclaimd.1"
    for prepare in (Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)):
        prepare(directory / name, outside)
        assert run(root).returncode == 0
        assert outside.read_text() == "of somebody else"
        status = os.lstat(manual)
        assert (stat.S_IFMT(status.st_mode), status.st_nlink) == (stat.S_IFREG, 1)
        assert manual.read_bytes() == (ROOT / "config/man/reclaimd.1").read_bytes()
        (directory / name).unlink()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@needs_root
@pytest.mark.parametrize(
    ("place", "owner", "group", "mode", "why"),
    [
        (".", SOMEBODY, 0, 0o755, f"belongs to uid {SOMEBODY}"),
        (".", 0, SOMEBODY, 0o775, f"group {SOMEBODY} may write"),
        (".", 0, 0, 0o1777, "every user may write"),
        ("etc/systemd", SOMEBODY, 0, 0o755, f"it belongs to uid {SOMEBODY}"),
        ("usr/local", 0, 50, 0o2775, "group 50 may write it (mode 2775); allowed is at most 0755"),
        ("usr/local/share/man/man1", 0, 0, 0o757, "every user may write it"),
    ],
)
def test_a_directory_that_others_may_write_is_refused(
    unchanged: Path, place: str, owner: int, group: int, mode: int, why: str
) -> None:
    """The root, or one below it: the sentence names it, who may write, and what to do."""
    spoilt, record = unchanged / place, at(unchanged, RECORD)
    before, written = spoilt.stat().st_mode, record.read_text()
    record.write_text("/../somewhere\n")
    os.chown(spoilt, owner, group)
    spoilt.chmod(mode)
    for words in (INSTALL, UNINSTALL, PURGE):
        refused = run(unchanged, *words)
        assert_refused(refused, f"{os.path.normpath(spoilt)} is not trusted: ", why)
        assert "(chown root, chmod go-w)" in refused.stderr or place == "."
    os.chown(spoilt, 0, 0)
    spoilt.chmod(before)
    record.write_text(written)


@needs_root
def test_a_directory_that_somebody_has_made_first_is_refused(
    unchanged: Path, tmp_path: Path
) -> None:
    """In one where everybody may make entries, such as /tmp: the root, or a symlink to another."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "look").mkdir()
    (shared / "link").symlink_to("/")
    for name in ("look", "link"):
        os.chown(shared / name, SOMEBODY, 0, follow_symlinks=False)
        refused = run(shared / name, *UNINSTALL, by=(str(unchanged / PROGRAM),))
        assert_refused(refused, f"belongs to uid {SOMEBODY}")
    with pytest.raises(NotTrustedError, match=f"belongs to uid {SOMEBODY}"):
        proven(str(shared / "look/new"), make=True)
    assert os.listdir(shared / "look") == []
