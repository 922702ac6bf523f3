"""The Containerfile builds, what it makes is small, and relieves a node under the restrictions of the DaemonSet.

Built with Debian's buildah on a base made here: empty directories, with this machine's /usr and /etc mounted over them,
so that Python is there and nothing has to be pulled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.repository import ROOT

LARGEST_MIB = 60
MOST_INODES = 1500  # pip and byte code would be three times as many
MOUNTS = ("--volume", "/usr:/usr:ro", "--volume", "/etc:/etc:ro")
IMAGE, BASE = "localhost/reclaimd:test", "localhost/base:test"


class Buildah:
    """Debian's buildah with a store of its own."""

    def __init__(self, directory: Path):
        self._store = [
            "--root",
            str(directory / "store"),
            "--runroot",
            str(directory / "run"),
            "--storage-driver",
            "vfs",
        ]

    def __call__(self, *arguments: str) -> str:
        """Runs a command and returns what it printed. Fails with what it said."""
        process = self.run(*arguments)
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command."""
        command = ["buildah", *self._store, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=150, cwd=ROOT)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """A buildah that has built the image."""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("needs root and buildah (Debian package buildah)")
    if not Path("/usr/bin/python3").exists() or not Path("/usr/lib/python3/dist-packages/pip").exists():
        pytest.skip("needs Debian's own Python with pip (package python3-pip) for the base")
    directory = tmp_path_factory.mktemp("buildah")
    made = Buildah(directory)
    root = directory / "base"
    for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "root", "run", "var/tmp", "opt"):
        (root / name).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            (root / link).symlink_to(f"usr/{link}")
    base = made("from", "scratch")
    made("copy", "--quiet", base, str(root), "/")
    made("commit", "--quiet", base, BASE)
    options = ("--isolation", "chroot", "--network", "host", "--pull-never", "--build-arg", f"BASE={BASE}", *MOUNTS)
    built = made.run("bud", *options, "--file", "config/Containerfile", "--tag", IMAGE, ".")
    if "No matching distribution" in built.stdout + built.stderr:
        pytest.skip("the package index cannot be reached from a container here")
    assert built.returncode == 0, built.stdout + built.stderr
    yield made
    shutil.rmtree(directory)


def test_the_image_is_small(buildah: Buildah) -> None:
    """Beside Python itself: at most 60 MiB in 1500 files, no pip, no byte code, and no grpcio."""
    container = buildah("from", "--pull-never", IMAGE)
    installed = Path(buildah("mount", container), "opt", "reclaimd")
    files = [path for path in installed.rglob("*") if not path.is_symlink()]
    assert len(files) <= MOST_INODES
    assert sum(path.stat().st_blocks * 512 for path in files) <= LARGEST_MIB * MIB
    assert not [path for path in files if path.suffix == ".pyc" or path.name in ("pip", "grpc")]
    buildah("rm", container)


def test_the_image_relieves_a_node_without_any_capability(buildah: Buildah, small_node: SmallNode) -> None:
    """No capability, no new privileges, the node's directories and the socket mounted: old images go, and no file is
    written into the image."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB)
    directory = str(Path(file).parent)
    container = buildah("from", "--pull-never", IMAGE)
    bare = ("/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    program = ("/opt/reclaimd/bin/reclaimd", "reclaim", "--config", file, "-o", "json")
    options = ("--isolation", "chroot", "--network", "host", *MOUNTS, "--volume", f"{directory}:{directory}")
    process = buildah.run("run", *options, container, "--", *bare, *program)
    assert process.returncode == 0, process.stdout + process.stderr
    assert '"satisfied"' in process.stdout
    assert small_node.removed("image")
    assert not list(Path(buildah("mount", container), "opt", "reclaimd").rglob("*.pyc"))
    buildah("rm", container)
