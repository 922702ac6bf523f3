"""`reclaimd why NAME`: whether one object would be removed now, by which rule, and when; or, from the history, how it
was removed. Read-only.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

from eviction.cli.history import is_about
from eviction.cli.options import add_output, answer, configuration_of, mention
from eviction.cli.plan import planned
from eviction.cli.progress import Progress
from eviction.control.reclaim import ReclaimOptions
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.history_file.recorder import Document, documents_of
from eviction.history_file.regret import ImageRegretJson, images_of, removals_of
from eviction.history_file.store import HistoryUnusable, NoHistoryYet, read_records
from eviction.record import Pass
from eviction.reporting.explain import REASONS, in_words
from eviction.reporting.json_shapes import LEFT_OUT, Count, LeftOut, Time, Versioned
from eviction.reporting.pass_record import OutcomeJson, outcome_json
from reclaim.types import Outcome, Result, Rule
from signals.quantity import counted, format_bytes, format_duration

SHORTEST_ID = 8  # fewer characters are not taken for the beginning of an id
GONE = (Result.REMOVED, Result.ALREADY_GONE)


class ObjectJson(OutcomeJson):
    """One object, and what would become of it."""

    place: Count | None
    """Its position in the order of removal, from 1; null if it is kept."""
    in_words: str
    """Its reason in words, and what is known of its place in the order."""
    eligible_in_seconds: float | None
    """How long until it is old enough; null if its age is not what keeps it."""


@dataclass(frozen=True, slots=True)
class RemovalJson:
    """The last removal of an object, from the history."""

    time: Time
    """When it was recorded."""
    pass_id: str | None
    """The id of its pass; null if the history no longer has it."""
    trigger: str | None
    """What started the pass; null if that is not known."""
    signal: str | None
    """The signal that the pass acted on; null if a command or a periodic loop requested it."""
    removal: OutcomeJson
    """The object, and the outcome of its removal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyJson(Versioned):
    """The objects with a name, each with its verdict: the answer of `reclaimd why`."""

    kind: Literal["Why"] = "Why"
    objects: list[ObjectJson]
    """The existing objects with that name."""
    went: list[RemovalJson] | LeftOut = LEFT_OUT
    """If there are none: the objects that were removed, the last first."""
    regret: list[ImageRegretJson]
    """The images with that name that were removed, and how often they came back."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "an image, container or pod: part of its name, or the start of its id"
    parser.add_argument("name", metavar="NAME", help=text)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 there is no such object, or no longer; 2 usage or configuration; 3 no runtime; 4 no reading.

    Example: reclaimd why registry.example/app:1.2
    """
    configuration, name = configuration_of(arguments), arguments.name
    with planned(arguments, configuration, ReclaimOptions()) as (_, _, record):
        objects = [why_json(*each) for each in objects_named(record, name)]
    history = history_of(configuration.history_file)
    removed = [each for each in removals_of(history) if is_about(asdict(each), name, SHORTEST_ID)]
    whole = [each for each in removed if name in (each.name, each.id)]
    regret, went = images_of(whole or removed), [] if objects else removals_named(history, name)
    if not objects:
        mention(f"no object has {name!r} in its name, or begins its id with it{' any more' * bool(went)}")
    if objects or went:
        found = WhyJson(objects=objects, went=went or LEFT_OUT, regret=regret)
        blocks = [*map(why_lines, objects), *map(went_lines, went), map(regret_line, regret)]
        answer(arguments, found, lambda: chain.from_iterable(blocks))
    return EXIT_OK if objects else EXIT_NOT_RELIEVED


def objects_named(record: Pass, name: str) -> list[tuple[int | None, Outcome]]:
    """The objects with this name, each with its position in the order of removal, from 1, or None if it is kept.

    `name`: part of the name, or at least the first eight characters of the id. If it is the whole name or id of an
    object, only that one counts.
    """
    objects = [*enumerate(record.removals, 1), *((None, outcome) for outcome in record.kept)]
    whole = [each for each in objects if name in (each[1].verdict.name, each[1].verdict.id)]
    return whole or [each for each in objects if is_about(each[1].verdict._asdict(), name, SHORTEST_ID)]


