"""Directory trees to remove, a canary beside them that must not change, and something that happens
right before each call."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
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
    return {
        str(path.relative_to(directory)): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else None
        for path in sorted(directory.rglob("*"))
    }


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


CALLS = frozenset(
    {"open", "os.link", "os.listdir", "os.remove", "os.rename", "os.rmdir", "os.scandir"}
)
"""What Python tells its audit hooks right before it asks the kernel."""
_happening: list[tuple[int, Callable[[], object]]] = []


def _before_a_call(event: str, arguments: tuple[object, ...]) -> None:
    if not _happening or event not in CALLS or str(arguments[0]).startswith("/proc"):
        return
    thread, do = _happening[0]
    if thread == threading.get_ident():
        _happening.clear()  # its own calls are none
        try:
            do()
        finally:
            _happening.append((thread, do))


@cache
def _hook() -> None:
    sys.addaudithook(_before_a_call)


@contextmanager
def before_each_call(do: Callable[[], object]) -> Iterator[None]:
    """Does something right before each call of this thread for a file, so that nothing but this is
    between a look and the call."""
    _hook()
    _happening.append((threading.get_ident(), do))
    try:
        yield
    finally:
        _happening.clear()
