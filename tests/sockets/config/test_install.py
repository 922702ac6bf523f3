"""The installer below another root, without the program itself: what it places, tells, keeps, refuses and takes away.

With the program: `test_bundle.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.plugin_distributions import write_distribution
from tests.repository import ROOT

pytestmark = pytest.mark.house("config/install", "config/systemd", "Makefile")

INSTALLER = ROOT / "config" / "install" / "install.sh"
UNITS = ROOT / "config" / "systemd"
PYTHON = Path("/usr/bin/python3")
MODULES = ("pip", "venv", "ensurepip", "compileall", "eviction", "site", "sitecustomize", "usercustomize", "sysconfig")
PROGRAMS = (
    *("basename", "cat", "cmp", "comm", "cp", "cut", "dirname", "find", "git", "grep", "gzip", "id", "install", "ln"),
    *("mkdir", "mktemp", "mv", "python3", "readlink", "rm", "rmdir", "sed", "sha256sum", "sort", "sync", "tar"),
)


def run(
    *steps: str, installer: Path | str = INSTALLER, where: Path = ROOT, umask: int = -1, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The installer, to its end. `where`: the directory in which its caller stands."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHON", "EXTRAS", "PURGE", "DESTDIR")}
    return subprocess.run(
        [str(installer), *steps],
        cwd=where,
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **variables},
        timeout=120.0,
    )


def files_in(root: Path) -> dict[str, bytes]:
    """Everything but directories: by path, the content, or where a symlink leads."""
    return {
        "/" + str(path.relative_to(root)): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def refusal(process: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal."""
    assert process.returncode == 2, process.stdout + process.stderr
    assert process.stderr.startswith("refused: ")
    assert process.stderr.count("\n") == 1
    return process.stderr


def test_everything_is_where_the_unit_looks_for_it(tmp_path: Path) -> None:
    """What the unit starts and reads, manual, completions, drop-ins as examples, the command on PATH; each is told."""
    process = run("files", DESTDIR=str(tmp_path))
    assert (process.returncode, process.stderr) == (0, "")
    placed = files_in(tmp_path)
    own = {"/opt/reclaimd/installed-files"}
    told = {line.split()[1] for line in process.stdout.splitlines()}
    assert told == placed.keys() - own - {"/usr/local/sbin/reclaimd"}
    assert {line.split()[0] for line in process.stdout.splitlines()} == {"new"}
    units = tmp_path / "etc" / "systemd" / "system"
    assert {path.name for path in units.iterdir() if path.is_file()} == {p.name for p in UNITS.iterdir() if p.is_file()}
    drop_ins = {path.name for path in (units / "reclaimd.service.d").iterdir()}
    assert drop_ins == {f"{path.name}.example" for path in (UNITS / "reclaimd.service.d").iterdir()}
    (start,) = re.findall(r"^ExecStart=(.*)$", (units / "reclaimd.service").read_text(), re.MULTILINE)
    program, subcommand, *options = shlex.split(start)
    assert (placed["/usr/local/sbin/reclaimd"].decode(), subcommand) == (program, "run")
    configuration = tmp_path / options[options.index("--config") + 1].lstrip("/")
    assert configuration.stat().st_mode & 0o777 == 0o600
    assert (configuration.parent / configuration.read_text().splitlines()[0].partition("$schema=")[2]).is_file()
    assert "/usr/local/share/man/man1/reclaimd.1" in placed
    assert len([path for path in placed if "/reclaimd.bash" in path or path.split("/")[-1].startswith("_recl")]) == 1
    completions = ("bash-completion/completions/reclaimd", "zsh/site-functions/_reclaimd")
    assert {f"/usr/local/share/{path}" for path in (*completions, "fish/vendor_completions.d/reclaimd.fish")} <= told


