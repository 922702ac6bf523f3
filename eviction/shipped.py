"""The files of `config/` and `docs/`, which are data and no packages: a wheel carries them beside
the code.
"""

from importlib import resources
from pathlib import Path


def shipped(name: str, tree: str = "config") -> Path:
    """A file or directory of `config/`, or of another tree, by its path in it."""
    packaged = Path(str(resources.files("eviction"))) / tree  # in an installed package
    return (packaged if packaged.is_dir() else Path(__file__).parents[1] / tree) / name
