"""What is in the place of a file of ours and must be left alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


def plant_foreign(path: Path, kind: str, make: Callable[[Path], object]) -> None:
    """A directory, a fifo or a symlink; or what `make` makes there, with a second name, of another
    user, or writable by others; else as it is made. Skips the test where that needs root."""
    match kind:
        case "a directory":
            path.mkdir()
        case "a fifo":
            os.mkfifo(path, 0o600)
        case "a symlink":
            make(path.with_name("target"))
            path.symlink_to("target")
        case "a dangling symlink":
            path.symlink_to("target")
        case _:
            make(path)
    if kind == "a second name":
        path.with_name("second").hardlink_to(path)
    elif kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 12345, -1)
    elif kind == "writable by others":
        path.chmod(0o666)
