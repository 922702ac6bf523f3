"""Whether the extra `drill` is installed: the server of the embedded runtime needs grpcio, nothing else does."""

from __future__ import annotations

from importlib.util import find_spec

_LIBRARY = "grpc"


def missing_extra() -> str | None:
    """The sentence that says what is missing and how to install it; None where it is there. Imports nothing of it."""
    try:
        found = find_spec(_LIBRARY) is not None
    except ImportError:
        found = False
    if found:
        return None
    return "the embedded runtime needs grpcio, which is not installed: pip install 'reclaimd[drill]'"
