"""Reclaim functions from other distributions: the protocol, the entry in the table, and the loader.

**The protocol.** A plugin plans, checks, removes, and looks whether the object is gone. Everything else is the
engine's: which function runs when, the order of calls, threads, measuring the disk, stopping when it is relieved, dry
runs, the record. A distribution names its class in the entry-point group `reclaimd.reclaim_functions`; the class is
called with the `options` from the configuration. `config/examples/plugin/README.md` explains how to write one.
`ENTRY_POINT_GROUP`, `MOST_OBJECTS`, `Found` and `ReclaimPlugin` are stable: they change only with a major version.

**The entry in the table.** Plugins are called on the assumption that they may do anything: raise, even `SystemExit`,
answer nonsense, or hang. What a plugin raises while planning is its function's error, and the row goes on. What it
raises about one object is that object's outcome. If anything is wrong with one object of a plan, nothing of that plan
is removed: a plugin that is wrong about one may be wrong about others.

**The loader** takes one entry point of one distribution, both named in the configuration, and nothing else. It searches
no other distribution and imports no other entry point: what is merely installed never runs. A plugin runs with
reclaimd's privileges, so its files must be as safe from other users as the configuration. The loader checks the files
that the distribution installed, and those that importing its module would load, which may differ (an editable
installation, another module of that name earlier on the path). It imports nothing to find out. Modules of other
distributions that the plugin imports are not checked.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from reclaim.function import GONE, Ready, ReclaimFunction, Refused, Stage
from reclaim.pod_logs.names import printable_text
from reclaim.trust import directory_refusal, file_refusal
from reclaim.types import Action, Kind, Plan, RemovalFailed, Result, Rule, RuntimeUnavailable, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole

ENTRY_POINT_GROUP: Final = "reclaimd.reclaim_functions"
MOST_OBJECTS: Final = 100_000
"""The most objects in one plan. If there are more, a plan lists those that would go first, and a later plan the
rest."""

MOST_KINDS: Final = 8
MOST_REASONS: Final = 32  # different ones in one plan; they become labels of metrics
LONGEST_ID: Final = 4096  # characters: PATH_MAX
LARGEST: Final = 2**63 - 1
KINDS_ALLOWED: Final = f"a tuple of 1 to {MOST_KINDS} different words, not reclaimd's own"
A_WORD: Final = "a word of at most 32 characters: a-z, 0-9 and _, beginning with a letter"

METHODS: Final = ("plan", "check", "remove", "present")
FRESH_SECONDS = 1.0  # a plugin may have to ask a program of its own; a runtime's status is at most 50 ms old
LONGEST_TEXT = 300  # characters of an error's text
CHANGED = "changed"
"""Why an object is kept that, according to `check`, is no longer the planned one."""

A_REASON = f"one of at most {MOST_REASONS} reasons, each {A_WORD}"

_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_TEXT = f"text of at most {LONGEST_ID} characters that can be the name of a file"
_SECONDS = "None, or a number of seconds from 0 to 2^63 - 1"

Answer = TypeVar("Answer")


class PluginFailed(RemovalFailed):
    """A plugin cannot be loaded, raised an exception, or gave an answer that is not allowed. The message says which."""


# ---- the protocol


def is_word(value: object) -> bool:
    """Whether it can be a kind or a reason; these become labels of metrics."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Found:
    """One object of a plan. Raises ValueError for a value that is not allowed.

    `id`: identifies it, unique within the plan, at most 4096 characters. `remove`: whether it may go. `reason`: why, in
    one word; a plan has at most 32 different ones. `size_bytes`: what its removal promises to free; None: not known.
    `name`: for display; empty: the id. `kind`: one of the plugin's `kinds`; empty: the first. `age_seconds`: if the
    decision depended on its age. `eligible_in_seconds`: for a kept object, when time alone will let it go. `data`: the
    plugin's own; it is returned with the object, and nobody else looks at it.
    """

    id: str
    remove: bool
    reason: str
    size_bytes: int | None = None
    name: str = ""
    kind: str = ""
    age_seconds: float | None = None
    eligible_in_seconds: float | None = None
    data: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not _is_text(self.id) or not self.id:
            raise ValueError(f"the id of an object is {shown(self.id)}; allowed is {_TEXT}, not empty")
        for name, value, allowed, what in (
            ("name", self.name, _is_text(self.name), _TEXT),
            ("kind", self.kind, self.kind == "" or is_word(self.kind), A_WORD),
            ("remove", self.remove, isinstance(self.remove, bool), "True or False"),
            ("reason", self.reason, is_word(self.reason), A_WORD),
            ("size_bytes", self.size_bytes, _is(int, self.size_bytes), "None, or an int from 0 to 2^63 - 1"),
            ("age_seconds", self.age_seconds, _is(int | float, self.age_seconds), _SECONDS),
            ("eligible_in_seconds", self.eligible_in_seconds, _is(int | float, self.eligible_in_seconds), _SECONDS),
        ):
            if not allowed:
                raise ValueError(f"{name} of object {shown(self.id)} is {shown(value)}; allowed is {what}")


