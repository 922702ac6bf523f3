"""Loads a plugin: one entry point of one distribution, both named in the configuration, and nothing else.

No other distribution is searched, and of the entry points of the named one only the named one is imported: what is
merely installed never runs. A plugin runs as reclaimd does, so its files have to be as safe from others than root as
the configuration. Looked at are the files that the distribution has installed, and those that the import of its module
loads, which may be others (an editable installation, another module of that name in front). Nothing is imported for
that. Modules of other distributions that the plugin imports are not looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution
from typing import Any

from reclaim.plugins.function import PluginFailed, kinds_of, said, text_of
from reclaim.plugins.protocol import ENTRY_POINT_GROUP, ReclaimPlugin
from reclaim.trust import directory_refusal, file_refusal

METHODS = ("plan", "check", "remove", "present")


def load(entry_name: str, distribution_name: str, options: Mapping[str, Any]) -> ReclaimPlugin:
    """The plugin of this entry point of this distribution, constructed with its options. Runs its code.

    Raises PluginFailed: not installed, no such entry point, not safe from others, does not import, refuses its
    options, or is not a `ReclaimPlugin`.
    """
    title = f"the reclaim function {entry_name!r} of the distribution {distribution_name!r}"
    entry = _entry(entry_name, distribution_name, title)
    try:
        factory = entry.load()
    except (Exception, SystemExit) as error:
        raise PluginFailed(f"{title} cannot be imported: {said(error)}") from error
    try:
        plugin: ReclaimPlugin = factory(options)
    except ValueError as error:
        raise PluginFailed(f"{title} refuses its options: {text_of(error)}") from error
    except (Exception, SystemExit) as error:
        raise PluginFailed(f"{title} cannot be constructed from its options: {said(error)}") from error
    try:
        why = _why_it_is_none(plugin)
    except (Exception, SystemExit) as error:  # noqa: BLE001 # a property of the plugin may raise anything
        why = said(error)
    if why is not None:
        raise PluginFailed(f"{title} is not one: {why}")
    return plugin


def _entry(name: str, distribution_name: str, title: str) -> EntryPoint:
    """The entry point of this name, if its files are safe. Imports nothing. Raises PluginFailed."""
    try:
        installed = distribution(distribution_name)
    except (PackageNotFoundError, ValueError) as error:  # ValueError: no name at all
        raise PluginFailed(f"the distribution {distribution_name!r} is not installed for {sys.executable}") from error
    try:
        entries = {entry.name: entry for entry in installed.entry_points.select(group=ENTRY_POINT_GROUP)}
        if name not in entries:
            has = ", ".join(map(repr, sorted(entries))) or "none"
            why = f"does not exist: of the entry-point group {ENTRY_POINT_GROUP} it has {has}"
        elif (named := EntryPoint.pattern.match(entries[name].value)) is None:
            why = f"is {entries[name].value!r}; allowed is module:Class"
        elif (refused := _refusal(installed, named["module"])) is not None:
            why = f"is not loaded: {refused}"
        else:
            return entries[name]
    except Exception as error:
        raise PluginFailed(f"{title} cannot be found: {said(error)}") from error
    raise PluginFailed(f"{title} {why}")


def _why_it_is_none(plugin: object) -> str | None:
    """What a plugin lacks, as the end of a sentence; None: nothing."""
    missing = [name for name in METHODS if not callable(getattr(plugin, name, None))]
    if missing:
        return f"it has no method {', '.join(missing)}"
    if not hasattr(plugin, "kinds"):
        return "it has no attribute kinds"
    try:
        kinds_of(plugin.kinds)
    except PluginFailed as error:
        return str(error)
    return None


# ---- whether others could change its code


def _refusal(distribution: Distribution, module: str) -> str | None:
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
