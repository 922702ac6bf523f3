"""Directory trees to remove, and a canary beside them that must not change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reclaim.pod_logs.directories import OpenBeneath, TreeRemoval, open_beneath, remove_tree


def plant(directory: Path, *paths: str) -> None:
    """Makes files (for a path that ends in `/`: directories) with the directories above them."""
    for path in paths:
        whole = directory / path
        (whole if path.endswith("/") else whole.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            whole.write_text(path)


def contents(directory: Path) -> dict[str, str | None]:
    """Everything below a directory: files with their content, links with their
    target, directories with None.
    """
    found: dict[str, str | None] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        found[name] = (
            str(path.readlink())
            if path.is_symlink()
            else path.read_text()
            if path.is_file()
            else None
        )
    return found


class Canary:
    """A directory with files in it; `unharmed` while nothing has changed in it."""

    def __init__(self, directory: Path):
        self.path = directory
        plant(directory, "file", "directory/file", "directory/below/file", "empty/")
        self._made = contents(directory)

    @property
    def unharmed(self) -> bool:
        """Whether everything is there with its content."""
        return contents(self.path) == self._made


@contextmanager
def opened(directory: Path | str) -> Iterator[int]:
    """The descriptor of a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def removed(
    directory: Path | str, name: str | bytes, how: OpenBeneath = open_beneath
) -> TreeRemoval:
    """The result of `remove_tree` for an entry of a directory."""
    with opened(directory) as descriptor:
        return remove_tree(descriptor, os.fsencode(name), open_directory=how)
