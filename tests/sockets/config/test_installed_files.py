"""`reclaimd install --systemd` of the wheel, below another root: what it places, tells, keeps, refuses and removes.

At /, with a service: `test_bundle.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.distributions import build, environment_of
from tests.repository import ROOT

pytestmark = pytest.mark.house("config/systemd", "eviction/cli/install.py", "eviction/shipped.py", "pyproject.toml")

UNITS = ROOT / "config" / "systemd"
CONFIGURATION = "/etc/reclaimd/reclaimd.yaml"
RECORD = "/usr/local/share/reclaimd/installed-files"


def files_in(root: Path) -> dict[str, bytes]:
    """Everything but directories: by path, the content, or where a symlink leads."""
    return {
        "/" + str(path.relative_to(root)): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def root(wheel: Path, tmp_path: Path) -> Path:
    """Another root, with the program in /opt/reclaimd."""
    environment_of(wheel, tmp_path / "opt" / "reclaimd")
    return tmp_path


def run(root: Path, *options: str, by: tuple[str, ...] = (), umask: int = -1) -> subprocess.CompletedProcess[str]:
    """The command, to its end. `by`: the program, if it is not the one in /opt/reclaimd."""
    program = by or (str(root / "opt/reclaimd/bin/reclaimd"),)
    command = [*program, "install", "--systemd", "--root", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, umask=umask, timeout=60.0)


def told(root: Path, *options: str, by: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """What it says of which path; it has ended well."""
    process = run(root, *options, by=by)
    assert (process.returncode, process.stderr) == (0, "")
    lines = (line.split() for line in process.stdout.splitlines())
    return [(word, path) for word, path, *_ in lines]


def placed_in(root: Path) -> dict[str, bytes]:
    """What is there but the program."""
    return {path: content for path, content in files_in(root).items() if not path.startswith("/opt/")}


def test_everything_is_where_the_unit_looks_for_it(root: Path) -> None:
    """What the unit starts and reads, manual, completions, drop-ins as examples; each is told."""
    lines = told(root)
    placed = placed_in(root)
    assert {word for word, _ in lines} == {"new"}
    assert {path for _, path in lines} == placed.keys()
    units = root / "etc" / "systemd" / "system"
    assert {path.name for path in units.iterdir() if path.is_file()} == {p.name for p in UNITS.iterdir() if p.is_file()}
    drop_ins = {path.name for path in (units / "reclaimd.service.d").iterdir()}
    assert drop_ins == {f"{path.name}.example" for path in (UNITS / "reclaimd.service.d").iterdir()}
    (start,) = re.findall(r"^ExecStart=(.*)$", (units / "reclaimd.service").read_text(), re.MULTILINE)
    program, subcommand, *options = shlex.split(start)
    assert (program, subcommand) == ("/opt/reclaimd/bin/reclaimd", "run")
    configuration = root / options[options.index("--config") + 1].lstrip("/")
    assert configuration.stat().st_mode & 0o777 == 0o600
    assert (configuration.parent / configuration.read_text().splitlines()[0].partition("$schema=")[2]).is_file()
    assert placed[RECORD].decode().split() == [path for _, path in lines if path != CONFIGURATION]
    shared = ("man/man1/reclaimd.1", "bash-completion/completions/reclaimd", "zsh/site-functions/_reclaimd")
    assert {
        f"/usr/local/share/{path}" for path in (*shared, "fish/vendor_completions.d/reclaimd.fish")
    } <= placed.keys()


def test_no_file_names_the_root_below_which_it_was_staged_and_who_may_write_is_not_for_the_umask(root: Path) -> None:
    """All of it works at /."""
    assert run(root, umask=0).returncode == 0
    assert [path for path, content in placed_in(root).items() if str(root).encode() in content] == []
    outside = [path for name in ("etc", "usr") for path in (root / name).rglob("*")]
    assert [str(path) for path in outside if path.stat().st_mode & 0o022] == []


def test_the_unit_starts_the_program_that_has_placed_it(root: Path, wheel: Path) -> None:
    """Wherever it is, also with characters that systemd expands or splits at."""
    environment_of(wheel, root / "srv" / "my 100%")
    told(root, by=(str(root / "srv/my 100%/bin/python"), "-I", "-m", "eviction"))
    unit = (root / "etc/systemd/system/reclaimd.service").read_text()
    assert "\nExecStart='/srv/my 100%%/bin/reclaimd' run --config " in unit


def test_once_more_keeps_the_configuration_and_tells_what_changed(root: Path) -> None:
    """A file that another version had is gone, one that differs is as it should be, and nothing else is told."""
    told(root)
    (root / CONFIGURATION.lstrip("/")).write_text("mine")
    units = root / "etc/systemd/system"
    former = units / "reclaimd-old.service"
    for path in (units / "reclaimd.service", former):
        path.write_text("of another version")
    with (root / RECORD.lstrip("/")).open("a") as record:
        record.write("/etc/systemd/system/reclaimd-old.service\n")
    assert told(root) == [
        ("gone", "/etc/systemd/system/reclaimd-old.service"),
        ("changed", "/etc/systemd/system/reclaimd.service"),
        ("changed", RECORD),
        ("kept", CONFIGURATION),
    ]
    assert (root / CONFIGURATION.lstrip("/")).read_text() == "mine"
    assert (units / "reclaimd.service").read_text() == (UNITS / "reclaimd.service").read_text()
    assert not former.exists()
    assert told(root) == [("kept", CONFIGURATION)]


def test_what_was_placed_is_removed_and_the_rest_is_left_and_told(root: Path) -> None:
    """Configuration and records stay, unless they are purged; a drop-in of the operator's always."""
    told(root)
    mine = root / "etc/systemd/system/reclaimd.service.d/network.conf"
    mine.write_text("[Service]\nPrivateNetwork=no\n")
    state = root / "var/lib/reclaimd/images.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    record = (root / RECORD.lstrip("/")).read_text().split()
    drop_ins = "/" + str(mine.parent.relative_to(root))
    assert told(root, "--remove") == [
        *(("gone", path) for path in record),
        ("left", "/etc/reclaimd"),
        ("left", "/var/lib/reclaimd"),
        ("left", drop_ins),
    ]
    assert placed_in(root).keys() == {CONFIGURATION, f"{drop_ins}/network.conf", "/var/lib/reclaimd/images.json"}
    assert told(root, "--purge") == [("gone", "/etc/reclaimd"), ("gone", "/var/lib/reclaimd"), ("left", drop_ins)]
    assert placed_in(root).keys() == {f"{drop_ins}/network.conf"}
    assert told(root, "--remove") == [("left", drop_ins)]


def test_a_program_that_the_service_could_not_see_is_refused(root: Path) -> None:
    """In a temporary directory, as it is not below the other root: the sentence names it and a way that works."""
    command = [str(root / "opt/reclaimd/bin/reclaimd"), "install", "--systemd", "--root", str(root / "elsewhere")]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60.0)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith(f"reclaimd: the service could not run {root}/opt/reclaimd/bin/reclaimd ")
    assert "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install" in process.stderr
    assert process.stderr.count("\n") == 1
    assert not (root / "elsewhere").exists()


def test_a_file_that_cannot_be_written_is_named(root: Path) -> None:
    """And nothing is a traceback."""
    (root / "etc").write_text("no directory")
    process = run(root)
    assert process.returncode == 1
    assert process.stderr.startswith("reclaimd: ")
    assert f"{root}/etc/systemd" in process.stderr
    assert process.stderr.count("\n") == 1