class ReclaimPlugin(Protocol):
    """A reclaim function. It is constructed once, with its options, and used until reclaimd exits or reloads.

    The constructor receives the `options` from the configuration as written (strings, integers, booleans, lists and
    mappings; an empty mapping if there are none). It raises ValueError, with a sentence, for options it rejects.

    `plan` is called on one thread at a time; `check`, `remove` and `present` on several at once, for different objects.
    Whatever they raise is reported and ends nothing else. A call that does not return is abandoned, `plan` after a
    minute without any progress, a removal after `removalPatience`; it is never interrupted.
    """

    @property
    def kinds(self) -> Sequence[str]:
        """One to eight words for what it removes, such as `("cache_file",)`; labels of metrics. They never change."""

    def plan(self) -> Iterable[Found]:
        """Every object it knows of, at most `MOST_OBJECTS`, each with its verdict; those that may go, in the order in
        which they go. Removes nothing: commands, dry runs and the daemon call it at any time."""

    def check(self, found: Found, /) -> bool | str:
        """Right before a removal: may the object still go? True: it may. A word: it is kept for that reason. False: it
        is no longer the planned object, or is gone."""

    def remove(self, found: Found, /) -> bool | None:
        """Removes the object, and returns once that is done. False: the object no longer existed. Not called in a dry
        run, nor unless `check` has returned True within the last second."""

    def present(self, found: Found, /) -> bool:
        """Whether the object still exists; asked after every removal, however it ended. A different object that has
        taken its name does not count."""


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_ID:
        return False
    try:
        value.encode("utf-8", "surrogateescape")  # how Python gives the name of a file that is not UTF-8
    except UnicodeEncodeError:
        return False
    return True


def _is(kinds: Any, value: Any) -> bool:
    """Whether it is None, or a number of these types that is not too large."""
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool) and 0 <= value <= LARGEST)


def shown(value: object) -> str:
    """A value for a sentence, cut to a bounded length."""
    if isinstance(value, str | bytes):
        return repr(value[:60])
    if value is None or isinstance(value, int | float):
        return repr(value)[:60]
    return f"of type {type(value).__name__}"


# ---- the entry of the table


def plugin_function(name: str, plugin: ReclaimPlugin, frees: FilesystemRole) -> ReclaimFunction:
    """The entry in the table for a plugin: its configured name, and the filesystem on which it frees space.

    Raises PluginFailed if the plugin's kinds are not allowed.
    """
    kinds = kinds_of(plugin.kinds)
    return ReclaimFunction(name, frees, kinds, lambda context: (PluginStage(name, plugin, kinds, context.clock),))


def kinds_of(kinds: object) -> tuple[str, ...]:
    """The plugin's kinds. Raises PluginFailed unless they are one to eight different words, none of them a kind of the
    kubelet's own functions."""
    words = tuple(kinds) if isinstance(kinds, Sequence) and not isinstance(kinds, str | bytes) else ()
    allowed = all(is_word(one) and one not in list(Kind) for one in words)
    if allowed and 1 <= len(words) == len(set(words)) <= MOST_KINDS:
        return words
    raise PluginFailed(f"its kinds are {kinds!r:.100}; allowed is {KINDS_ALLOWED}, each {A_WORD}")


