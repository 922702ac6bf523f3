"""An embedded server in whose calls a test can do something: change the node in the
middle of a pass, or refuse.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from eviction.drill.runtime import Method
from tests.nodes.full_server import FullServer


def id_in(request: Any) -> str:
    """The id of the object that a request is about."""
    fields = ("image", "container_id", "pod_sandbox_id")
    found = next((getattr(request, name) for name in fields if hasattr(request, name)), "")
    return str(getattr(found, "image", found))


class InterruptingServer(FullServer):
    """Calls `before` with the method and the id that a call is about. An EmbeddedNodeError that it
    raises is the answer: UNKNOWN."""

    before: Callable[[str, str], object] = staticmethod(lambda *_: None)

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        def function(request: Any) -> Any:
            self.before(method.name, id_in(request))
            return method.function(request)

        return super()._handler(method._replace(function=function))


class Once:
    """A `before` that does something in the first call of this method about this object."""

    def __init__(self, method: str, object_id: str, do: Callable[[], object]) -> None:
        self._wanted: tuple[str, str] | None = (method, object_id)
        self._do = do

    def __call__(self, method: str, object_id: str) -> None:
        if (method, object_id) == self._wanted:
            self._wanted = None
            self._do()


class BetweenReadings:
    """A `before` that does something right before the nth call (from 1 on) in which something is
    asked, or in several of them. `asked`: those calls so far."""

    def __init__(self, steps: Mapping[int, Callable[[], object]]) -> None:
        self._steps = dict(steps)
        self._lock = threading.Lock()
        self.asked = 0

    def __call__(self, method: str, object_id: str) -> None:
        if method.startswith("List") or method.endswith(("Status", "Info", "Version")):
            with self._lock:
                self.asked += 1
                step = self._steps.pop(self.asked, lambda: None)
            step()
