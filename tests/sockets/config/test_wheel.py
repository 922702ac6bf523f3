"""The wheel: what it holds, that it is made the same each time, and that
versions and names agree with it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.distributions import build
from tests.pages import PAGES
from tests.repository import ROOT

pytestmark = pytest.mark.house("config", "Makefile", "pyproject.toml", "tests/distributions.py")


def test_it_is_made_the_same_each_time(wheel: Path, tmp_path: Path) -> None:
    """Byte by byte, for the same SOURCE_DATE_EPOCH."""
    assert build("wheel", tmp_path).read_bytes() == wheel.read_bytes()


def test_it_holds_all_of_config_beside_the_code_and_nothing_twice(wheel: Path) -> None:
    """What the program installs and prints, and the examples; no byte code."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    beside = "eviction/config/"
    files = [
        path.relative_to(ROOT / "config") for path in (ROOT / "config").rglob("*") if path.is_file()
    ]
    assert {name.removeprefix(beside) for name in names if name.startswith(beside)} == {
        str(path) for path in files if "__pycache__" not in path.parts
    }
    assert len(names) == len(set(names))
    assert not [name for name in names if "__pycache__" in name]


def test_check_wheel_contents_finds_nothing(wheel: Path) -> None:
    """With the settings of pyproject.toml."""
    pytest.importorskip("check_wheel_contents", reason="check-wheel-contents, of the extra dev")
    command = [sys.executable, "-m", "check_wheel_contents", str(wheel)]
    process = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60.0
    )
    assert (process.returncode, process.stdout) == (0, f"{wheel}: OK\n")


def test_its_description_can_be_shown_by_an_index(wheel: Path) -> None:
    """As `twine check --strict` asks: there is one, and what it is written in is said."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        head, _, description = archive.read(name).decode().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    assert description == (ROOT / "README.md").read_text()


def test_the_version_is_named_everywhere_as_in_pyproject(wheel: Path) -> None:
    """In the tags of images, in what is said of archives and programs, and as the
    status on the first page.
    """
    version = wheel.name.split("-")[1]
    named = r"(?:\breclaimd[-: ]|newTag: |^Status: )v?(\d+\.\d+\.\d+)"
    texts = [*PAGES, ROOT / "config" / "Containerfile", *(ROOT / "config").rglob("*.yaml")]
    found = {
        (str(path.relative_to(ROOT)), each)
        for path in texts
        for each in re.findall(named, path.read_text(), re.MULTILINE)
    }
    assert {each for _, each in found} == {version}
    assert {"README.md", "config/Containerfile", "config/manifests/base.yaml"} <= {
        path for path, _ in found
    }