class PluginStage(Stage):
    """The stage: what a plugin plans, checked and removed by asking the plugin.

    `frees_late`: space is waited for if objects promised no size.
    """

    fresh_seconds = FRESH_SECONDS

    def __init__(self, name: str, plugin: ReclaimPlugin, kinds: Sequence[str], clock: Clock):
        self._name = name
        self._plugin = plugin
        self._kinds = kinds
        self._clock = clock
        self._found: dict[str, Found] = {}
        self._reasons: set[str] = set()

    def plan(self) -> Plan:
        """The plugin's plan. Raises PluginFailed if the plugin raises or its answer is not allowed."""
        plan, self._found = asked(f"{self._name} cannot plan: ", lambda: plan_of(self._plugin.plan(), self._kinds))
        self._reasons = {each.reason for each in self._found.values()}
        self.frees_late = any(verdict.size_bytes is None for verdict in plan.remove)
        return plan

    def check(self, verdict: Verdict) -> Ready | Refused:
        """The plugin's answer. If the plugin raises or its answer is not allowed, the removal fails without being
        sent."""
        checked_at = self._clock.monotonic()
        found = self._found[verdict.id]
        try:
            answer = asked("its check failed: ", lambda: self._plugin.check(found))
            if answer is True:
                return Ready(checked_at)
            if answer is False:
                return Refused(CHANGED) if self._is_present("its check failed: ", found) else GONE
        except PluginFailed as error:
            return Refused(result=Result.FAILED, error=str(error))
        if is_word(answer) and len(self._reasons | {answer}) <= MOST_REASONS:
            self._reasons.add(answer)
            return Refused(answer)
        said_so = f"its check answered {shown(answer)}; allowed are True, False and {A_REASON}"
        return Refused(result=Result.FAILED, error=said_so)

    def remove(self, verdict: Verdict) -> bool:
        """The plugin's removal; False if it returns False. Raises PluginFailed if the plugin raises or its answer is
        not allowed."""
        answer = asked("its removal failed: ", lambda: self._plugin.remove(self._found[verdict.id]))
        if answer is not None and not isinstance(answer, bool):
            raise PluginFailed(f"its removal answered {shown(answer)}; allowed are None, True and False")
        return answer is not False

    def present(self, verdict: Verdict) -> bool:
        """Whether the plugin says that the object exists. Raises RuntimeUnavailable if that is unknown."""
        try:
            return self._is_present(f"whether {verdict.name[:200]} is gone cannot be told: ", self._found[verdict.id])
        except PluginFailed as error:
            raise RuntimeUnavailable(str(error)) from error

    def _is_present(self, title: str, found: Found) -> bool:
        answer = asked(title, lambda: self._plugin.present(found))
        if not isinstance(answer, bool):
            raise PluginFailed(f"{title}its present() answered {shown(answer)}; allowed are True and False")
        return answer


def asked(title: str, ask: Callable[[], Answer]) -> Answer:
    """The plugin's answer. Raises PluginFailed, beginning with the title, for whatever the plugin raises."""
    try:
        return ask()
    except PluginFailed as error:
        raise PluginFailed(f"{title}{error}") from error
    except BaseException as error:  # SystemExit too: the thread would end, but its removal never would
        raise PluginFailed(f"{title}{said(error)}") from error


