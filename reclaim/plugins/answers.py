"""What a plugin has answered, taken over into kinds and a plan, or refused with one sentence.

Whatever is wrong with one object of a plan, nothing of that plan is removed: who is wrong about one may be so about
others.

Covers: judging values. Does not cover: calling the plugin (`function`), finding it (`loader`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from reclaim.plugins.protocol import A_WORD, MOST_KINDS, MOST_OBJECTS, MOST_REASONS, Found, is_word
from reclaim.pod_logs.names import printable_text
from reclaim.types import Action, Kind, Plan, ReclaimError, Rule, Verdict

LONGEST_TEXT = 300  # characters of an error's text


class PluginFailed(ReclaimError):
    """A plugin raised an exception, or answered what it may not. The message is the end of a sentence."""


def kinds_of(kinds: object) -> tuple[str, ...]:
    """The kinds that a plugin has named. Raises PluginFailed unless they are one to eight different words, none of them
    a kind of the kubelet's own functions."""
    if not isinstance(kinds, Sequence) or isinstance(kinds, str | bytes):
        raise PluginFailed(f"its kinds are {_type_of(kinds)}; allowed is a tuple of words")
    if not 1 <= len(kinds) <= MOST_KINDS or len(set(kinds)) != len(kinds):
        raise PluginFailed(
            f"it has {len(kinds)} kinds, {len(set(kinds))} different ones; allowed are 1 to {MOST_KINDS}"
        )
    for kind in kinds:
        if not is_word(kind):
            raise PluginFailed(f"one of its kinds is {str(kind)[:60]!r}; allowed is {A_WORD}")
        if kind in list(Kind):
            raise PluginFailed(f"one of its kinds is {kind!r}, which is a kind of reclaimd's own")
    return tuple(kinds)


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
            raise PluginFailed(f"an object of its plan is {_type_of(each)}; allowed is reclaim.plugins.Found")
        if each.kind and each.kind not in kinds:
            raise PluginFailed(f"the kind of {each.id[:60]!r} is {each.kind!r}; its kinds are {', '.join(kinds)}")
        verdict = _verdict(each, each.kind or kinds[0])
        if verdict.id in found:
            raise PluginFailed(f"two objects of its plan have the id {each.id[:60]!r}")
        reasons.add(each.reason)
        if len(reasons) > MOST_REASONS:
            raise PluginFailed(f"its plan has more than {MOST_REASONS} different reasons")
        found[verdict.id] = each
        verdicts.append(verdict)
    remove = tuple(verdict for verdict in verdicts if verdict.action is Action.REMOVE)
    return Plan(remove, tuple(verdict for verdict in verdicts if verdict.action is Action.KEEP)), found


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


def _type_of(value: object) -> str:
    return f"of type {type(value).__name__}"