def test_once_more_keeps_the_configuration_and_tells_what_changed(tmp_path: Path) -> None:
    """A file that another version had is gone, one that differs is as it should be, and nothing else is told."""
    assert run("files", DESTDIR=str(tmp_path)).returncode == 0
    (tmp_path / "etc/reclaimd/reclaimd.yaml").write_text("mine")
    unit, former = (
        tmp_path / "etc/systemd/system/reclaimd.service",
        tmp_path / "etc/systemd/system/reclaimd-old.service",
    )
    for path in (unit, former):
        path.write_text("of another version")
    with (tmp_path / "opt/reclaimd/installed-files").open("a") as placed:
        placed.write("/etc/systemd/system/reclaimd-old.service\n")
    process = run("files", DESTDIR=str(tmp_path))
    assert [tuple(line.split()[:2]) for line in process.stdout.splitlines()] == [
        ("changed", "/etc/systemd/system/reclaimd.service"),
        ("gone", "/etc/systemd/system/reclaimd-old.service"),
        ("kept", "/etc/reclaimd/reclaimd.yaml"),
    ]
    assert (tmp_path / "etc/reclaimd/reclaimd.yaml").read_text() == "mine"
    assert unit.read_text() == (UNITS / "reclaimd.service").read_text()
    assert not former.exists()


@pytest.mark.parametrize("installer", [INSTALLER, None], ids=["checkout", "installed"])
def test_what_was_installed_is_taken_away_and_the_rest_stays(tmp_path: Path, installer: Path | None) -> None:
    """By the installer of the checkout, or by the one that was installed. It says what it leaves; PURGE=1: nothing."""
    assert run("files", DESTDIR=str(tmp_path)).returncode == 0
    units = tmp_path / "etc" / "systemd" / "system"
    mine = units / "reclaimd.service.d" / "network.conf"
    mine.write_text("[Service]\nPrivateNetwork=no\n")
    state = tmp_path / "var/lib/reclaimd/images.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    process = run("uninstall", DESTDIR=str(tmp_path), installer=installer or tmp_path / "opt/reclaimd/install.sh")
    assert (process.returncode, process.stderr) == (0, "")
    configuration = "/etc/reclaimd/reclaimd.yaml"
    drop_in = "/" + str(mine.relative_to(tmp_path))
    assert files_in(tmp_path).keys() == {configuration, drop_in, "/var/lib/reclaimd/images.json"}
    left = [line.split()[1] for line in process.stdout.splitlines() if line.startswith("left")]
    assert left == ["/etc/reclaimd", "/var/lib/reclaimd", str(Path(drop_in).parent)]
    assert run("uninstall", DESTDIR=str(tmp_path), PURGE="1").returncode == 0
    assert files_in(tmp_path).keys() == {drop_in}
    assert "reclaimd is not installed below" in refusal(run("uninstall", DESTDIR=str(tmp_path)))


def test_what_is_placed_below_another_root_names_only_the_place_where_it_will_be(tmp_path: Path) -> None:
    """No file and no symlink names the root below which it was staged."""
    assert run("files", DESTDIR=str(tmp_path)).returncode == 0
    assert [path for path, content in files_in(tmp_path).items() if str(tmp_path).encode() in content] == []


def test_an_interpreter_that_the_service_cannot_see_is_refused(tmp_path: Path) -> None:
    """One below a home or temporary directory: the sentence names it, and says what to pass."""
    link = tmp_path / "python3"
    link.symlink_to(sys.executable)
    sentence = refusal(run("program", DESTDIR=str(tmp_path / "root"), PYTHON=str(link)))
    assert "cannot see (ProtectHome=, PrivateTmp=)" in sentence
    assert "PYTHON=/usr/bin/python3" in sentence
    assert files_in(tmp_path / "root") == {}


@pytest.mark.parametrize(
    ("script", "sentence"),
    [(None, "there is no"), ("exit 1", "is not a working Python"), ("echo number=310", "is older than Python 3.11")],
)
def test_what_is_no_interpreter_is_refused(tmp_path: Path, script: str | None, sentence: str) -> None:
    """Missing, something else, too old."""
    program = tmp_path / "python"
    if script is not None:
        program.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
        program.chmod(0o755)
    told = refusal(run("program", DESTDIR=str(tmp_path / "root"), PYTHON=str(program)))
    assert f"{program} {sentence}" in told if script is not None else f"{sentence} {program}" in told
    assert "PYTHON=/usr/bin/python3" in told


def bundle_without_wheels(directory: Path, made_for: str) -> Path:
    """The installer of a bundle that is made for something; what it would install is not there."""
    shutil.copytree(INSTALLER.parent, directory / "config" / "install")
    (directory / "wheels").mkdir()
    (directory / "BUNDLE").write_text(made_for)
    return directory / "config" / "install" / "install.sh"


