"""A containerd for one test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.real_node.containerd_config import write_configuration
from tests.real_node.leftovers import processes_with, shim_sockets_named_in
from tests.real_node.loopfs import find_tool, run_tool
from tests.real_node.oci import ImageTar
from tests.real_node.runtime import SANDBOX_IMAGE, ContainerRuntime

NAMESPACE = "k8s.io"


class Containerd(ContainerRuntime):
    """It and its ctr and shim are the first of their names on the search
    path (`loopfs.search_path`).
    """

    name = "containerd"

    def __init__(
        self, root: Path, sandbox_image: str = SANDBOX_IMAGE, ready_seconds: float = 30.0
    ) -> None:
        super().__init__(root, "c.sock", sandbox_image, ready_seconds)
        self._shim_sockets: set[Path] = set()

    def age_stamp(self, image_id: str) -> Path:
        """The file of containerd's content store that an image id names: the
        image's configuration.
        """
        blobs = self.root / "io.containerd.content.v1.content" / "blobs" / "sha256"
        return blobs / image_id.removeprefix("sha256:")

    def monitors(self) -> list[int]:
        """Its shims."""
        return processes_with("-address", self.socket)

    def shim_sockets(self) -> set[Path]:
        """The sockets of this instance's shims."""
        return shim_sockets_named_in(self.run_directory / "state")

    def speaks_plainly_to(self, registry: str) -> None:
        """By a file of its own for this registry, which is read at each pull."""
        hosts = self.run_directory / "hosts" / registry
        hosts.mkdir(parents=True)
        text = (
            f'server = "http://{registry}"\n[host."http://{registry}"]\n  capabilities = ["pull",'
            ' "resolve"]\n'
        )
        (hosts / "hosts.toml").write_text(text)

    def stop(self) -> None:
        """Also the sockets of the shims, which are outside."""
        self._shim_sockets |= self.shim_sockets()
        super().stop()
        for path in self._shim_sockets:
            path.unlink(missing_ok=True)

    def _configure(self) -> None:
        write_configuration(self.run_directory, self.root, self.sandbox_image)

    def _command(self) -> list[str]:
        return [
            find_tool("containerd") or "containerd",
            "--config",
            str(self.run_directory / "config.toml"),
        ]

    def _bring_in(self, tars: Sequence[ImageTar]) -> None:
        """By one import; CRI learns of them by event."""
        (path,) = {tar.path for tar in tars}
        run_tool(
            "ctr", "--address", self.socket, "--namespace", NAMESPACE, "images", "import", path
        )
