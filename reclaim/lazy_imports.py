"""Imports X without Y, where X brings Y along and nobody here uses it: Y is loaded should anybody ever touch it.

For libraries that import at their start what only some of their users need. While they are imported for the first
time, the modules named are handed to the standard library's lazy loader: they are there, and empty until something is
asked of them. What was imported before stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Lazily:
    """Finds the modules named as ever, and has them loaded at the first use."""

    def __init__(self, names: tuple[str, ...]):
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """None for every other module: the next finder is asked."""
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def lazily(*names: str) -> Iterator[None]:
    """Within it these modules, if they are imported for the first time, are not loaded before they are used."""
    finder = _Lazily(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