def removals_named(history: Sequence[Document], name: str) -> list[RemovalJson]:
    """The last removal of each object with this name in these records, the last first. Whole names count as in
    `objects_named`."""
    last: dict[tuple[str, str], RemovalJson] = {}
    passes: dict[tuple[str, str], Document] = {}  # the record of a parked removal's end does not contain its pass
    of_it = ((each, one) for each in history for one in each.get("removals", ()) if is_about(one, name, SHORTEST_ID))
    for document, removal in of_it:
        key = (removal.get("kind", ""), removal.get("id", ""))
        of_pass = passes[key] = passes.get(key, document) if document["kind"] == "parked_ended" else document
        if removal.get("result") in GONE:
            last.pop(key, None)  # so that it moves to the end
            identity, signal = of_pass.get("id", of_pass.get("pass")), (of_pass.get("acted_on") or {}).get("signal")
            last[key] = RemovalJson(document.get("time", ""), identity, of_pass.get("trigger"), signal, removal)
    found = list(reversed(last.values()))
    return [each for each in found if name in (each.removal["name"], each.removal["id"])] or found


def history_of(history_file: str) -> list[Document]:
    """The records of the history; none if there is none. Problems go to stderr."""
    try:
        with Progress("reading the history"):
            return list(documents_of(read_records(history_file))) if history_file else []
    except HistoryUnusable as error:
        mention("" if isinstance(error, NoHistoryYet) else f"historyFile: {error}")
        return []


def why_json(place: int | None, outcome: Outcome) -> ObjectJson:
    eligible = outcome.verdict.eligible_in_seconds
    return {
        **outcome_json(outcome),
        "place": place,
        "in_words": in_words(outcome),
        "eligible_in_seconds": None if eligible is None else round(eligible, 3),
    }


def why_lines(found: ObjectJson) -> list[str]:
    """An object for people."""
    goes = found["place"] is not None and found["result"] == Result.PLANNED
    lines = [f"{found['kind']} {found['name']}"]
    if found["id"] != found["name"]:
        lines.append(f"  id:    {found['id']}")
    if found["size"] is not None:
        lines.append(f"  size:  {format_bytes(found['size'])}")
    if found["age_seconds"] is not None:
        lines.append(f"  age:   {format_duration(round(found['age_seconds']))}")
    lines.append(f"  {'goes' if goes else 'stays'}: {_why(found)}")
    if goes:
        lines.append(f"  when:  under pressure, as number {found['place']}; fewer removals may be enough")
    elif found["eligible_in_seconds"] is not None:
        lines.append(f"  when:  may go in {format_duration(round(found['eligible_in_seconds']))}")
    return lines


def went_lines(went: RemovalJson) -> list[str]:
    """A removed object for people."""
    removal = went.removal
    by = ", ".join(filter(None, (went.trigger, went.signal)))
    what = "was gone already" if removal["result"] == Result.ALREADY_GONE else "removed"
    freed = removal["freed"]["bytes"] if "freed" in removal else 0
    return [
        f"{removal['kind']} {removal['name']}",
        f"  id:    {removal['id']}",
        f"  went:  {went.time}, {what} in pass {went.pass_id or '-'}" + (f" ({by})" if by else ""),
        f"  why:   {_why(removal)}",
        f"  freed: {format_bytes(freed)}, measured right after it",
    ]


def regret_line(regret: ImageRegretJson) -> str:
    """How often an image was removed and came back."""
    soonest, back = regret["soonest_seconds"], counted(regret["returned"], "time")
    after = "" if soonest is None else f", soonest after {format_duration(soonest)}"
    return f"image {regret['name']}: removed {counted(regret['removed'], 'time')}, seen to come back {back}{after}"


def _why(removal: Mapping[str, Any]) -> str:
    """The reason, and whose rule it is. An older history may lack them."""
    reason = str(removal.get("reason", "-"))
    whose = "as the kubelet would decide" if removal.get("rule") == Rule.KUBELET else "by a guard of reclaimd's"
    return f"{removal.get('in_words') or REASONS.get(reason, reason)} ({reason}), {whose}"
