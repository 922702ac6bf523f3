"""The bundle: made as `make bundle` makes it, installed without a network, moved,
used, upgraded and taken away.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.bundles import Bundle, made_bundle
from tests.nodes.own_root import OwnRoot

pytestmark = pytest.mark.house(
    "config/install",
    "eviction/cli/install.py",
    "eviction/cli/uninstall.py",
    "pyproject.toml",
    "tests/nodes/stand_in_systemctl",
)

STAGED, MOVED = "/srv/staged", "/srv/moved"
ONLY_THE_PROGRAM = """\
cp /root/reclaimd/wheels/reclaimd-*.whl /run
mount -t tmpfs none /root/reclaimd/wheels
mv /run/reclaimd-*.whl /root/reclaimd/wheels
"""  # among the wheels, so that pip fails
START = [
    "daemon-reload",
    "stop reclaimd.service reclaimd.socket reclaimd-healthz.socket",
    "enable --now reclaimd",
]


def files_in(root: Path) -> dict[str, bytes]:
    """Everything but directories: by path, the content, or where a symlink leads."""
    return {
        "/" + str(path.relative_to(root)): (
            os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        )
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The one of this run."""
    return made_bundle(tmp_path_factory)


@pytest.fixture(scope="module")
def root(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> OwnRoot:
    """A fresh node, without a network, with the directory of an idle kubelet; it is
    unpacked in /root/reclaimd.
    """
    made = OwnRoot(tmp_path_factory.mktemp("machine") / "root")
    (made.path / "var/lib/kubelet/pods").mkdir(parents=True)
    bundle.unpack(made.path / "root").rename(made.path / "root" / "reclaimd")
    return made


def done(process: subprocess.CompletedProcess[str]) -> str:
    """What a script printed that ended well."""
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def write_distribution(site: Path, name: str, module: str) -> None:
    """A distribution of one empty module, as it looks when pip has installed it."""
    (site / f"{module}.py").write_text("")
    metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    files = (f"{module}.py", f"{metadata.name}/METADATA", f"{metadata.name}/RECORD")
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_its_checksum_is_right_and_nothing_in_it_tells_when_or_by_whom_it_was_made(
    bundle: Bundle,
) -> None:
    """Names in their order, one time for all, root's, readable by all; every
    dependency is a wheel.
    """
    done(
        subprocess.run(
            ["sha256sum", "--check", f"{bundle.archive.name}.sha256"],
            cwd=bundle.archive.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    )
    with open(bundle.archive, "rb") as file:
        assert struct.unpack("<I", file.read(8)[4:]) == (0,), "gzip's own time"
    with gzip.open(bundle.archive) as unpacked, tarfile.open(fileobj=unpacked) as archive:
        members = archive.getmembers()
    assert [each.name for each in members] == sorted(
        (each.name for each in members), key=lambda name: name.split("/")
    )
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members} == {(0, 0, "", "")}
    assert len({each.mtime for each in members}) == 1
    assert {each.mode & 0o755 ^ each.mode for each in members if not each.issym()} == {0}
    wheels = [each.name for each in members if "/wheels/" in each.name]
    assert all(name.endswith(".whl") for name in wheels)
    assert {"reclaimd", "grpcio", "h2", "pydantic_core"} <= {
        Path(name).name.split("-")[0] for name in wheels
    }
    assert bundle.printed.splitlines()[-1] == str(bundle.archive)


@pytest.mark.regression
def test_installed_below_another_root_it_touches_nothing_else_and_works_wherever_it_is_moved(
    root: OwnRoot,
) -> None:
    """Without a network. Nothing names the place where it was staged; no service is started;
    programs work in another place, and at / by their names."""
    before = (
        files_in(root.path / "etc") | files_in(root.path / "var") | files_in(root.path / ".local")
    )
    printed = done(root.run("reclaimd/install.sh", DESTDIR=STAGED, EXTRAS="[drill]"))
    assert re.match(r"new      /opt/reclaimd \(reclaimd [0-9.]+, Python 3\.[0-9.]+\)\n", printed)
    assert before == files_in(root.path / "etc") | files_in(root.path / "var") | files_in(
        root.path / ".local"
    )
    assert not list((root.path / "opt").iterdir())
    assert not list((root.path / "tmp").iterdir())
    assert root.calls() == []
    staged = files_in(root.path / STAGED.lstrip("/"))
    assert len(staged) > 500
    assert [path for path, content in staged.items() if STAGED.encode() in content] == []
    links = {
        path: content.decode()
        for path, content in staged.items()
        if path.startswith("/opt/reclaimd/bin/python")
    }
    assert links["/opt/reclaimd/bin/python3"] == "/usr/bin/python3"
    assert {path for path in staged if path.startswith("/opt/reclaimd/bin/")} - links.keys() == {
        "/opt/reclaimd/bin/reclaimd"
    }
    place = f"{MOVED}/opt/reclaimd/bin"
    moved = done(root.run(f"mv {STAGED} {MOVED}\n{place}/python {place}/reclaimd --version"))
    assert moved.startswith("reclaimd ")
    assert done(root.run(f"cp -r {MOVED}/. /\nreclaimd --version")) == moved
    assert "imagefs.available" in done(root.run("reclaimd config"))


def test_its_drill_holds(root: OwnRoot) -> None:
    """The embedded node, in the place to which it was moved."""
    assert "pressured-node: everything held" in done(
        root.run("reclaimd drill", timeout_seconds=150.0)
    )


def test_once_more_is_an_upgrade_and_starts_the_service_after_doctor_has_spoken(
    root: OwnRoot,
) -> None:
    """Configuration and added packages stay.

    What changed is told: here another version of one is there before.
    """
    site = next((root.path / "opt/reclaimd/lib").glob("python3*/site-packages"))
    write_distribution(site, "a-package", "a_package")
    (old,) = site.glob("tenacity-*.dist-info")
    newer = old.name
    metadata = (old / "METADATA").read_text()
    (old / "METADATA").write_text(
        re.sub(r"^Version: .*$", "Version: 8.3.0", metadata, count=1, flags=re.MULTILINE)
    )
    record = (old / "RECORD").read_text()
    (old / "RECORD").write_text(record.replace(newer, "tenacity-8.3.0.dist-info"))
    old.rename(site / "tenacity-8.3.0.dist-info")
    configuration = root.path / "etc/reclaimd/reclaimd.yaml"
    mine = configuration.read_text() + "dryRun: true\n"
    configuration.write_text(mine)
    printed = done(root.run("reclaimd/install.sh", EXTRAS="[drill]"))
    assert "  - tenacity-8.3.0\n" in printed
    assert f"  + {newer.removesuffix('.dist-info')}\n" in printed
    assert "a_package" not in printed
    assert "\nkept     /etc/reclaimd/reclaimd.yaml" in printed
    assert configuration.read_text() == mine
    assert next(
        (root.path / "opt/reclaimd/lib").glob("python3*/site-packages/a_package.py")
    ).exists()
    assert [path.name for path in (root.path / "opt").iterdir()] == ["reclaimd"]
    doctor, _, after = printed.partition("reclaimd doctor:\n")[2].rpartition("reclaimd runs: ")
    assert "  do:   " in doctor
    assert after.startswith("reclaimd status, ")
    assert root.calls() == START
    assert "started" in (root.path / "var/log/reclaimd.journal").read_text()


def test_an_upgrade_ends_the_units_that_there_are_no_more(root: OwnRoot) -> None:
    """Stopped and disabled before their files go, which is told; once they are gone
    nothing is asked of them.
    """
    helper = [f"/etc/systemd/system/reclaimd-xfs.{kind}" for kind in ("service", "socket")]
    for path in helper:
        (root.path / path.lstrip("/")).write_text("[Unit]\n")
    recorded = f"echo {' '.join(helper)} >> /usr/local/share/reclaimd/installed-files"
    before = len(root.calls())
    printed = done(root.run(f"{recorded}\nreclaimd/install.sh files"))
    assert root.calls()[before:] == [
        "disable --now reclaimd-xfs.service reclaimd-xfs.socket",
        "daemon-reload",
    ]
    gone = [line.split()[1] for line in printed.splitlines() if line.startswith("gone")]
    assert gone == helper
    assert not [path for path in helper if (root.path / path.lstrip("/")).exists()]
    done(root.run("reclaimd/install.sh files"))
    assert len(root.calls()) == before + 2


def test_an_upgrade_that_would_refuse_the_configuration_changes_nothing(root: OwnRoot) -> None:
    """The sentence names the field; the program that is there stays, and goes on."""
    configuration = root.path / "etc/reclaimd/reclaimd.yaml"
    kept = configuration.read_text()
    configuration.write_text(kept + "noSuchField: 1\n")
    before, calls = files_in(root.path / "opt"), root.calls()
    process = root.run("reclaimd/install.sh")
    configuration.write_text(kept)
    assert process.returncode == 2
    assert "unknown field 'noSuchField'" in process.stderr
    assert "refused: the new program does not accept the configuration" in process.stderr
    assert files_in(root.path / "opt") == before
    assert root.calls() == calls


def test_a_program_imports_nothing_from_the_directory_where_it_is_called(root: OwnRoot) -> None:
    """Also where PYTHONPATH has an empty entry."""
    (root.path / "srv" / "eviction.py").write_text("raise SystemExit('a stranger ran')\n")
    assert done(root.run("cd /srv\nPYTHONPATH=: reclaimd --version")).startswith("reclaimd ")


def opt_of(root: OwnRoot) -> dict[str, bytes]:
    """Everything below /opt, without the byte code, which a new environment has
    in another order.
    """
    return {
        path: content
        for path, content in files_in(root.path / "opt").items()
        if not path.endswith(".pyc")
    }


@pytest.mark.parametrize(
    ("words", "there", "step"),
    [
        pytest.param(
            *("/opt/reclaimd /opt/reclaimd.old", ["reclaimd", "reclaimd.new"], "files"),
            id="before",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            *("/opt/reclaimd.new /opt/reclaimd", ["reclaimd.new", "reclaimd.old"], "files"),
            id="between",
        ),
        pytest.param(
            *("/opt/reclaimd.new /opt/reclaimd", ["reclaimd.new", "reclaimd.old"], "program"),
            id="between, upgraded once more",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            *("-rf /opt/reclaimd.old", ["reclaimd", "reclaimd.old"], "files"),
            id="after",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_an_upgrade_that_is_killed_while_it_changes_environments_is_mended_by_the_next_run(
    root: OwnRoot, words: str, there: list[str], step: str
) -> None:
    """By SIGKILL before, between and after the two renames. Whatever the next run is to do, the
    program with what the operator has added is in its place then, and nothing is beside it."""
    tools = root.path / ".local" / "sbin"
    tools.mkdir(exist_ok=True)
    for name in ("mv", "rm"):
        (tools / name).write_text(
            f'#!/bin/sh\ncase "$*" in *"$CUT") kill -KILL $PPID; exit 1 ;; esac\nexec /bin/{name}'
            ' "$@"\n'
        )
        (tools / name).chmod(0o755)
    before = opt_of(root)
    ended = root.run("reclaimd/install.sh program || echo ended: $?", CUT=words)
    for name in ("mv", "rm"):
        (tools / name).unlink()
    assert "ended: 137" in done(ended)
    assert sorted(os.listdir(root.path / "opt")) == there
    done(root.run(f"reclaimd/install.sh {step}"))
    assert os.listdir(root.path / "opt") == ["reclaimd"]
    assert opt_of(root) == before


def test_an_environment_behind_a_symlink_is_upgraded_where_it_is(root: OwnRoot) -> None:
    """The symlink stays, and an upgrade that fails leaves what is behind it as it was."""
    done(root.run("mv /opt/reclaimd /srv/moved\nln -s /srv/moved /opt/reclaimd"))
    before = files_in(root.path / "srv" / "moved")
    process = root.run(f"{ONLY_THE_PROGRAM}reclaimd/install.sh program")
    assert "failed: pip could not install the program" in process.stderr
    assert files_in(root.path / "srv" / "moved") == before
    done(root.run("reclaimd/install.sh program\nreclaimd --version"))
    assert os.readlink(root.path / "opt" / "reclaimd") == "/srv/moved"
    assert sorted(path for path in os.listdir(root.path / "srv") if path.startswith("moved")) == [
        "moved"
    ]
    done(root.run("rm /opt/reclaimd\nmv /srv/moved /opt/reclaimd"))


@pytest.mark.parametrize(
    ("hide", "sentence"),
    [
        ("rmdir /run/systemd/system", "systemd does not run here"),
        ("mount -t tmpfs none /usr/lib/python3*/ensurepip", "apt-get install python3-venv"),
        ("mount -t tmpfs none /root/reclaimd/wheels", "there are no wheels beside"),
        ("export EXTRAS=[bench]", "pip could not install the program"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(root: OwnRoot, hide: str, sentence: str) -> None:
    """systemd, Debian's python3-venv, wheels, a library; and where pip fails,
    what was there is untouched.
    """
    before = files_in(root.path / "opt")
    process = root.run(f"{hide}\nreclaimd/install.sh")
    (root.path / "run/systemd/system").mkdir(exist_ok=True)
    assert process.returncode in (1, 2)
    assert sentence in process.stderr.splitlines()[-1]
    assert process.stderr.splitlines()[-1].startswith(("refused: ", "failed: "))
    assert files_in(root.path / "opt") == before


def test_uninstall_stops_the_service_and_leaves_what_is_the_operators(root: OwnRoot) -> None:
    """By the installer that was installed; then nothing is on PATH."""
    done(root.run("reclaimd/install.sh files"))
    before = len(root.calls())
    printed = done(
        root.run("sh /opt/reclaimd/install.sh uninstall\nif command -v reclaimd; then exit 9; fi")
    )
    units = "reclaimd-healthz.service reclaimd-healthz.socket reclaimd.service reclaimd.socket"
    assert root.calls()[before:] == [f"disable --now {units}", "daemon-reload"]
    assert [
        line
        for line in printed.splitlines()
        if not line.startswith("gone     /etc/systemd/system/")
    ][-3:] == [
        "left     /etc/reclaimd",
        "left     /var/lib/reclaimd",
        "gone     /opt/reclaimd",
    ]
    assert not list((root.path / "opt").iterdir())
    assert not [path for path in files_in(root.path / ".local") if "reclaimd" in path]


def test_purge_takes_configuration_records_and_ballast_too(root: OwnRoot) -> None:
    """The ballast of the configuration that was kept, which without the
    program nobody would release.
    """
    done(root.run("reclaimd/install.sh program files"))
    ballast = "{name: ReleaseBallast, file: /var/lib/kubelet/reclaimd.ballast, size: 1Mi}"
    with (root.path / "etc/reclaimd/reclaimd.yaml").open("a") as configuration:
        # small marks: the machine's own disk may have little available
        marks = "{nodefs.available: 1Mi, imagefs.available: 1Mi}"
        configuration.write(f"reclaimFunctions: [{ballast}]\nevictionHard: {marks}\n")
        configuration.write("margin: 0%\n")
    done(root.run("reclaimd ballast create"))
    printed = done(root.run("/opt/reclaimd/install.sh uninstall", PURGE="1"))
    assert "gone     /var/lib/kubelet/reclaimd.ballast (ballast)\n" in printed
    assert not (root.path / "var/lib/kubelet/reclaimd.ballast").exists()
    assert not (root.path / "etc/reclaimd").exists()
    assert not (root.path / "var/lib/reclaimd").exists()
