"""A CRI-O for one test."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.real_node.crio_config import write_configuration
from tests.real_node.leftovers import processes_with
from tests.real_node.loopfs import run_tool
from tests.real_node.oci import ImageTar
from tests.real_node.runtime import SANDBOX_IMAGE, ContainerRuntime

SIDE_BY_SIDE = 4  # imports; one takes 0.4 s, of which it waits half


def crio_program() -> Path | None:
    """The CRI-O that the environment names by `CRIO`."""
    named = os.environ.get("CRIO")
    return Path(named).resolve() if named else None


def crio_tools() -> tuple[str, ...]:
    """The programs that it consists of; none if none is named."""
    program = crio_program()
    return (
        ()
        if program is None
        else (str(program), str(program.with_name("pinns")), "conmon", "skopeo")
    )


class Crio(ContainerRuntime):
    """`program`: CRI-O, with pinns beside it.

    `images`: an image store of its own, on another filesystem.
    """

    name = "crio"

    def __init__(
        self,
        root: Path,
        program: Path,
        images: Path | None = None,
        sandbox_image: str = SANDBOX_IMAGE,
        ready_seconds: float = 30.0,
    ) -> None:
        # a kubelet takes a runtime for a CRI-O only if the path of its socket ends like this
        super().__init__(root, "run/crio/crio.sock", sandbox_image, ready_seconds)
        self.images = images
        self._crio = program

    def age_stamp(self, image_id: str) -> Path:
        """The directory of the image's manifest and configuration."""
        return (self.images or self.root) / "overlay-images" / image_id

    def speaks_plainly_to(self, registry: str) -> None:
        """Its configuration says so of the whole loopback."""

    def monitors(self) -> list[int]:
        """Its conmons, one for each container."""
        return processes_with("-r", self.run_directory / "runc")

    def _configure(self) -> None:
        write_configuration(
            self.run_directory, self.socket, self.root, self.images, self.sandbox_image, self._crio
        )

    def _command(self) -> list[str]:
        run = self.run_directory
        return [
            str(self._crio), "--config", str(run / "crio.conf"), "--config-dir", "",
            "--registries-conf", str(run / "registries.conf"), "--registries-conf-dir", str(run / "registries"),
        ]  # fmt: skip

    def _bring_in(self, tars: Sequence[ImageTar]) -> None:
        """By one skopeo for each image, several at a time; CRI-O sees what is in its storage."""
        (path,) = {tar.path for tar in tars}
        with (
            tempfile.TemporaryDirectory(dir=self.run_directory) as layout,
            ThreadPoolExecutor(SIDE_BY_SIDE) as pool,
        ):
            with tarfile.open(path) as archive:
                of_docker = "manifest.json" in archive.getnames()
                if not of_docker:
                    archive.extractall(layout, filter="data")  # once, not by each skopeo
            source = f"docker-archive:{path}" if of_docker else f"oci:{layout}"
            for each in [pool.submit(self._copy, source, tar.reference) for tar in tars]:
                each.result()

    def _copy(self, source: str, reference: str) -> None:
        store = f"[overlay@{self.images or self.root}+{self.run_directory}/containers]"
        run_tool(
            "env",
            # skopeo keeps a cache of what it has seen in /var/lib/containers unless it
            # takes itself for rootless
            f"_CONTAINERS_ROOTLESS_UID={os.getuid() + 1}",
            f"XDG_DATA_HOME={self.run_directory}",
            "skopeo", "--policy", self.run_directory / "policy.json", "--tmpdir", self.run_directory / "tmp",
            "copy", "--quiet", f"{source}:{reference}", f"containers-storage:{store}{reference}",
        )  # fmt: skip
