"""The wheel and the source distribution of this tree, and environments with the wheel
in them that need no pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.repository import ROOT

PYTHON = Path("/usr/bin/python3")
EPOCH = "1700000000"


def build(kind: str, directory: Path, **variables: str) -> Path:
    """The distribution that hatchling makes: `wheel` or `sdist`. Skips without hatchling."""
    pytest.importorskip("hatchling", reason="hatchling, of the extra dev, makes distributions")
    code = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(directory)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, **variables}
    made = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=60.0
    )
    return directory / made.stdout.strip()


def environment_of(wheel: Path, place: Path) -> Path:
    """An environment of Debian's Python with the wheel, beside the dependencies of the tests' own;
    its program. Skips where that Python could not load them."""
    asked = "import sys; print('python%d.%d' % sys.version_info[:2])"
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if (
        not PYTHON.exists()
        or subprocess.check_output([PYTHON, "-c", asked], text=True).strip() != own
    ):
        pytest.skip(f"needs a /usr/bin/python3 that is {own}, as the tests' own")
    site = place / "lib" / own / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(PYTHON)
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    program = place / "bin" / "reclaimd"
    program.write_text(
        f"#!{place}/bin/python -I\nimport sys\nfrom eviction.__main__ import"
        " main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return program


def write_distribution(site: Path, name: str, module: str) -> None:
    """A distribution of one empty module, as it looks when pip has installed it."""
    (site / f"{module}.py").write_text("")
    metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    files = (f"{module}.py", f"{metadata.name}/METADATA", f"{metadata.name}/RECORD")
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))
