"""A plugin as an entry of the table of reclaim functions: planned, removed, measured and reported like the others.

A plugin is called with everything that it may do in mind: it raises, `SystemExit` too, it answers nonsense, it hangs.
What it raises while it plans is the error of its function, and the row goes on. What it raises about one object is the
outcome of that object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.execution.remover import GONE, Ready, Refused
from reclaim.execution.stages import Stage, StagePlan, Stopwatch
from reclaim.functions import ReclaimContext, ReclaimFunction
from reclaim.plugins.answers import PluginFailed, kinds_of, plan_of, said
from reclaim.plugins.protocol import A_WORD, MOST_REASONS, Found, ReclaimPlugin, is_word
from reclaim.types import MeasureDisk, Plan, RemovalFailed, Result, RuntimeUnavailable, Verdict

FRESH_SECONDS = 1.0  # a plugin may have to ask a program of its own; the runtime's status is 50 ms old at most
CHANGED = "changed"
"""Why an object is kept of which `check` says that it is not the planned one any more."""

A_REASON = f"one of at most {MOST_REASONS} reasons, each {A_WORD}"

Answer = TypeVar("Answer")


def plugin_function(name: str, plugin: ReclaimPlugin, frees: str) -> ReclaimFunction:
    """The entry of the table for a plugin: its name in the configuration, and the filesystem on which it frees space.

    Raises PluginFailed if the plugin's kinds are not allowed.
    """
    kinds = kinds_of(plugin.kinds)

    def stages(context: ReclaimContext) -> tuple[Stage, ...]:
        return (partial(_planned, name, plugin, kinds, context.clock),)

    return ReclaimFunction(name, frees, kinds, stages)


class PluginRemover:
    """Removes objects of a plugin's plan, by asking the plugin. A `Remover`.

    `found`: the objects by the id of their verdict. `frees_late`: space is waited for after objects that promised none.
    """

    fresh_seconds = FRESH_SECONDS

    def __init__(self, plugin: ReclaimPlugin, found: Mapping[str, Found], clock: Clock):
        self._plugin = plugin
        self._found = found
        self._clock = clock
        self._reasons = {each.reason for each in found.values()}
        self.frees_late = any(each.remove and each.size_bytes is None for each in found.values())

    def check(self, verdict: Verdict) -> Ready | Refused:
        """As the plugin answers. What it raises, or an answer that is not allowed, makes the removal fail unsent."""
        checked_at = self._clock.monotonic()
        found = self._found[verdict.id]
        try:
            answer = _asked(lambda: self._plugin.check(found))
            if answer is True:
                return Ready(checked_at)
            if answer is False:
                return Refused(CHANGED) if self._is_present(found) else GONE
        except PluginFailed as error:
            return Refused(result=Result.FAILED, error=f"its check failed: {error}")
        if is_word(answer) and self._is_one_of_few(answer):
            return Refused(answer)
        said_so = f"its check answered {_shown(answer)}; allowed are True, False and {A_REASON}"
        return Refused(result=Result.FAILED, error=said_so)

    def _is_one_of_few(self, reason: str) -> bool:
        """Whether the plugin has not more reasons with this one than a plan may have."""
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
        return reason in self._reasons

    def remove(self, verdict: Verdict) -> bool:
        """The plugin's removal; False if it says so. Raises RemovalFailed for what it raises or may not answer."""
        found = self._found[verdict.id]
        try:
            answer = _asked(lambda: self._plugin.remove(found))
        except PluginFailed as error:
            raise RemovalFailed(f"its removal failed: {error}") from error
        if answer is not None and not isinstance(answer, bool):
            raise RemovalFailed(f"its removal answered {_shown(answer)}; allowed are None, True and False")
        return answer is not False

    def present(self, verdict: Verdict) -> bool:
        """Whether the plugin says that it is there. Raises RuntimeUnavailable where that cannot be told."""
        try:
            return self._is_present(self._found[verdict.id])
        except PluginFailed as error:
            raise RuntimeUnavailable(f"whether {verdict.name[:200]} is gone cannot be told: {error}") from error

    def _is_present(self, found: Found) -> bool:
        answer = _asked(lambda: self._plugin.present(found))
        if not isinstance(answer, bool):
            raise PluginFailed(f"its present() answered {_shown(answer)}; allowed are True and False")
        return answer


def _planned(name: str, plugin: ReclaimPlugin, kinds: Sequence[str], clock: Clock, _: MeasureDisk) -> StagePlan:
    """The only stage of a plugin's function. Raises PluginFailed."""
    watch = Stopwatch(clock)

    def read() -> tuple[Plan, dict[str, Found]]:
        return plan_of(plugin.plan(), kinds)

    try:
        plan, found = watch.time(lambda: _asked(read))
    except PluginFailed as error:
        raise PluginFailed(f"{name} cannot plan: {error}") from error
    return StagePlan(plan, PluginRemover(plugin, found, clock), list_seconds=watch.seconds)


def _asked(ask: Callable[[], Answer]) -> Answer:
    """What the plugin answers. Raises PluginFailed for whatever it raises."""
    try:
        return ask()
    except PluginFailed:
        raise
    except BaseException as error:  # SystemExit too: it would end the thread, and its removal never
        raise PluginFailed(said(error)) from error


def _shown(answer: object) -> str:
    return f"{answer[:40]!r}" if isinstance(answer, str) else f"something of type {type(answer).__name__}"
