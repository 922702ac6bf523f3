"""Whether others than root could change the code of a plugin: it runs as reclaimd does, so its files have to be as safe
as the configuration.

Looked at are the files that the distribution has installed, and those that the import of its module loads, which may be
others (an editable installation, another module of that name in front). Nothing is imported for that. Modules of other
distributions that the plugin imports are not looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution

from reclaim.trust import directory_refusal, file_refusal


def refusal(distribution: Distribution, module: str) -> str | None:
    """The first file or directory that others may write, and why, as a clause; None: only trusted users may.

    A file that is not there is none. Raises OSError for one that cannot be examined.
    """
    for path in dict.fromkeys((*_installed(distribution), *_loaded(module))):
        try:
            status = os.stat(path)
            refused = directory_refusal(path) if os.path.isdir(path) else file_refusal(path, status)
        except FileNotFoundError:
            continue
        if refused is not None:
            return f"{path} is not safe: {refused}"
    return None


def _installed(distribution: Distribution) -> Iterator[str]:
    for file in distribution.files or ():
        yield os.path.normpath(str(distribution.locate_file(file)))


def _loaded(module: str) -> Iterator[str]:
    """The files and directories from which the module and the packages above it are loaded."""
    for spec in _specs(module):
        if spec.has_location and spec.origin is not None:
            yield spec.origin
            if spec.cached is not None:
                yield os.path.dirname(spec.cached)
                yield spec.cached
        for directory in spec.submodule_search_locations or ():
            yield directory
            yield os.path.dirname(directory)


def _specs(module: str) -> Iterator[ModuleSpec]:
    name, search = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = _find(name, search)
        if spec is None:
            return
        yield spec
        search = spec.submodule_search_locations
        if search is None:
            return


def _find(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    """Where the import system would find the module; unlike `importlib.util.find_spec` it imports no package above."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, search)
        if spec is not None:
            return spec
    return None
