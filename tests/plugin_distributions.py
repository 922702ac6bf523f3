"""Distributions with reclaim functions for tests: a wheel made of a source tree, installed by pip, and small ones that
are written as pip would have installed them.

The wheel is made here and not by the build backend that the tree names, which pip would fetch: for a tree of one pure
module the format asks for no more (https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from reclaim.plugins import ENTRY_POINT_GROUP
from tests.repository import ROOT

EXAMPLE = ROOT / "config" / "examples" / "plugin"
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_of(project: Path, directory: Path) -> Path:
    """A wheel of a source tree with the modules that its `pyproject.toml` names for hatchling's wheel."""
    tree = tomllib.loads((project / "pyproject.toml").read_text())
    name, version = tree["project"]["name"], tree["project"]["version"]
    groups = [
        f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in entries.items())
        for group, entries in tree["project"]["entry-points"].items()
    ]
    stem = f"{name.replace('-', '_')}-{version}"
    modules = tree["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    files = {module: (project / module).read_bytes() for module in modules} | {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{stem}.dist-info/WHEEL": WHEEL.encode(),
        f"{stem}.dist-info/entry_points.txt": "\n".join(groups).encode(),
    }
    record = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{stem}.dist-info/RECORD"] = "\n".join([*record, f"{stem}.dist-info/RECORD,,", ""]).encode()
    wheel = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def install(wheel: Path, target: Path) -> None:
    """pip installs it into a directory; nothing is fetched."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--no-index", "--no-deps", "--target", str(target), str(wheel)], check=True, timeout=120.0
    )


def write_distribution(site: Path, name: str, module: str, text: str, entries: Mapping[str, str]) -> Path:
    """A distribution of one module, as it looks when it is installed; the path of the module."""
    path = site / f"{module}.py"
    path.write_text(text)
    metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{entry} = {value}\n" for entry, value in entries.items())
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{lines}")
    files = [path.name, *(f"{metadata.name}/{file}" for file in ("METADATA", "entry_points.txt", "RECORD"))]
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return path


@contextmanager
def on_the_path(site: Path) -> Iterator[None]:
    """What is installed in a directory can be imported, and is forgotten afterwards."""
    sys.path.insert(0, str(site))
    try:
        yield
    finally:
        sys.path.remove(str(site))
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{site}/"):
                del sys.modules[name]
