"""An embedded runtime behind its socket, with one client, a sandbox image and one
application image; no small disk.
"""

from pathlib import Path
from typing import Any

from eviction.drill.runtime import LayerSpec
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import FullServer
from tests.sockets.cri_calls import CriCalls

BASE = LayerSpec("base", 64 << 10, files=3)
APP = LayerSpec("app", 32 << 10, files=300)
TOOL = LayerSpec("tool", 16 << 10)
NAME = "registry.example/team/app:1"


class BareRuntime:
    """A runtime with its socket, a client, the sandbox image and one application image."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.root = directory / "images"
        self.runtime = FullRuntime(str(self.root), **options)
        self.pause_id = self.runtime.add_image(
            [self.runtime.sandbox_image], [LayerSpec("pause", 4096)]
        )
        self.app_id = self.runtime.add_image(
            [NAME, "registry.example/team/app:stable"], [BASE, APP]
        )
        self.server = FullServer(self.runtime, str(directory / "cri.sock"))
        self.server.start()
        self.calls = CriCalls(self.server.target)
        self.call = self.calls.call
        self.error = self.calls.error

    def close(self) -> None:
        """Close the client, and stop the server."""
        self.calls.__exit__(None, None, None)
        self.server.stop()

    def containers(self, **wanted: Any) -> list[Any]:
        """The answer of ListContainers under a filter."""
        return list(self.call("ListContainers", filter=wanted).containers)

    def images(self) -> list[Any]:
        """The answer of ListImages."""
        return list(self.call("ListImages").images)

    def has_layer(self, layer: LayerSpec) -> bool:
        """Whether the layer's directory is there."""
        return (self.root / "layers" / layer.digits).exists()

    def writable(self, container_id: str) -> Path:
        """The container's writable layer, there or not."""
        return self.root / "containers" / container_id