def said(error: BaseException) -> str:
    """An exception as one line of bounded length: its type and text."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 # the plugin's own code makes the text
        text = "its text cannot be read"
    shown = f"{text[:LONGEST_TEXT]}..." if len(text) > LONGEST_TEXT else text or "it says nothing more"
    return f"{type(error).__name__}: {shown}"


def plan_of(objects: Iterable[object], kinds: Sequence[str]) -> tuple[Plan, dict[str, Found]]:
    """The plan made of these objects, and each object by the id of its verdict. Takes at most one object beyond the
    limit.

    Raises PluginFailed if something is not an object, its kind is unknown, its id is not unique, or there are too many
    objects or reasons; and whatever the iterable raises.
    """
    found: dict[str, Found] = {}
    verdicts: list[Verdict] = []
    for each in islice(objects, MOST_OBJECTS + 1):
        if len(found) == MOST_OBJECTS:
            raise PluginFailed(f"its plan has more than {MOST_OBJECTS} objects")
        if not isinstance(each, Found):
            raise PluginFailed(f"an object of its plan is {shown(each)}; allowed is reclaim.plugins.Found")
        if each.kind and each.kind not in kinds:
            raise PluginFailed(f"the kind of {shown(each.id)} is {each.kind!r}; its kinds are {', '.join(kinds)}")
        verdict = _verdict(each, each.kind or kinds[0])
        if verdict.id in found:
            raise PluginFailed(f"two objects of its plan have the id {shown(each.id)}")
        found[verdict.id] = each
        verdicts.append(verdict)
    if len({each.reason for each in verdicts}) > MOST_REASONS:
        raise PluginFailed(f"its plan has more than {MOST_REASONS} different reasons")
    remove = tuple(verdict for verdict in verdicts if verdict.action is Action.REMOVE)
    return Plan(remove, tuple(verdict for verdict in verdicts if verdict.action is Action.KEEP)), found


def _verdict(found: Found, kind: str) -> Verdict:
    return Verdict(
        kind,
        printable_text(found.id),
        printable_text(found.name or found.id),
        Action.REMOVE if found.remove else Action.KEEP,
        found.reason,
        size_bytes=found.size_bytes,
        age_seconds=found.age_seconds,
        eligible_in_seconds=None if found.remove else found.eligible_in_seconds,
        rule=Rule.GUARD,  # the kubelet knows nothing about it
    )


# ---- the loader


def load(entry_name: str, distribution_name: str, options: Mapping[str, Any]) -> ReclaimPlugin:
    """The plugin of this entry point of this distribution, constructed with its options. Runs its code.

    Raises PluginFailed if it is not installed, has no such entry point, is not safe from other users, cannot be
    imported, rejects its options, or is not a `ReclaimPlugin`.
    """
    title = f"the reclaim function {entry_name!r} of the distribution {distribution_name!r}"
    factory = asked(f"{title} cannot be imported: ", _entry(entry_name, distribution_name, title).load)
    plugin: ReclaimPlugin = asked(f"{title} refuses its options: ", lambda: factory(options))
    asked(f"{title} is not one: ", lambda: _require_shape(plugin))
    return plugin


def _entry(name: str, distribution_name: str, title: str) -> EntryPoint:
    """The entry point of this name, if its files are safe. Imports nothing. Raises PluginFailed."""
    try:
        installed = distribution(distribution_name)
    except (PackageNotFoundError, ValueError) as error:  # ValueError: an empty name
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


def _require_shape(plugin: object) -> None:
    """Raises PluginFailed for what a plugin lacks, and whatever one of its properties raises."""
    missing = [name for name in METHODS if not callable(getattr(plugin, name, None))]
    if missing or not hasattr(plugin, "kinds"):
        raise PluginFailed(f"it has no {', '.join(missing) or 'kinds'}")
    kinds_of(plugin.kinds)


def _refusal(distribution: Distribution, module: str) -> str | None:
    """The first file or directory that others may write to, and why, as a clause; None if only trusted users may.

    Missing files are skipped. Raises OSError if one cannot be examined.
    """
    installed = [os.path.normpath(str(distribution.locate_file(file))) for file in distribution.files or ()]
    for path in dict.fromkeys((*installed, *_loaded(module))):
        try:
            status = os.stat(path)
            refused = directory_refusal(path) if os.path.isdir(path) else file_refusal(path, status)
        except FileNotFoundError:
            continue
        if refused is not None:
            return f"{path} is not safe: {refused}"
    return None


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
    """Where the import system would find the module and the packages above it, topmost first; unlike
    `importlib.util.find_spec`, it imports none of them."""
    parts, search = module.split("."), None
    for number in range(1, len(parts) + 1):
        found = (finder.find_spec(".".join(parts[:number]), search) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            return
        yield spec
        search = spec.submodule_search_locations
        if search is None:
            return
