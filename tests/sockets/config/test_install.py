"""The scripts that install the program: what they refuse and load, and the bundle: made as `make
bundle` makes it, installed without a network, moved, used, upgraded and taken away.

What is placed: `test_installed_files.py`.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bundles import Bundle, made_bundle
from tests.distributions import write_distribution
from tests.nodes.own_root import OwnRoot
from tests.repository import ROOT
from tests.sockets.config.test_installed_files import files_in, needs_root

pytestmark = pytest.mark.house(
    "config/install",
    "eviction/cli/below_root.py",
    "eviction/cli/install.py",
    "eviction/cli/uninstall.py",
    "Makefile",
    "pyproject.toml",
    "reclaim/trust.py",
    "tests/nodes/stand_in_systemctl",
)

INSTALLER = ROOT / "config" / "install" / "install.sh"
PYTHON = Path("/usr/bin/python3")
MODULES = """pip venv ensurepip compileall eviction site sitecustomize usercustomize sysconfig"""
PROGRAMS = """basename cp dirname find git grep gzip head id install ln ls mkdir mktemp mv python3
readlink rm sed sha256sum sort sync tar tr uniq"""


def run(
    *steps: str, installer: Path | str = INSTALLER, where: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The installer, to its end. `where`: the directory in which its caller stands."""
    ours = ("PYTHON", "EXTRAS", "PURGE", "DESTDIR")
    kept = {key: value for key, value in os.environ.items() if key not in ours}
    return subprocess.run(
        [str(installer), *steps],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **variables},
        timeout=120.0,
    )


def assert_refused(process: subprocess.CompletedProcess[str], *whys: str) -> None:
    """In one sentence, with these words."""
    assert process.returncode == 2, process.stdout + process.stderr
    assert re.fullmatch("refused: .*\n", process.stderr), process.stderr
    assert [why for why in whys if why not in process.stderr] == []


def script(path: Path, line: str) -> str:
    """A program of one line; its path."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def bundle_without_dependencies(directory: Path, wheel: Path, made_for: str = "") -> Path:
    """The installer of a bundle that is made for something, by default for this machine, with the
    program alone, so that pip fails. Skips where /usr/bin/python3 makes no environments."""
    ask = "import ensurepip, sys, sysconfig as s; print('cp%d%d' % sys.version_info[:2], s.get_platform())"
    asked = subprocess.run([PYTHON, "-I", "-c", ask], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        pytest.skip("needs a /usr/bin/python3 with venv (Debian package python3-venv)")
    (directory / "wheels").mkdir(parents=True)
    shutil.copy(wheel, directory / "wheels")
    (directory / "BUNDLE").write_text(f"{made_for or asked.stdout}[drill]\n")
    shutil.copy(INSTALLER, directory)
    return directory / INSTALLER.name


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory in which everybody may write: a stranger has put modules and programs there, each
    of which, where it runs, leaves a line in the file `ran` beside the directory."""
    directory, ran = tmp_path / "shared", tmp_path / "ran"
    (directory / "bin").mkdir(parents=True)
    directory.chmod(0o1777)
    for name in MODULES.split():
        line = f"open({str(ran)!r}, 'a').write('module {name}\\n')\n"
        (directory / f"{name}.py").write_text(line)
    for name in PROGRAMS.split():
        for program in (directory / name, directory / "bin" / name):
            script(program, f"echo program {name} >>{ran}; exit 1")
    return directory


# ---- what is refused


