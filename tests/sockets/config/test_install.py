"""The scripts that install the program: what they refuse, and what they
load. No program is installed.

With it: `test_bundle.py`; what it places: `test_installed_files.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributions import write_distribution
from tests.repository import ROOT
from tests.sockets.config.test_installed_files import files_in

pytestmark = pytest.mark.house(
    "config/install", "eviction/cli/below_root.py", "Makefile", "reclaim/trust.py"
)

INSTALLER = ROOT / "config" / "install" / "install.sh"
PYTHON = Path("/usr/bin/python3")
MODULES = (
    "pip",
    "venv",
    "ensurepip",
    "compileall",
    "eviction",
    "site",
    "sitecustomize",
    "usercustomize",
    "sysconfig",
)
PROGRAMS = (
    *(
        "basename",
        "cp",
        "dirname",
        "find",
        "git",
        "grep",
        "gzip",
        "head",
        "id",
        "install",
        "ln",
        "ls",
        "mkdir",
        "mktemp",
    ),
    *("mv", "python3", "readlink", "rm", "sed", "sha256sum", "sort", "sync", "tar", "tr", "uniq"),
)


def run(
    *steps: str,
    installer: Path | str = INSTALLER,
    where: Path = ROOT,
    umask: int = -1,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """The installer, to its end. `where`: the directory in which its caller stands."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHON", "EXTRAS", "PURGE", "DESTDIR")
    }
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


def refusal(process: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal."""
    assert process.returncode == 2, process.stdout + process.stderr
    assert process.stderr.startswith("refused: ")
    assert process.stderr.count("\n") == 1
    return process.stderr


def test_an_interpreter_that_the_service_cannot_see_is_refused(tmp_path: Path) -> None:
    """One below a home or temporary directory: the sentence names it, and says what to pass."""
    link = tmp_path / "python3"
    link.symlink_to(sys.executable)
    sentence = refusal(run("program", DESTDIR=str(tmp_path / "root"), PYTHON=str(link)))
    assert "cannot see (ProtectHome=, PrivateTmp=)" in sentence
    assert "PYTHON=/usr/bin/python3" in sentence
    assert files_in(tmp_path / "root") == {}


@pytest.mark.parametrize("script", [None, "exit 1", "echo something else; exit 3"])
def test_what_is_no_interpreter_is_refused(tmp_path: Path, script: str | None) -> None:
    """Missing, something else, one without venv or too old, which fails by itself."""
    program = tmp_path / "python"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    told = refusal(run("program", DESTDIR=str(tmp_path / "root"), PYTHON=str(program)))
    assert (
        f"{program} is not Python 3.11 or newer with venv (Debian: apt-get install python3-venv)"
        in told
    )
    assert "PYTHON=/usr/bin/python3" in told


def bundle_without_dependencies(directory: Path, wheel: Path, made_for: str) -> Path:
    """The installer of a bundle that is made for something, with the program
    alone, so that pip fails.
    """
    (directory / "wheels").mkdir(parents=True)
    shutil.copy(wheel, directory / "wheels")
    (directory / "BUNDLE").write_text(made_for)
    shutil.copy(INSTALLER, directory)
    return directory / INSTALLER.name


def made_for_this_machine() -> str:
    """The lines of a bundle that fits /usr/bin/python3.

    Skips the test where that makes no environments.
    """
    ask = (
        "import ensurepip, sys, sysconfig; print('cp%d%d' % sys.version_info[:2],"
        " sysconfig.get_platform())"
    )
    asked = subprocess.run([PYTHON, "-I", "-c", ask], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        pytest.skip("needs a /usr/bin/python3 with venv (Debian package python3-venv)")
    return f"{asked.stdout}[drill]\n"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory in which everybody may write: a stranger has put modules and programs there, each
    of which, where it runs, leaves a line in the file `ran` beside the directory."""
    directory = tmp_path / "shared"
    (directory / "bin").mkdir(parents=True)
    directory.chmod(0o1777)
    ran = tmp_path / "ran"
    for name in MODULES:
        (directory / f"{name}.py").write_text(
            f"open({str(ran)!r}, 'a').write('module {name}\\n')\n"
        )
    for name in PROGRAMS:
        for program in (directory / name, directory / "bin" / name):
            program.write_text(f"#!/bin/sh\necho program {name} >>{ran}\nexit 1\n")
            program.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("script", "steps", "entries", "sentence"),
    [
        ("a bundle", ("program",), ".:bin:", "failed: pip could not install"),
        ("install.sh", ("files",), ":", "refused: there is no "),
        ("bundle.sh", (), "bin::", "No matching distribution"),
        ("bundle.sh", ("install",), "", "No matching distribution"),
    ],
)
def test_nothing_of_the_directory_where_root_stands_is_run(
    tmp_path: Path,
    wheel: Path,
    shared: Path,
    script: str,
    steps: tuple[str, ...],
    entries: str,
    sentence: str,
) -> None:
    """No module, and no program by an empty or relative entry of PATH. What ends for want of
    packages has come past all of them."""
    made_for = made_for_this_machine()
    installer = INSTALLER.parent / script
    if script == "a bundle":
        installer = bundle_without_dependencies(tmp_path / "bundle", wheel, made_for)
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
    assert process.returncode in (1, 2), process.stdout + process.stderr
    assert sentence in process.stderr


