"""Debian's buildah with a store of its own, and the image of config/Containerfile,
built on a base made here.

The base is a directory; while the image is built this machine's /usr and /etc are mounted over it,
so that Python with pip is there and nothing has to be pulled.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repository import ROOT

MOUNTS = ("--volume", "/usr:/usr:ro", "--volume", "/etc:/etc:ro")
IMAGE, BASE = "localhost/reclaimd:test", "localhost/base:test"
DIRECTORIES = ["usr", "etc", "tmp", "proc", "sys", "dev", "root", "run", "var/tmp", "opt"]
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Buildah:
    """Debian's buildah with its store in a directory."""

    def __init__(self, directory: Path):
        places = ("--root", str(directory / "store"), "--runroot", str(directory / "run"))
        self._command = ["buildah", *places, "--storage-driver", "vfs"]

    def __call__(self, *arguments: str) -> str:
        """Runs a command and returns what it printed. Fails with what it said."""
        process = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=150, cwd=ROOT
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()


def skip_without_buildah() -> None:
    """Skips the test where the image cannot be built."""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("needs root and buildah (Debian package buildah)")
    if not all(map(os.path.exists, ("/usr/bin/python3", "/usr/lib/python3/dist-packages/pip"))):
        pytest.skip("needs Debian's own Python with pip (package python3-pip) for the base")


def make_root(root: Path) -> None:
    """The empty directories of a root, with the links that this machine has beside /usr."""
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            (root / "usr" / link).mkdir()
            (root / link).symlink_to(f"usr/{link}")


def build(buildah: Buildah, root: Path, wheels: Path, tag: str = IMAGE) -> None:
    """Builds the image of config/Containerfile of wheels alone, without an index, on a
    base of what is in `root`.
    """
    base = buildah("from", "scratch")
    buildah("copy", "--quiet", base, str(root), "/")
    buildah("config", "--env", f"PATH={SEARCH_PATH}", base)
    buildah("commit", "--quiet", "--timestamp", "0", base, BASE)
    buildah("rm", base)
    build_again(buildah, wheels, tag)


def build_again(buildah: Buildah, wheels: Path, tag: str) -> None:
    """Builds it anew on the same base, with nothing kept of an earlier build."""
    isolated = ("--isolation", "chroot", "--network", "host", "--pull-never", "--no-cache")
    arguments = ("--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1", "--tag", tag)
    file = ("--timestamp", "0", "--file", "config/Containerfile")
    buildah("bud", *isolated, *MOUNTS, *arguments, *file, str(wheels))
