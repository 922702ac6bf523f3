"""What installs the program, in its parts: what the scripts refuse, and what they load; what
`reclaimd install --systemd` and `reclaimd uninstall` place, tell, keep, refuse and remove below
another root, and what somebody who may write there makes of it.

The whole, with a service at /: `test_bundle.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from eviction.cli.below_root import NotTrustedError, proven
from tests.repository import ROOT
from tests.sockets.config.stories import TOLD, assert_told, in_shell, stories_in

pytestmark = pytest.mark.house(
    *("config/install", "config/systemd", "eviction/cli/below_root.py", "eviction/cli/install.py"),
    *("eviction/cli/uninstall.py", "eviction/shipped.py", "Makefile", "pyproject.toml"),
    "reclaim/trust.py",
)

INSTALL = ROOT / "config" / "install"
PYTHON = Path("/usr/bin/python3")
OURS = os.path.realpath(sys.executable)
MADE_FOR = """import ensurepip, sys, sysconfig
print(f'cp3{sys.version_info[1]}', sysconfig.get_platform())"""


@pytest.mark.parametrize(("name", "number"), stories_in("install.txt"))
def test_nothing_of_the_directory_where_root_stands_is_run(
    wheel: Path, tmp_path: Path, name: str, number: int
) -> None:
    """And what cannot be installed is refused. `bundle` is one for this machine, but with the
    program alone: what ends for want of packages has come past everything else. In `shared`, where
    everybody may write, a stranger has put modules and programs, each of which would leave a line
    in `ran`."""
    asked = subprocess.run([PYTHON, "-Ic", MADE_FOR], stdout=subprocess.PIPE, text=True)
    if asked.returncode != 0:
        pytest.skip("needs a /usr/bin/python3 with venv (Debian package python3-venv)")
    here = tmp_path / "here"
    (here / "bundle" / "wheels").mkdir(parents=True)
    shutil.copy(wheel, here / "bundle" / "wheels")
    (here / "bundle" / "BUNDLE").write_text(f"{asked.stdout}[drill]\n")
    shutil.copy(INSTALL / "install.sh", here / "bundle")
    subprocess.run([TOLD / "stranger"], cwd=here, check=True)
    variables = {
        "INSTALL": str(INSTALL),
        "TESTS_PYTHON": OURS,
        "PYTHON": str(PYTHON),
        "DESTDIR": str(here / "stage"),
        "EXTRAS": "",
        "PURGE": "0",
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": ":.",
    }
    hidden = {str(here): "HERE", str(ROOT): "REPOSITORY", OURS: "OURS"}
    hidden[asked.stdout.strip()] = "cp3N"
    assert_told(name, number, in_shell(here, variables), hidden)


# ---- files


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel holds, compiled, beside the dependencies of the tests' own."""
    made = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(made)
    (made / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    subprocess.run([PYTHON, "-m", "compileall", "-q", str(made)], check=True)
    return made


def install(packages: Path, place: Path) -> None:
    """An environment of Debian's Python with these packages (hard links) and the program. Skips
    where that Python could not load them."""
    asked = "import sys; print('python%d.%d' % sys.version_info[:2])"
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = PYTHON.exists() and subprocess.check_output([PYTHON, "-c", asked], text=True).strip()
    if found != own:
        pytest.skip(f"needs a /usr/bin/python3 that is {own}, as the tests' own")
    shutil.copytree(packages, place / "lib" / own / "site-packages", copy_function=os.link)
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(PYTHON)
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    program = place / "bin" / "reclaimd"
    program.write_text(
        f"#!{place}/bin/python -I\nimport sys\nfrom eviction.__main__ import"
        " main\nsys.exit(main())\n"
    )
    program.chmod(0o755)


@pytest.mark.parametrize(("name", "number"), stories_in("installed.txt", "untrusted.txt"))
def test_what_is_placed_and_removed_below_another_root(
    packages: Path, tmp_path: Path, name: str, number: int
) -> None:
    """Each story in a root of its own, with the program in /opt/reclaimd."""
    root, program = tmp_path / "root", tmp_path / "tools" / "reclaimd"
    root.mkdir()
    install(packages, root / "opt" / "reclaimd")
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec opt/reclaimd/bin/reclaimd "$@" --root "$PWD"\n')
    program.chmod(0o755)
    variables = {
        "UNITS": str(ROOT / "config" / "systemd"),
        "RECORD": "usr/local/share/reclaimd/installed-files",
        "FORMER": "etc/systemd/system/reclaimd-xfs.socket",  # of an earlier version
        "MAN": "usr/local/share/man/man1",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    hidden = {str(root): "ROOT", str(ROOT): "REPOSITORY"}
    assert_told(name, number, in_shell(root, variables), hidden)


def test_no_directory_is_made_where_somebody_else_may_write(tmp_path: Path) -> None:
    """Nor is one taken that somebody has made first."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(tmp_path, 12345, 0)
    with pytest.raises(NotTrustedError, match="belongs to uid 12345"):
        proven(str(tmp_path / "new"), make=True)
    assert os.listdir(tmp_path) == []