def test_paths_mean_what_they_mean_where_the_caller_stands(tmp_path: Path, shared: Path) -> None:
    """PYTHON and the scripts themselves; DESTDIR is tested where something is installed."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    told = refusal(run("program", where=shared, DESTDIR="stage", PYTHON="../python"))
    assert f"refused: {shared}/../python is not Python 3.11 or newer" in told
    bundle = os.path.relpath(INSTALLER.with_name("bundle.sh"), shared)
    told = refusal(run(installer=bundle, where=shared, DIST=str(tmp_path), PYTHON="../python"))
    assert f"refused: {shared}/../python cannot make" in told


def live_environment(place: Path) -> dict[str, bytes]:
    """An environment of /usr/bin/python3 with a `reclaimd` that pip knows; its files."""
    subprocess.run([PYTHON, "-I", "-m", "venv", str(place)], check=True)
    (packages,) = place.glob("lib/python3*/site-packages")
    write_distribution(packages, "reclaimd", "eviction")
    return files_in(place)


@pytest.mark.parametrize("linked", ["opt/reclaimd", "opt/reclaimd/lib"])
def test_an_upgrade_that_fails_leaves_an_environment_behind_a_symlink_as_it_was(
    tmp_path: Path, wheel: Path, linked: str
) -> None:
    """Where the operator has put it, or a part of it, on another disk: pip works on a copy."""
    installer = bundle_without_dependencies(tmp_path / "bundle", wheel, made_for_this_machine())
    root = tmp_path / "root"
    before = live_environment(root / "opt" / "reclaimd")
    (root / "data").mkdir()
    (root / linked).rename(root / "data" / "moved")
    (root / linked).symlink_to(os.path.relpath(root / "data" / "moved", (root / linked).parent))
    before = files_in(root)
    process = run("program", installer=installer, DESTDIR=str(root), PYTHON=str(PYTHON))
    assert (process.returncode, "pip could not install the program" in process.stderr) == (
        1,
        True,
    ), process.stderr
    assert files_in(root) == before
    assert sorted(os.listdir(root / "data")) == ["moved"]


def test_a_symlink_that_leads_out_of_the_other_root_is_refused(tmp_path: Path) -> None:
    """Nothing outside it is touched."""
    (tmp_path / "root" / "opt").mkdir(parents=True)
    (tmp_path / "root" / "opt" / "reclaimd").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    assert "is not below the DESTDIR" in refusal(run("program", DESTDIR=str(tmp_path / "root")))
    assert files_in(tmp_path / "elsewhere") == {}


def test_a_bundle_that_does_not_fit_is_refused(tmp_path: Path, wheel: Path) -> None:
    """Made for another Python or platform, or without the extra that is asked for."""
    other = bundle_without_dependencies(tmp_path / "other", wheel, "cp310 linux-test\n[drill]\n")
    process = run("program", installer=other, DESTDIR=str(tmp_path / "root"), PYTHON=str(PYTHON))
    assert "the bundle is for cp310 linux-test, /usr/bin/python3 is cp3" in refusal(process)
    fits = bundle_without_dependencies(tmp_path / "fits", wheel, made_for_this_machine())
    process = run(
        "program",
        installer=fits,
        DESTDIR=str(tmp_path / "root"),
        PYTHON=str(PYTHON),
        EXTRAS="[bench]",
    )
    assert process.returncode == 1
    assert (
        "failed: pip could not install the program (see above); the bundle has the extras [drill]"
        in process.stderr
    )
    assert files_in(tmp_path / "root") == {}


def test_a_step_that_does_not_exist_and_a_place_without_anything_to_install_are_refused(
    tmp_path: Path,
) -> None:
    """Before anything is written."""
    assert "remove is not a step; the steps are " in refusal(
        run("files", "remove", DESTDIR=str(tmp_path / "root"))
    )
    assert "there are no wheels beside" in refusal(run("program", DESTDIR=str(tmp_path / "root")))
    assert "install the program first" in refusal(run("files", DESTDIR=str(tmp_path / "root")))
    assert "not for a DESTDIR" in refusal(run("start", DESTDIR=str(tmp_path / "root")))
    assert "is not installed below" in refusal(run("uninstall", DESTDIR=str(tmp_path / "root")))
    assert files_in(tmp_path / "root") == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory to another user")
@pytest.mark.parametrize("theirs", [".", "opt", "opt/reclaimd", "opt/reclaimd/bin", "usr/local"])
@pytest.mark.parametrize("step", ["program", "files", "uninstall"])
def test_nothing_is_run_or_changed_below_a_root_in_which_somebody_else_may_write(
    tmp_path: Path, wheel: Path, step: str, theirs: str
) -> None:
    """Not even the program that is installed there: the sentence names the directory."""
    installer = bundle_without_dependencies(tmp_path / "bundle", wheel, made_for_this_machine())
    root = tmp_path / "root"
    (root / "usr" / "local").mkdir(parents=True)
    (root / "opt" / "reclaimd" / "bin").mkdir(parents=True)
    (root / "opt" / "reclaimd.old").mkdir()
    python = root / "opt/reclaimd/bin/python"
    python.write_text(f"#!/bin/sh\necho $0 >>{tmp_path}/ran\n")
    python.chmod(0o755)
    before = sorted(root.rglob("*"))
    os.chown(root / theirs, 12345, 12345)
    sentence = refusal(run(step, installer=installer, DESTDIR=str(root), PYTHON=str(PYTHON)))
    assert sentence.startswith(f"refused: {os.path.normpath(root / theirs)} is not trusted: ")
    assert "belongs to uid 12345" in sentence
    assert not (tmp_path / "ran").exists()
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(
    "script", sorted(INSTALLER.parent.glob("*.sh")), ids=lambda path: str(path.name)
)
def test_the_shell_finds_nothing_wrong(script: Path) -> None:
    """Each can be run, and ends at the first error."""
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert "\nset -eu\n" in script.read_text()
