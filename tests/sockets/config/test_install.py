"""The scripts that install the program: what they refuse, and what they load. Nothing is installed.

With the program: `test_bundle.py`; what it places: `test_installed_files.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.sockets.config.transcripts import assert_told, stories_in

pytestmark = pytest.mark.house(
    "config/install", "eviction/cli/below_root.py", "Makefile", "reclaim/trust.py"
)

INSTALL = ROOT / "config" / "install"
MODULES = "pip venv ensurepip compileall eviction site sitecustomize usercustomize sysconfig"
PROGRAMS = """basename cp dirname find git grep gzip head id install ln ls mkdir mktemp mv python3
readlink rm sed sha256sum sort sync tar tr uniq"""
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
    asked = subprocess.run(["/usr/bin/python3", "-Ic", MADE_FOR], stdout=subprocess.PIPE, text=True)
    if asked.returncode != 0:
        pytest.skip("needs a /usr/bin/python3 with venv (Debian package python3-venv)")
    here = tmp_path / "here"
    (here / "bundle" / "wheels").mkdir(parents=True)
    shutil.copy(wheel, here / "bundle" / "wheels")
    (here / "bundle" / "BUNDLE").write_text(f"{asked.stdout}[drill]\n")
    shutil.copy(INSTALL / "install.sh", here / "bundle")
    for directory in (here / "shared", here / "shared" / "bin"):
        directory.mkdir()
        directory.chmod(0o1777)
        for module in MODULES.split():
            line = f"open({str(here / 'ran')!r}, 'a').write('module {module}\\n')\n"
            (directory / f"{module}.py").write_text(line)
        for program in PROGRAMS.split():
            line = f"#!/bin/sh\necho program {program} >>{here}/ran; exit 1\n"
            (directory / program).write_text(line)
            (directory / program).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if key not in ("EXTRAS", "PURGE")}
    variables = {
        **kept,
        "INSTALL": str(INSTALL),
        "TESTS_PYTHON": os.path.realpath(sys.executable),
        "PYTHON": "/usr/bin/python3",
        "DESTDIR": str(here / "stage"),
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": ":.",
        "LC_ALL": "C",
    }

    def run(line: str) -> tuple[int, str]:
        command = ["sh", "-uc", f"exec 2>&1\n{line}"]
        process = subprocess.run(
            command, cwd=here, env=variables, stdout=subprocess.PIPE, text=True, umask=0o022
        )
        return process.returncode, process.stdout

    platform = asked.stdout.strip()
    hidden = {
        str(here): "HERE",
        str(ROOT): "REPOSITORY",
        os.path.realpath(sys.executable): "OURS",
        platform: "cp3N",
    }
    assert_told(name, number, run, hidden)
