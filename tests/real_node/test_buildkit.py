"""A real BuildKit beside containerd, on the same ext4: the shipped example prunes its cache under
pressure before an image goes, and the build that runs goes on.

`BUILDKITD=/path/buildkitd`, with buildctl beside it; no distribution has them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nodes.real_node import GIB
from tests.real_node.conftest import NodeFactory
from tests.real_node.fill import fill_bytes
from tests.real_node.steps import file_of
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd
from tests.repository import ROOT

MIB = 1 << 20
LAYERS, LAYER_BYTES = 8, 128 * MIB  # a cache of 1 GiB
EXAMPLE = ROOT / "config" / "examples" / "buildkit" / "prune-buildkit.sh"
LONG_BUILD = 'COPY {copied} /copied\nRUN ["/bin/busybox", "sleep", "20"]\n'
BUILDKITD = os.environ.get("BUILDKITD") or shutil.which("buildkitd") or ""

pytestmark = pytest.mark.skipif(
    not BUILDKITD, reason="no real BuildKit can be started here: no buildkitd (BUILDKITD=)"
)


class BuildKit:
    """A client of a daemon that runs."""

    def __init__(self, address: str, context: Path):
        self.address = address
        self._context = context
        shutil.copy("/bin/busybox", context)

    def _command(self, steps: str) -> list[str]:
        dockerfile = f"FROM scratch\nCOPY busybox /bin/busybox\n{steps}"
        (self._context / "Dockerfile").write_text(dockerfile)
        local = [f"--local={name}={self._context}" for name in ("context", "dockerfile")]
        command = [buildctl(), "--addr", self.address, "build", "--frontend", "dockerfile.v0"]
        return [*command, *local]

    def build(self, steps: str) -> None:
        """A build, to its end."""
        subprocess.run(self._command(steps), check=True, capture_output=True, timeout=120.0)

    def begin(self, steps: str) -> subprocess.Popen[bytes]:
        """A build that goes on."""
        return subprocess.Popen(
            self._command(steps), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def fill_cache(self) -> None:
        """Layers that no build needs any more, each with content of its own."""
        for number in range(LAYERS):
            (self._context / str(number)).write_bytes(os.urandom(LAYER_BYTES))
            self.build(f"COPY {number} /data\n")
            (self._context / str(number)).unlink()

    @property
    def cached_bytes(self) -> int:
        """What its cache takes, as it says itself."""
        sizes = "{{range .}}{{.Size}} {{end}}"
        command = [buildctl(), "--addr", self.address, "du", "--format", sizes]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60.0)
        return sum(map(int, done.stdout.split()))


def buildctl() -> str:
    """Beside the daemon."""
    return str(Path(BUILDKITD).with_name("buildctl"))


@contextmanager
def buildkit(root: Path, directory: Path) -> Iterator[BuildKit]:
    """A daemon with the cache on the disk under test."""
    socket = directory / "buildkitd.sock"
    (directory / "context").mkdir()
    command = [BUILDKITD, "--root", str(root), "--addr", f"unix://{socket}"]
    command += ["--oci-worker-snapshotter=overlayfs", "--oci-worker-net=host"]
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        assert came_true(socket.exists), (directory / "log").read_text()
        yield BuildKit(f"unix://{socket}", directory / "context")
    finally:
        daemon.terminate()
        daemon.wait(30.0)


def test_buildkits_cache_makes_room_and_a_build_goes_on(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """A cache of 1 GiB and a fill of 100 MiB/s: what was not used for longest goes, as much as is
    missing and not all; `plan` names it; a build that runs ends well."""
    node = make_node(3 * GIB)
    images = node.cri.image_ids()
    program = tmp_path / "prune-buildkit.sh"
    shutil.copy(EXAMPLE, program)
    text = program.read_text().replace("set -eu", f"set -eu\nPATH={Path(BUILDKITD).parent}:$PATH")
    program.write_text(text)  # a program's PATH is reclaimd's own
    with buildkit(node.mountpoint / "buildkit", tmp_path) as builder:
        builder.fill_cache()
        full = builder.cached_bytes
        assert full >= LAYERS * LAYER_BYTES
        mark = node.filesystem.available_bytes() - 200 * MIB
        configuration = file_of(
            node,
            controlSocket=str(tmp_path / "control.sock"),
            evictionHard={"imagefs.available": str(mark)},
            reclaimFunctions=[
                {
                    "name": "prune-buildkit",
                    "exec": [str(program), builder.address, "0"],
                    "frees": "imagefs",
                    "timeout": "1m",
                }
            ],
            reclaimTable={"imagefs.available": ["prune-buildkit", "DeleteUnusedImages"]},
        )
        asked = ("--config", configuration, "--signal", "imagefs.available", "-o", "json")
        listed = [each["name"] for each in answer(reclaimd("plan", *asked))["removals"]]
        assert len(listed) >= LAYERS
        running = builder.begin(LONG_BUILD.format(copied="busybox"))
        with Daemon("--config", configuration) as daemon:
            fill = fill_bytes(
                node.mountpoint / "fill", MIB, rate_bytes_per_second=100 * MIB, most_bytes=GIB // 2
            )
            assert fill.wait(60.0) >= GIB // 2
            assert came_true(lambda: node.filesystem.available_bytes() >= mark)
            assert came_true(lambda: bool(daemon.passes))
            assert daemon.stop() == 0
        left = builder.cached_bytes
        _, said = running.communicate(timeout=60.0)
    assert running.returncode == 0, said.decode()
    assert node.cri.image_ids() == images, "no image has gone"
    assert 0 < left < full - 200 * MIB