def made_for_this_machine() -> str:
    """The lines of a bundle that fits /usr/bin/python3. Skips the test where that makes no environments."""
    ask = "import ensurepip, sys, sysconfig; print('cp%d%d' % sys.version_info[:2], sysconfig.get_platform())"
    asked = subprocess.run([PYTHON, "-I", "-c", ask], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        pytest.skip("needs a /usr/bin/python3 with venv (Debian package python3-venv)")
    tag, platform = asked.stdout.split()
    return f"python={tag}\nplatform={platform.replace('-', '_').replace('.', '_')}\nextras=\n"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory in which everybody may write: a stranger has put modules and programs there, each of which, where it
    runs, leaves a line in the file `ran` beside the directory."""
    directory = tmp_path / "shared"
    (directory / "bin").mkdir(parents=True)
    directory.chmod(0o1777)
    ran = tmp_path / "ran"
    for name in MODULES:
        (directory / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write('module {name}\\n')\n")
    for name in PROGRAMS:
        for program in (directory / name, directory / "bin" / name):
            program.write_text(f"#!/bin/sh\necho program {name} >>{ran}\nexit 1\n")
            program.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("script", "steps", "entries", "sentence"),
    [
        ("install.sh", ("program",), "", "failed: pip could not get or build"),
        ("a bundle", ("program",), ".:bin:", "failed: pip could not install"),
        ("install.sh", ("files", "uninstall"), ":", ""),
        ("bundle.sh", (), "bin::", "No matching distribution"),
    ],
)
def test_nothing_of_the_directory_where_root_stands_is_run(
    tmp_path: Path, shared: Path, script: str, steps: tuple[str, ...], entries: str, sentence: str
) -> None:
    """No module, and no program by an empty or relative entry of PATH. What ends well or for want of packages has come
    past all of them."""
    made_for = made_for_this_machine()
    installer = INSTALLER.parent / script
    if script == "a bundle":
        installer = bundle_without_wheels(tmp_path / "bundle", made_for)
    process = run(
        *steps,
        installer=os.path.relpath(installer, shared),
        where=shared,
        PATH=f"{entries}{os.environ['PATH']}",
        PYTHONPATH=":.",
        PIP_NO_INDEX="1",
        PYTHON=str(PYTHON),
        DESTDIR="stage",
        DIST=str(tmp_path / "dist"),
    )
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert process.returncode == (1 if sentence else 0), process.stdout + process.stderr
    assert sentence in process.stderr


def test_paths_mean_what_they_mean_where_the_caller_stands(tmp_path: Path, shared: Path) -> None:
    """DESTDIR, PYTHON and the scripts themselves. Who may write what is placed is not for the umask to say."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    told = refusal(run("program", where=shared, DESTDIR="stage", PYTHON="../python"))
    assert f"refused: {shared}/../python is not a working Python" in told
    bundle = os.path.relpath(INSTALLER.with_name("bundle.sh"), shared)
    told = refusal(run(installer=bundle, where=shared, DIST=str(tmp_path), PYTHON="../python"))
    assert f"refused: {shared}/../python cannot make" in told
    installer = os.path.relpath(INSTALLER, shared)
    process = run("files", installer=installer, where=shared, umask=0, DESTDIR="../stage")
    assert (process.returncode, process.stderr) == (0, "")
    placed = [tmp_path / "stage", *(tmp_path / "stage").rglob("*")]
    assert len(placed) > 20
    assert [str(path) for path in placed if not path.is_symlink() and path.stat().st_mode & 0o022] == []


def live_environment(place: Path) -> dict[str, bytes]:
    """An environment of /usr/bin/python3 with a `reclaimd` that pip knows; its files."""
    subprocess.run([PYTHON, "-I", "-m", "venv", str(place)], check=True)
    (packages,) = place.glob("lib/python3*/site-packages")
    write_distribution(packages, "reclaimd", "eviction", "", {})
    return files_in(place)


@pytest.mark.parametrize("linked", ["opt/reclaimd", "opt/reclaimd/lib"])
def test_an_upgrade_that_fails_leaves_an_environment_behind_a_symlink_as_it_was(tmp_path: Path, linked: str) -> None:
    """Where the operator has put it, or a part of it, on another disk: pip works on a copy."""
    installer = bundle_without_wheels(tmp_path / "bundle", made_for_this_machine())
    root = tmp_path / "root"
    before = live_environment(root / "opt" / "reclaimd")
    (root / "data").mkdir()
    (root / linked).rename(root / "data" / "moved")
    (root / linked).symlink_to(os.path.relpath(root / "data" / "moved", (root / linked).parent))
    before = files_in(root)
    process = run("program", installer=installer, DESTDIR=str(root), PYTHON=str(PYTHON))
    assert (process.returncode, "pip could not install the program" in process.stderr) == (1, True), process.stderr
    assert files_in(root) == before
    assert sorted(os.listdir(root / "data")) == ["moved"]


def test_a_symlink_that_leads_out_of_the_other_root_is_refused(tmp_path: Path) -> None:
    """Nothing outside it is touched."""
    (tmp_path / "root" / "opt").mkdir(parents=True)
    (tmp_path / "root" / "opt" / "reclaimd").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    assert "is not below the DESTDIR" in refusal(run("files", DESTDIR=str(tmp_path / "root")))
    assert files_in(tmp_path / "elsewhere") == {}


def test_what_is_behind_a_symlink_is_taken_away_and_the_symlink_is_left(tmp_path: Path) -> None:
    """The operator has made it, and it is told."""
    (tmp_path / "data").mkdir()
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt" / "reclaimd").symlink_to("../data/reclaimd")
    assert run("files", DESTDIR=str(tmp_path)).returncode == 0
    assert (tmp_path / "data" / "reclaimd" / "install.sh").exists()
    process = run("uninstall", DESTDIR=str(tmp_path), PURGE="1")
    assert (process.returncode, process.stderr) == (0, "")
    assert "left     /opt/reclaimd\n" in process.stdout
    assert list(files_in(tmp_path)) == ["/opt/reclaimd"]


@pytest.mark.parametrize(
    ("python", "extras", "asked", "sentence"),
    [
        ("cp310", "[drill]", "", "the bundle is for cp310 on linux_test, /usr/bin/python3 is cp3"),
        (None, "[drill]", "[kubernetes]", "the extra kubernetes is not in the bundle, which has [drill]"),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(
    tmp_path: Path, python: str | None, extras: str, asked: str, sentence: str
) -> None:
    """Made for another Python, or without the extra that is asked for."""
    made_for = f"python={python}\nplatform=linux_test\n" if python else made_for_this_machine()
    made_for = made_for.replace("extras=\n", "") + f"extras={extras}\n"
    installer = bundle_without_wheels(tmp_path / "bundle", made_for)
    process = run("program", installer=installer, DESTDIR=str(tmp_path / "root"), PYTHON=str(PYTHON), EXTRAS=asked)
    assert sentence in refusal(process)
    assert files_in(tmp_path / "root") == {}


def test_a_step_that_does_not_exist_and_a_place_without_anything_to_install_are_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    assert "remove is not a step; the steps are " in refusal(run("files", "remove", DESTDIR=str(tmp_path / "root")))
    alone = tmp_path / "install.sh"
    shutil.copy(INSTALLER, alone)
    assert "neither in a checkout nor in a bundle" in refusal(run(installer=alone, DESTDIR=str(tmp_path / "root")))
    assert "not for a DESTDIR" in refusal(run("start", DESTDIR=str(tmp_path / "root")))
    assert files_in(tmp_path / "root") == {}


def test_the_program_is_that_of_the_distribution() -> None:
    """Its launcher is written by the installer, and calls what the distribution names; there is no other program."""
    found = re.findall(r"from (\S+) import main\\n.*>\"\$new/bin/(\S+)\"$", INSTALLER.read_text(), re.MULTILINE)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert [(name, f"{module}:main") for module, name in found] == list(scripts.items())


@pytest.mark.parametrize("script", sorted(INSTALLER.parent.glob("*.sh")), ids=lambda path: str(path.name))
def test_the_shell_finds_nothing_wrong(script: Path) -> None:
    """Each can be run, and ends at the first error."""
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert "\nset -eu\n" in script.read_text()
