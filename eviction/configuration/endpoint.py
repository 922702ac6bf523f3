"""Which sockets the container runtime is asked at: the configured ones, or a usual one that exists."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from eviction.configuration.effective import USUAL_ENDPOINTS, Configuration
from reclaim.execution.readings import in_time


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The runtime's socket and the image service's. `tried`: the usual places, where none is configured; `found`: a
    socket is at one of them."""

    runtime: str
    image: str
    found: bool = False
    tried: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """How it was chosen, as a sentence; empty where it is configured."""
        if not self.tried:
            return ""
        if self.found:
            return f"no endpoint configured; using {self.runtime}"
        return f"no endpoint configured, and no socket found; tried {', '.join(self.tried)}"


def choose_endpoint(configuration: Configuration, usual: Sequence[str] = USUAL_ENDPOINTS) -> Endpoint:
    """The configured endpoint, else the first usual socket that exists, else containerd's."""
    if configuration.runtime_endpoint:
        return Endpoint(configuration.runtime_endpoint, configuration.image_endpoint)
    existing = next((endpoint for endpoint in usual if _is_socket(endpoint.removeprefix("unix://"))), None)
    return Endpoint(existing or usual[0], configuration.image_endpoint, existing is not None, tuple(usual))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(in_time(lambda: os.stat(path)).st_mode)
    except OSError:
        return False
