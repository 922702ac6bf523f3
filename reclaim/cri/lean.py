"""grpcio without its other half: `import grpc` also brings `grpc.aio` and with it asyncio, which nothing here uses.

Two mebibytes of a daemon, and a tenth of the time in which a command starts that asks the runtime. So while grpcio is
imported the two are handed to the standard library's lazy loader: they are there, and are loaded should anybody ever
touch them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

LAZILY = ("asyncio", "grpc.aio")


class _Lazily:
    """Finds these modules as ever, and loads them at the first use."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """None for every other module: the next finder is asked."""
        spec = PathFinder.find_spec(name, path, target) if name in LAZILY else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def without_asyncio() -> Iterator[None]:
    """Within it, what is imported for the first time does not bring asyncio along."""
    sys.meta_path.insert(0, _Lazily)
    try:
        yield
    finally:
        sys.meta_path.remove(_Lazily)