def test_what_cannot_be_installed_is_refused_before_anything_is_written(
    tmp_path: Path, wheel: Path
) -> None:
    """A step that does not exist, a place without anything to install; a bundle for another Python;
    an interpreter that the service cannot see, or that is none."""
    other = bundle_without_dependencies(tmp_path / "other", wheel, "cp310 linux-test\n")
    link, root = tmp_path / "python3", tmp_path / "root"
    link.symlink_to(sys.executable)
    no_python = " is not Python 3.11 or newer with venv (Debian: apt-get install python3-venv)"
    pythons = {
        str(link): "cannot see (ProtectHome=, PrivateTmp=)",
        str(tmp_path / "none"): f"{tmp_path}/none{no_python}",
        script(tmp_path / "fails", "exit 1"): f"{tmp_path}/fails{no_python}",
        script(tmp_path / "else", "echo something else; exit 3"): f"{tmp_path}/else{no_python}",
    }
    for steps, installer, python, why in (
        ("files remove", INSTALLER, str(PYTHON), "remove is not a step; the steps are "),
        ("program", INSTALLER, str(PYTHON), "there are no wheels beside"),
        ("files", INSTALLER, str(PYTHON), "install the program first"),
        ("start", INSTALLER, str(PYTHON), "not for a DESTDIR"),
        ("uninstall", INSTALLER, str(PYTHON), "is not installed below"),
        (
            "program",
            other,
            str(PYTHON),
            "the bundle is for cp310 linux-test, /usr/bin/python3 is cp3",
        ),
        *(("program", INSTALLER, python, why) for python, why in pythons.items()),
    ):
        process = run(*steps.split(), installer=installer, DESTDIR=str(root), PYTHON=python)
        assert_refused(process, why, *["PYTHON=/usr/bin/python3"] * (python in pythons))
        assert files_in(root) == {}
    (root / "opt").mkdir(parents=True)
    (root / "opt" / "reclaimd").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    assert_refused(run("program", DESTDIR=str(root)), "is not below the DESTDIR")
    assert files_in(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize(
    ("name", "steps", "entries", "sentence"),
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
    name: str,
    steps: tuple[str, ...],
    entries: str,
    sentence: str,
) -> None:
    """No module, and no program by an empty or relative entry of PATH. What ends for want of
    packages has come past all of them. Other paths are those of where the caller stands."""
    bundle = bundle_without_dependencies(tmp_path / "bundle", wheel)
    installer = bundle if name == "a bundle" else INSTALLER.with_name(name)
    given = {
        "PYTHONPATH": ":.",
        "PIP_NO_INDEX": "1",
        "DESTDIR": "stage",
        "DIST": f"{tmp_path}/dist",
    }
    given["PATH"] = f"{entries}{os.environ['PATH']}"
    here = os.path.relpath(installer, shared)
    process = run(*steps, installer=here, where=shared, PYTHON=str(PYTHON), **given)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert process.returncode in (1, 2), process.stdout + process.stderr
    assert sentence in process.stderr
    script(tmp_path / "python", "exit 1")
    if name != "install.sh":
        refused = run(*steps, installer=here, where=shared, PYTHON="../python", **given)
        assert_refused(refused, f"refused: {shared}/../python ")


@needs_root
@pytest.mark.parametrize("step", ["program", "files", "uninstall"])
def test_nothing_is_run_or_changed_below_a_root_in_which_somebody_else_may_write(
    tmp_path: Path, wheel: Path, step: str
) -> None:
    """Not even the program that is installed there: the sentence names the directory."""
    installer = bundle_without_dependencies(tmp_path / "bundle", wheel)
    root = tmp_path / "root"
    for name in ("usr/local", "opt/reclaimd/bin", "opt/reclaimd.old"):
        (root / name).mkdir(parents=True)
    script(root / "opt/reclaimd/bin/python", f"echo $0 >>{tmp_path}/ran")
    before = sorted(root.rglob("*"))
    for theirs in (".", "opt", "opt/reclaimd", "opt/reclaimd/bin", "usr/local"):
        os.chown(root / theirs, 12345, 12345)
        process = run(step, installer=installer, DESTDIR=str(root), PYTHON=str(PYTHON))
        who = f"{os.path.normpath(root / theirs)} is not trusted: "
        assert_refused(process, who, "belongs to uid 12345")
        assert not (tmp_path / "ran").exists()
        assert sorted(root.rglob("*")) == before
        os.chown(root / theirs, 0, 0)


def test_the_shell_finds_nothing_wrong() -> None:
    """Each script can be run, and ends at the first error."""
    for path in INSTALLER.parent.glob("*.sh"):
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", str(path)], check=True)
        assert "\nset -eu\n" in path.read_text()


# ---- the bundle

STAGED, MOVED = "/srv/staged", "/srv/moved"
CONFIGURATION = "etc/reclaimd/reclaimd.yaml"
ONLY_THE_PROGRAM = """\
cp /root/reclaimd/wheels/reclaimd-*.whl /run
mount -t tmpfs none /root/reclaimd/wheels
mv /run/reclaimd-*.whl /root/reclaimd/wheels
"""  # among the wheels, so that pip fails


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The one of this run."""
    return made_bundle(tmp_path_factory)


@pytest.fixture(scope="module")
def root(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> OwnRoot:
    """A fresh node, without a network, with the directory of an idle kubelet; it is unpacked in
    /root/reclaimd. Each test goes on where the one before it ended."""
    made = OwnRoot(tmp_path_factory.mktemp("machine") / "root")
    (made.path / "var/lib/kubelet/pods").mkdir(parents=True)
    bundle.unpack(made.path / "root").rename(made.path / "root" / "reclaimd")
    return made


def done(process: subprocess.CompletedProcess[str]) -> str:
    """What a script printed that ended well."""
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def opt_of(root: OwnRoot) -> dict[str, bytes]:
    """Everything below /opt, without the byte code, which a new environment has in another
    order."""
    here = files_in(root.path / "opt")
    return {path: content for path, content in here.items() if not path.endswith(".pyc")}


@pytest.fixture
def unchanged(root: OwnRoot) -> Iterator[OwnRoot]:
    """The node, whose program is the same afterwards, with what the operator has added, and nothing
    beside it."""
    before = opt_of(root)
    yield root
    assert os.listdir(root.path / "opt") == ["reclaimd"]
    assert opt_of(root) == before


def test_its_checksum_is_right_and_nothing_in_it_tells_when_or_by_whom_it_was_made(
    bundle: Bundle,
) -> None:
    """Names in their order, one time for all, root's, readable by all; every dependency is a
    wheel."""
    checked = ["sha256sum", "--check", f"{bundle.archive.name}.sha256"]
    subprocess.run(checked, cwd=bundle.archive.parent, capture_output=True, check=True)
    assert struct.unpack("<I", bundle.archive.read_bytes()[4:8]) == (0,), "gzip's own time"
    with gzip.open(bundle.archive) as unpacked, tarfile.open(fileobj=unpacked) as archive:
        members = archive.getmembers()
    names = [each.name for each in members]
    assert names == sorted(names, key=lambda name: name.split("/"))
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members} == {(0, 0, "", "")}
    assert len({each.mtime for each in members}) == 1
    assert {each.mode & 0o755 ^ each.mode for each in members if not each.issym()} == {0}
    wheels = [Path(name).name for name in names if "/wheels/" in name]
    assert [name for name in wheels if not name.endswith(".whl")] == []
    needed = {"reclaimd", "grpcio", "h2", "pydantic_core"}
    assert needed <= {name.split("-")[0] for name in wheels}
    assert bundle.printed.splitlines()[-1] == str(bundle.archive)


def test_installed_below_another_root_it_touches_nothing_else_and_works_wherever_it_is_moved(
    root: OwnRoot,
) -> None:
    """Without a network. Nothing names the place where it was staged; no service is started;
    programs work in another place, and at / by their names; the drill holds."""

    def elsewhere() -> list[dict[str, bytes]]:
        return [files_in(root.path / name) for name in ("etc", "var", ".local", "opt", "tmp")]

    before = elsewhere()
    printed = done(root.run("reclaimd/install.sh", DESTDIR=STAGED, EXTRAS="[drill]"))
    assert re.match(r"new      /opt/reclaimd \(reclaimd [0-9.]+, Python 3\.[0-9.]+\)\n", printed)
    assert elsewhere() == before
    assert root.calls() == []
    staged = files_in(root.path / STAGED.lstrip("/"))
    assert len(staged) > 500
    assert [path for path, content in staged.items() if STAGED.encode() in content] == []
    programs = {path for path in staged if path.startswith("/opt/reclaimd/bin/")}
    assert staged["/opt/reclaimd/bin/python3"] == b"/usr/bin/python3"
    own = {path for path in programs if not path.startswith("/opt/reclaimd/bin/python")}
    assert own == {"/opt/reclaimd/bin/reclaimd"}
    place = f"{MOVED}/opt/reclaimd/bin"
    moved = done(root.run(f"mv {STAGED} {MOVED}\n{place}/python {place}/reclaimd --version"))
    assert moved.startswith("reclaimd ")
    assert done(root.run(f"cp -r {MOVED}/. /\nreclaimd --version")) == moved
    assert "imagefs.available" in done(root.run("reclaimd config"))
    # from where a stranger has a module of our name, also with an empty entry of PYTHONPATH
    (root.path / "srv" / "eviction.py").write_text("raise SystemExit('a stranger ran')\n")
    assert done(root.run("cd /srv\nPYTHONPATH=: reclaimd --version")) == moved
    drill = done(root.run("reclaimd drill", timeout_seconds=150.0))
    assert "pressured-node: everything held" in drill


def test_once_more_is_an_upgrade_and_starts_the_service_after_doctor_has_spoken(
    root: OwnRoot,
) -> None:
    """Configuration and added packages stay. What changed is told: here another version of one is
    there before."""
    (site,) = (root.path / "opt/reclaimd/lib").glob("python3*/site-packages")
    write_distribution(site, "a-package", "a_package")
    (old,) = site.glob("tenacity-*.dist-info")
    newer, older = old.name.removesuffix(".dist-info"), "tenacity-8.3.0"
    for name in ("METADATA", "RECORD"):
        text = (old / name).read_text().replace(newer, older)
        version = re.sub(r"^Version: .*$", "Version: 8.3.0", text, count=1, flags=re.MULTILINE)
        (old / name).write_text(version)
    old.rename(site / f"{older}.dist-info")
    configuration = root.path / CONFIGURATION
    mine = configuration.read_text() + "dryRun: true\n"
    configuration.write_text(mine)
    printed = done(root.run("reclaimd/install.sh", EXTRAS="[drill]"))
    assert f"  - {older}\n" in printed
    assert f"  + {newer}\n" in printed
    assert "a_package" not in printed
    assert f"\nkept     /{CONFIGURATION}" in printed
    assert configuration.read_text() == mine
    assert [*(root.path / "opt/reclaimd/lib").glob("python3*/site-packages/a_package.py")]
    assert os.listdir(root.path / "opt") == ["reclaimd"]
    doctor, _, after = printed.partition("reclaimd doctor:\n")[2].rpartition("reclaimd runs: ")
    assert "  do:   " in doctor
    assert after.startswith("reclaimd status, ")
    assert root.calls() == [
        "daemon-reload",
        "stop reclaimd.service reclaimd.socket reclaimd-healthz.socket",
        "enable --now reclaimd",
    ]
    assert "started" in (root.path / "var/log/reclaimd.journal").read_text()


def test_an_upgrade_ends_the_units_that_there_are_no_more(unchanged: OwnRoot) -> None:
    """Stopped and disabled before their files go, which is told; once they are gone nothing is
    asked of them."""
    root, before = unchanged, len(unchanged.calls())
    helper = [f"/etc/systemd/system/reclaimd-xfs.{kind}" for kind in ("service", "socket")]
    for path in helper:
        (root.path / path.lstrip("/")).write_text("[Unit]\n")
    recorded = f"echo {' '.join(helper)} >> /usr/local/share/reclaimd/installed-files"
    printed = done(root.run(f"{recorded}\nreclaimd/install.sh files"))
    ends = ["disable --now reclaimd-xfs.service reclaimd-xfs.socket", "daemon-reload"]
    assert root.calls()[before:] == ends
    assert re.findall("^gone +(.*)$", printed, re.MULTILINE) == helper
    assert not [path for path in helper if (root.path / path.lstrip("/")).exists()]
    done(root.run("reclaimd/install.sh files"))
    assert len(root.calls()) == before + 2


@pytest.mark.parametrize(
    ("prepared", "code", "told"),
    [
        ("rmdir /run/systemd/system", 2, "systemd does not run here"),
        ("mount -t tmpfs none /usr/lib/python3*/ensurepip", 2, "apt-get install python3-venv"),
        ("mount -t tmpfs none /root/reclaimd/wheels", 2, "there are no wheels beside"),
        ("export EXTRAS=[bench]", 1, "pip could not install the program (see above); the bundle has the extras [drill]"),
        (f"echo 'noSuchField: 1' >> /{CONFIGURATION}", 2, "the new program does not accept the configuration"),
    ],
)  # fmt: skip
def test_an_upgrade_that_cannot_be_is_told_in_one_sentence_and_changes_nothing(
    unchanged: OwnRoot, prepared: str, code: int, told: str
) -> None:
    """systemd, Debian's python3-venv, wheels, a library is missing, or the program that is there
    has a configuration that the new one refuses, with the field."""
    configuration, calls = unchanged.path / CONFIGURATION, unchanged.calls()
    kept = configuration.read_text()
    process = unchanged.run(f"{prepared}\nreclaimd/install.sh")
    configuration.write_text(kept)
    (unchanged.path / "run/systemd/system").mkdir(exist_ok=True)
    assert process.returncode == code
    assert process.stderr.splitlines()[-1].startswith(("failed: ", "failed: ", "refused: ")[code])
    assert told in process.stderr.splitlines()[-1]
    assert ("unknown field 'noSuchField'" in process.stderr) is ("noSuchField" in prepared)
    assert unchanged.calls() == calls


@pytest.mark.parametrize(
    ("words", "there", "step"),
    [
        ("/opt/reclaimd /opt/reclaimd.old", ["reclaimd", "reclaimd.new"], "files"),
        ("/opt/reclaimd.new /opt/reclaimd", ["reclaimd.new", "reclaimd.old"], "files"),
        ("/opt/reclaimd.new /opt/reclaimd", ["reclaimd.new", "reclaimd.old"], "program"),
        ("-rf /opt/reclaimd.old", ["reclaimd", "reclaimd.old"], "files"),
    ],
    ids=["before", "between", "between, upgraded once more", "after"],
)
def test_an_upgrade_that_is_killed_while_it_changes_environments_is_mended_by_the_next_run(
    unchanged: OwnRoot, words: str, there: list[str], step: str
) -> None:
    """By SIGKILL before, between and after the two renames, whatever the next run is to do."""
    tools = unchanged.path / ".local" / "sbin"
    tools.mkdir(exist_ok=True)
    for name in ("mv", "rm"):
        line = f'case "$*" in *"$CUT") kill -KILL $PPID; exit 1 ;; esac; exec /bin/{name} "$@"'
        script(tools / name, line)
    ended = unchanged.run("reclaimd/install.sh program || echo ended: $?", CUT=words)
    shutil.rmtree(tools)
    assert "ended: 137" in done(ended)
    assert sorted(os.listdir(unchanged.path / "opt")) == there
    done(unchanged.run(f"reclaimd/install.sh {step}"))


@pytest.mark.parametrize("linked", ["reclaimd", "reclaimd/lib"])
def test_an_environment_behind_a_symlink_is_upgraded_where_it_is(
    unchanged: OwnRoot, linked: str
) -> None:
    """Or a part of it, on another disk; an upgrade that fails leaves what is behind it as it was:
    pip works on a copy."""
    moved = unchanged.path / "srv" / "disk" / "moved"
    moved.parent.mkdir(exist_ok=True)
    done(unchanged.run(f"mv /opt/{linked} /srv/disk/moved\nln -s /srv/disk/moved /opt/{linked}"))
    before = files_in(moved)
    process = unchanged.run(f"{ONLY_THE_PROGRAM}reclaimd/install.sh program")
    assert "failed: pip could not install the program" in process.stderr
    assert files_in(moved) == before
    if linked == "reclaimd":
        done(unchanged.run("reclaimd/install.sh program\nreclaimd --version"))
    assert os.readlink(unchanged.path / "opt" / linked) == "/srv/disk/moved"
    assert os.listdir(moved.parent) == ["moved"]
    done(unchanged.run(f"rm /opt/{linked}\nmv /srv/disk/moved /opt/{linked}"))


def test_uninstall_stops_the_service_and_leaves_what_is_the_operators(root: OwnRoot) -> None:
    """By the installer that was installed; then nothing is on PATH. To purge takes configuration,
    records and the ballast of that configuration too, which without the program nobody would
    release."""
    done(root.run("reclaimd/install.sh files"))
    before = len(root.calls())
    uninstall = "sh /opt/reclaimd/install.sh uninstall\n"
    printed = done(root.run(f"{uninstall}if command -v reclaimd; then exit 9; fi"))
    units = "reclaimd-healthz.service reclaimd-healthz.socket reclaimd.service reclaimd.socket"
    assert root.calls()[before:] == [f"disable --now {units}", "daemon-reload"]
    lines = [line for line in printed.splitlines() if "/etc/systemd/" not in line]
    left = ["left     /etc/reclaimd", "left     /var/lib/reclaimd", "gone     /opt/reclaimd"]
    assert lines[-3:] == left
    assert not list((root.path / "opt").iterdir())
    assert not [path for path in files_in(root.path / ".local") if "reclaimd" in path]
    done(root.run("reclaimd/install.sh program files"))
    ballast = "/var/lib/kubelet/reclaimd.ballast"
    function = f"[{{name: ReleaseBallast, file: {ballast}, size: 1Mi}}]"
    with (root.path / CONFIGURATION).open("a") as configuration:
        configuration.write(f"reclaimFunctions: {function}\n")
    done(root.run("reclaimd ballast create"))
    printed = done(root.run(uninstall, PURGE="1"))
    assert f"gone     {ballast} (ballast)\n" in printed
    for path in (ballast, "/etc/reclaimd", "/var/lib/reclaimd"):
        assert not (root.path / path.lstrip("/")).exists()
