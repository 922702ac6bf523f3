"""The bundle that `make bundle` makes, once for all workers of a run of the tests."""

import fcntl
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nodes.own_root import PYTHON, need_own_root
from tests.own_machine import on_the_network
from tests.repository import ROOT

UNREACHABLE = ("No matching distribution", "Could not find a version")
LATE_SECONDS = 150.0


@dataclass(frozen=True)
class Bundle:
    """The archive, and what was printed while it was made."""

    archive: Path
    printed: str

    @property
    def name(self) -> str:
        """The directory in the archive."""
        return self.archive.name.removesuffix(".tar.gz")

    def unpack(self, directory: Path) -> Path:
        """Unpacked below a directory; where."""
        subprocess.run(
            ["tar", "--extract", "--file", str(self.archive), "--directory", str(directory)],
            check=True,
        )
        return directory / self.name


def unpacked_wheels(factory: pytest.TempPathFactory) -> Path:
    """The directory of its wheels."""
    return made_bundle(factory).unpack(factory.mktemp("wheels")) / "wheels"


def make_bundle(directory: Path) -> subprocess.CompletedProcess[str]:
    """`make bundle` for the system's Python, into a directory. pip keeps what it fetched
    and built for the next one.
    """
    variables = {
        "PYTHON": str(PYTHON),
        "DIST": str(directory),
        "PIP_RETRIES": "0",
        "PIP_DEFAULT_TIMEOUT": "15",
    }
    return subprocess.run(
        [*on_the_network(), "make", "--no-print-directory", "-C", str(ROOT), "bundle"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
        timeout=LATE_SECONDS,
    )


def made_bundle(factory: pytest.TempPathFactory) -> Bundle:
    """The bundle, made by the first who wants it.

    Skips the test where no package index can be reached.
    """
    need_own_root()
    directory = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    directory /= "bundle"
    directory.mkdir(exist_ok=True)
    said = directory / "said"
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            begun = time.monotonic()
            process = make_bundle(directory)
            said.write_text(
                f"{process.returncode}\n{process.stdout}{process.stderr if process.returncode else ''}"
            )
            print(f"make bundle: {time.monotonic() - begun:.1f} s")
    code, _, printed = said.read_text().partition("\n")
    if code != "0" and any(words in printed for words in UNREACHABLE):
        pytest.skip("the package index cannot be reached from here")
    assert code == "0", printed
    (archive,) = directory.glob("*.tar.gz")
    return Bundle(archive, printed)
