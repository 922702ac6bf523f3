"""The source distribution holds the whole repository, so that `make run`
and `make test` work in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.distributions import build
from tests.repository import ROOT

pytestmark = pytest.mark.house(".gitignore", "Makefile", "pyproject.toml")

ADDED = {"PKG-INFO"}  # by the build, from pyproject.toml


def run(*command: str, cwd: Path) -> str:
    """What a program prints."""
    return subprocess.run(
        command, cwd=cwd, check=True, capture_output=True, text=True, timeout=60.0
    ).stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a source distribution of this tree unpacks to; some 6 MB."""
    directory = tmp_path_factory.mktemp("sdist")
    made = build("sdist", directory)
    with tarfile.open(made) as archive:
        archive.extractall(directory, filter="data")
    return directory / made.name.removesuffix(".tar.gz")


def test_it_holds_every_file_of_the_repository(unpacked: Path) -> None:
    """Each file that git knows, and nothing else but what the build adds."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone, so nothing tells which files belong to it")
    tracked = set(run("git", "ls-files", "-z", cwd=ROOT).rstrip("\0").split("\0"))
    here = {name for name in tracked if (ROOT / name).is_file()}
    untracked = set(
        run("git", "ls-files", "-z", "--others", "--exclude-standard", cwd=ROOT)
        .rstrip("\0")
        .split("\0")
    )
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert held - untracked == here | ADDED
    assert {name for name in here if os.access(ROOT / name, os.X_OK)} == {
        name for name in here if os.access(unpacked / name, os.X_OK)
    }


def test_the_program_runs_from_it(unpacked: Path) -> None:
    """Its packages are imported from there, and it finds its scenarios."""
    program = (
        "import eviction, reclaim, signals; print(eviction.__file__, reclaim.__file__,"
        " signals.__file__)"
    )
    imported = run(sys.executable, "-c", program, cwd=unpacked)
    assert [Path(path).parent.parent for path in imported.split()] == [unpacked] * 3
    listed = run(sys.executable, "-m", "eviction", "drill", "--list", cwd=unpacked)
    assert len(listed.splitlines()) == len(list((ROOT / "config" / "scenarios").glob("*.yaml")))


@pytest.mark.parametrize("target", ["run", "test"])
def test_make_finds_what_it_starts(unpacked: Path, target: str) -> None:
    """Every script of the recipes is there and can be run."""
    recipe = run("make", "--no-print-directory", "-n", target, cwd=unpacked)
    scripts = {
        word
        for word in recipe.replace("$(", " ").replace(")", " ").split()
        if word.startswith(".ci/")
    }
    assert ".ci/venv" in scripts
    assert all(os.access(unpacked / script.rstrip(";"), os.X_OK) for script in scripts)
