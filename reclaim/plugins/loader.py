"""Loads a plugin: one entry point of one distribution, both named in the configuration, and nothing else.

No other distribution is searched, and of the entry points of the named one only the named one is imported: what is
merely installed never runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from typing import Any

from reclaim.plugins.answers import PluginFailed, kinds_of, said, text_of
from reclaim.plugins.origin import refusal
from reclaim.plugins.protocol import ENTRY_POINT_GROUP, ReclaimPlugin
from reclaim.types import ReclaimError

METHODS = ("plan", "check", "remove", "present")


class PluginUnusable(ReclaimError):
    """A plugin that cannot be loaded. The message is one sentence that names the distribution, and what is allowed."""


def load(entry_name: str, distribution_name: str, options: Mapping[str, Any]) -> ReclaimPlugin:
    """The plugin of this entry point of this distribution, constructed with its options. Runs its code.

    Raises PluginUnusable: not installed, no such entry point, not safe from others, does not import, refuses its
    options, or is not a `ReclaimPlugin`.
    """
    title = f"the reclaim function {entry_name!r} of the distribution {distribution_name!r}"
    entry = _entry(entry_name, distribution_name, title)
    try:
        factory = entry.load()
    except (Exception, SystemExit) as error:
        raise PluginUnusable(f"{title} cannot be imported: {said(error)}") from error
    try:
        plugin: ReclaimPlugin = factory(options)
    except ValueError as error:
        raise PluginUnusable(f"{title} refuses its options: {text_of(error)}") from error
    except (Exception, SystemExit) as error:
        raise PluginUnusable(f"{title} cannot be constructed from its options: {said(error)}") from error
    try:
        why = _why_it_is_none(plugin)
    except (Exception, SystemExit) as error:  # noqa: BLE001 # a property of the plugin may raise anything
        why = said(error)
    if why is not None:
        raise PluginUnusable(f"{title} is not one: {why}")
    return plugin


def _entry(name: str, distribution_name: str, title: str) -> EntryPoint:
    """The entry point of this name, if its files are safe. Imports nothing. Raises PluginUnusable."""
    try:
        installed = distribution(distribution_name)
    except (PackageNotFoundError, ValueError) as error:  # ValueError: no name at all
        raise PluginUnusable(f"the distribution {distribution_name!r} is not installed for {sys.executable}") from error
    try:
        entries = {entry.name: entry for entry in installed.entry_points.select(group=ENTRY_POINT_GROUP)}
        if name not in entries:
            has = ", ".join(map(repr, sorted(entries))) or "none"
            why = f"does not exist: of the entry-point group {ENTRY_POINT_GROUP} it has {has}"
        elif (named := EntryPoint.pattern.match(entries[name].value)) is None:
            why = f"is {entries[name].value!r}; allowed is module:Class"
        elif (refused := refusal(installed, named["module"])) is not None:
            why = f"is not loaded: {refused}"
        else:
            return entries[name]
    except Exception as error:
        raise PluginUnusable(f"{title} cannot be found: {said(error)}") from error
    raise PluginUnusable(f"{title} {why}")


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
