"""An embedded server with more than a drill needs: several faults for one method, and leases of others."""

from __future__ import annotations

from eviction.drill.runtime.runtime import EmbeddedRuntime
from eviction.drill.runtime.server import METHODS, EmbeddedServer, own_methods
from tests.nodes.leases import HeldLeases
from tests.nodes.method_faults import SeveralFaults


class FullServer(EmbeddedServer):
    """Serves a runtime."""

    def __init__(self, runtime: EmbeddedRuntime, socket_path: str) -> None:
        super().__init__(runtime, socket_path)
        self.leases: HeldLeases = HeldLeases(runtime)
        self.methods = (*METHODS, *own_methods(self.leases))
        self.failpoints: SeveralFaults = SeveralFaults(frozenset(method.name for method in self.methods))
