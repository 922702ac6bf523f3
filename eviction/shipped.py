"""The files of `config/`, which are data and not a package: a wheel carries
them beside the code.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def shipped(name: str) -> Path:
    """A file or directory of `config/`, by its path in it."""
    packaged = Path(str(resources.files("eviction"))) / "config"  # in an installed package
    return (packaged if packaged.is_dir() else Path(__file__).parents[1] / "config") / name
