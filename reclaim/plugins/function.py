"""A plugin as an entry of the table of reclaim functions: planned, removed, measured and reported like the others.

A plugin is called with everything that it may do in mind: it raises, `SystemExit` too, it answers nonsense, it hangs.
What it raises while it plans is the error of its function, and the row goes on. What it raises about one object is the
outcome of that object. Whatever is wrong with one object of a plan, nothing of that plan is removed: who is wrong about
one may be so about others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from reclaim.execution.remover import GONE, Ready, Refused
from reclaim.function import ReclaimFunction
from reclaim.plugins.protocol import (
    A_WORD,
    MOST_KINDS,
    MOST_OBJECTS,
    MOST_REASONS,
    Found,
    ReclaimPlugin,
    is_word,
    shown,
)
from reclaim.pod_logs.names import printable_text
from reclaim.services import Clock
from reclaim.types import Action, Kind, Plan, ReclaimError, RemovalFailed, Result, Rule, RuntimeUnavailable, Verdict

FRESH_SECONDS = 1.0  # a plugin may have to ask a program of its own; the runtime's status is 50 ms old at most
LONGEST_TEXT = 300  # characters of an error's text
CHANGED = "changed"
"""Why an object is kept of which `check` says that it is not the planned one any more."""

A_REASON = f"one of at most {MOST_REASONS} reasons, each {A_WORD}"

Answer = TypeVar("Answer")


class PluginFailed(ReclaimError):
    """A plugin cannot be loaded, raised an exception, or answered what it may not. The message says what."""


def plugin_function(name: str, plugin: ReclaimPlugin, frees: str) -> ReclaimFunction:
    """The entry of the table for a plugin: its name in the configuration, and the filesystem on which it frees space.

    Raises PluginFailed if the plugin's kinds are not allowed.
    """
    kinds = kinds_of(plugin.kinds)
    return ReclaimFunction(name, frees, kinds, lambda context: (PluginStage(name, plugin, kinds, context.clock),))


def kinds_of(kinds: object) -> tuple[str, ...]:
    """The kinds that a plugin has named. Raises PluginFailed unless they are one to eight different words, none of them
    a kind of the kubelet's own functions."""
    if not isinstance(kinds, Sequence) or isinstance(kinds, str | bytes):
        raise PluginFailed(f"its kinds are {shown(kinds)}; allowed is a tuple of words")
    if not 1 <= len(kinds) <= MOST_KINDS or len(set(kinds)) != len(kinds):
        raise PluginFailed(
            f"it has {len(kinds)} kinds, {len(set(kinds))} different ones; allowed are 1 to {MOST_KINDS}"
        )
    for kind in kinds:
        if not is_word(kind):
            raise PluginFailed(f"one of its kinds is {shown(kind)}; allowed is {A_WORD}")
        if kind in list(Kind):
            raise PluginFailed(f"one of its kinds is {kind!r}, which is a kind of reclaimd's own")
    return tuple(kinds)


class PluginStage:
    """The stage: what a plugin plans, checked and removed by asking the plugin.

    `frees_late`: space is waited for after objects that promised none.
    """

    fresh_seconds = FRESH_SECONDS
    patience_seconds: float | None = None

    def __init__(self, name: str, plugin: ReclaimPlugin, kinds: Sequence[str], clock: Clock):
        self._name = name
        self._plugin = plugin
        self._kinds = kinds
        self._clock = clock
        self._found: dict[str, Found] = {}
        self._reasons: set[str] = set()
        self.frees_late = False

    def plan(self) -> Plan:
        """As the plugin answers. Raises PluginFailed for what it raises or may not answer."""
        try:
            plan, self._found = asked(lambda: plan_of(self._plugin.plan(), self._kinds))
        except PluginFailed as error:
            raise PluginFailed(f"{self._name} cannot plan: {error}") from error
        self._reasons = {each.reason for each in self._found.values()}
        self.frees_late = any(verdict.size_bytes is None for verdict in plan.remove)
        return plan

    def check(self, verdict: Verdict) -> Ready | Refused:
        """As the plugin answers. What it raises, or an answer that is not allowed, makes the removal fail unsent."""
        checked_at = self._clock.monotonic()
        found = self._found[verdict.id]
        try:
            answer = asked(lambda: self._plugin.check(found))
            if answer is True:
                return Ready(checked_at)
            if answer is False:
                return Refused(CHANGED) if self._is_present(found) else GONE
        except PluginFailed as error:
            return Refused(result=Result.FAILED, error=f"its check failed: {error}")
        if is_word(answer) and self._is_one_of_few(answer):
            return Refused(answer)
        said_so = f"its check answered {shown(answer)}; allowed are True, False and {A_REASON}"
        return Refused(result=Result.FAILED, error=said_so)

    def remove(self, verdict: Verdict) -> bool:
        """The plugin's removal; False if it says so. Raises RemovalFailed for what it raises or may not answer."""
        found = self._found[verdict.id]
        try:
            answer = asked(lambda: self._plugin.remove(found))
        except PluginFailed as error:
            raise RemovalFailed(f"its removal failed: {error}") from error
        if answer is not None and not isinstance(answer, bool):
            raise RemovalFailed(f"its removal answered {shown(answer)}; allowed are None, True and False")
        return answer is not False

    def present(self, verdict: Verdict) -> bool:
        """Whether the plugin says that it is there. Raises RuntimeUnavailable where that cannot be told."""
        try:
            return self._is_present(self._found[verdict.id])
        except PluginFailed as error:
            raise RuntimeUnavailable(f"whether {verdict.name[:200]} is gone cannot be told: {error}") from error

    def _is_present(self, found: Found) -> bool:
        answer = asked(lambda: self._plugin.present(found))
        if not isinstance(answer, bool):
            raise PluginFailed(f"its present() answered {shown(answer)}; allowed are True and False")
        return answer

    def _is_one_of_few(self, reason: str) -> bool:
        """Whether the plugin has not more reasons with this one than a plan may have."""
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
        return reason in self._reasons


def asked(ask: Callable[[], Answer]) -> Answer:
    """What the plugin answers. Raises PluginFailed for whatever it raises."""
    try:
        return ask()
    except PluginFailed:
        raise
    except BaseException as error:  # SystemExit too: it would end the thread, and its removal never
        raise PluginFailed(said(error)) from error


def said(error: BaseException) -> str:
    """An exception as one line of bounded length: its type and its text."""
    return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an exception as one line of bounded length."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 # it is the plugin's own code that makes the text
        return "its text cannot be read"
    if len(text) > LONGEST_TEXT:
        return f"{text[:LONGEST_TEXT]}..."
    return text or "it says nothing more"


def plan_of(objects: Iterable[object], kinds: Sequence[str]) -> tuple[Plan, dict[str, Found]]:
    """The plan of these objects, and each of them by the id of its verdict. Takes no more than one beyond the bound.

    Raises PluginFailed for what is no object, has no kind of these, has the id of another one, is one too many or has a
    reason too many; and whatever the iterable raises.
    """
    found: dict[str, Found] = {}
    reasons: set[str] = set()
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
        reasons.add(each.reason)
        if len(reasons) > MOST_REASONS:
            raise PluginFailed(f"its plan has more than {MOST_REASONS} different reasons")
        found[verdict.id] = each
        verdicts.append(verdict)
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
        rule=Rule.GUARD,  # the kubelet knows nothing of it
    )
