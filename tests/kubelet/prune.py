"""`crictl rmi --prune` by a timer, as many nodes have it: a responder that looks at no disk.

Where `CRICTL` or PATH names a crictl, that one runs. Elsewhere this module stands in for it, as a
program: `python -m tests.kubelet.prune SOCKET` makes the same calls, with the same time limit, as
`removeImageCommand` of cri-tools 1.36 (`cmd/crictl/image.go`): it lists images and containers, asks
for the image of each container, and removes every other image that is not pinned, all at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from tests.background import Background
from tests.real_node.cri_client import CriClient
from tests.real_node.loopfs import find_tool
from tests.repository import ROOT

PERIOD_SECONDS = 60.0
CALL_SECONDS = 2.0  # crictl's default for each call


class PruneTimer(Background):
    """Prunes the images of the runtime at `socket` after `first_seconds`, then once a
    minute, until the `with` block ends. `events`: when a prune began and ended
    (`time.monotonic()`), and what it said."""

    def __init__(self, socket: Path, first_seconds: float) -> None:
        super().__init__("prune timer")
        self.events: list[tuple[float, str]] = []
        self._command = _command(socket)
        self._first_seconds = first_seconds

    def _run(self) -> None:
        pause = self._first_seconds
        while not self._over.wait(pause):
            began = time.monotonic()
            self.events.append((began, "prune begins"))
            done = subprocess.run(
                self._command, check=False, capture_output=True, text=True, cwd=ROOT
            )
            ended, removed = time.monotonic(), done.stdout.count("Deleted: ")
            self.events.append(
                (ended, f"prune ends with {done.returncode}: {removed} images removed")
            )
            pause = max(began + PERIOD_SECONDS - ended, 0.0)


def crictl() -> str | None:
    """Where crictl is; None: the stand-in prunes."""
    return find_tool(os.environ.get("CRICTL") or "crictl")


def prune(cri: CriClient) -> list[str]:
    """Removes every image that no container uses, all at once; the
    references of those that are gone.
    """
    images = {image.id: image for image in cri.list_images() if not image.pinned}
    for container in cri.list_containers():
        if (used := cri.image_status(container.image.image)) is not None:
            images.pop(used.id, None)

    def remove(image_id: str) -> list[str]:
        try:
            cri.remove_image(image_id)
        except grpc.RpcError:  # as crictl, which goes on with the others and exits with 0
            return []
        return list(images[image_id].repo_tags) or list(images[image_id].repo_digests)

    with ThreadPoolExecutor(max(len(images), 1)) as pool:
        return [name for names in pool.map(remove, images) for name in names]


def _command(socket: Path) -> list[str]:
    found, endpoint = crictl(), f"unix://{socket}"
    if found is None:
        return [sys.executable, "-m", "tests.kubelet.prune", str(socket)]
    return [found, "--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "rmi", "--prune"]


if __name__ == "__main__":
    client = CriClient(Path(sys.argv[1]), CALL_SECONDS)
    for reference in prune(client):
        print(f"Deleted: {reference}")
    client.close()
