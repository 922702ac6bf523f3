"""`reclaimd why NAME`: whether one object would be removed now, by which rule, and when; or, from the history, how it
was removed. Read-only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eviction.cli.options import add_configuration, add_output, answer, configuration_of, mention
from eviction.cli.plan import planned
from eviction.cli.progress import Progress
from eviction.control.reclaim import ReclaimOptions
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.history_file.recorder import Document, documents_of
from eviction.history_file.store import HistoryUnusable, NoHistoryYet, read_records
from eviction.record import Pass
from eviction.reporting.explain import REASONS
from eviction.reporting.json_shapes import LEFT_OUT, Count, LeftOut, Time
from eviction.reporting.pass_record import OutcomeJson, outcome_json
from eviction.types import API_VERSION
from reclaim.types import Outcome, Result, Rule
from signals.quantity import format_bytes, format_duration

SHORTEST_ID = 8  # fewer characters are not taken for the beginning of an id
DIGEST = "sha256:"
GONE = (Result.REMOVED, Result.ALREADY_GONE)


class ObjectJson(OutcomeJson):
    """One object, and what would become of it."""

    place: Count | None
    """Its position in the order of removal, from 1; null if it is kept."""
    in_words: str
    """Its reason in words."""
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
class WhyJson:
    """The objects with a name, each with its verdict: the answer of `reclaimd why`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"] = API_VERSION  # noqa: N815 # the name that Kubernetes gives it
    """The version of this format. Fields may be added to it."""
    kind: Literal["Why"] = "Why"
    """What the document is."""
    objects: list[ObjectJson]
    """The existing objects with that name."""
    went: list[RemovalJson] | LeftOut = LEFT_OUT
    """If there are none: the objects that were removed, the last first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="an image, container or pod: part of its name, or the start of its id"
    )
    add_output(parser)
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 there is no such object, or no longer; 3 runtime unreachable; 4 reading unavailable."""
    configuration, name = configuration_of(arguments), arguments.name
    with planned(arguments, configuration, ReclaimOptions()) as (_, _, record):
        objects = [why_json(*each) for each in objects_named(record, name)]
    if objects:
        answer(arguments, WhyJson(objects=objects), lambda: (line for each in objects for line in why_lines(each)))
        return EXIT_OK
    went = removals_named(configuration.history_file, name)
    mention(f"no object has {name!r} in its name, or begins its id with it{' any more' * bool(went)}")
    if went:
        answer(arguments, WhyJson(objects=[], went=went), lambda: (line for each in went for line in went_lines(each)))
    return EXIT_NOT_RELIEVED


def objects_named(record: Pass, name: str) -> list[tuple[int | None, Outcome]]:
    """The objects with this name, each with its position in the order of removal, from 1, or None if it is kept.

    `name`: part of the name, or at least the first eight characters of the id. If it is the whole name or id of an
    object, only that one counts.
    """
    objects = [*enumerate(record.removals, 1), *((None, outcome) for outcome in record.kept)]
    whole = [each for each in objects if name in (each[1].verdict.name, each[1].verdict.id)]
    return whole or [each for each in objects if _is_named(each[1].verdict.name, each[1].verdict.id, name)]


def _is_named(name: str, identity: str, text: str) -> bool:
    begins = identity.startswith(text) or identity.removeprefix(DIGEST).startswith(text)
    return text in name or (len(text) >= SHORTEST_ID and begins)


def removals_named(history_file: str, name: str) -> list[RemovalJson]:
    """The last removal of each object with this name in the history, the last first. Whole names count as in
    `objects_named`. Problems with the history go to stderr."""
    last: dict[tuple[str, str], RemovalJson] = {}
    passes: dict[tuple[str, str], Document] = {}  # the record of a parked removal's end does not contain its pass
    for document, removal in _history_of(history_file, name):
        key = (removal.get("kind", ""), removal.get("id", ""))
        of_pass = passes[key] = passes.get(key, document) if document["kind"] == "parked_ended" else document
        if removal.get("result") in GONE:
            last.pop(key, None)  # so that it moves to the end
            identity, signal = of_pass.get("id", of_pass.get("pass")), (of_pass.get("acted_on") or {}).get("signal")
            last[key] = RemovalJson(document.get("time", ""), identity, of_pass.get("trigger"), signal, removal)
    found = list(reversed(last.values()))
    return [each for each in found if name in (each.removal["name"], each.removal["id"])] or found


def _history_of(history_file: str, name: str) -> Iterator[tuple[Document, Any]]:
    """Each removal of an object with this name, and its record."""
    try:
        with Progress("reading the history"):
            for document in documents_of(read_records(history_file)) if history_file else ():
                for removal in document.get("removals", ()):
                    if _is_named(removal.get("name", ""), removal.get("id", ""), name):
                        yield document, removal
    except NoHistoryYet:
        pass
    except HistoryUnusable as error:
        mention(f"historyFile: {error}")


def why_json(place: int | None, outcome: Outcome) -> ObjectJson:
    eligible = outcome.verdict.eligible_in_seconds
    return {
        **outcome_json(outcome),
        "place": place,
        "in_words": REASONS.get(outcome.verdict.reason, outcome.verdict.reason),
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
        if "frees" in found:
            lines.append(f"  frees: {format_bytes(found['frees'])}")
        if "needed_in_seconds" in found:
            lines.append(f"  needed: again in {format_duration(round(found['needed_in_seconds']))}, as expected")
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


def _why(removal: Mapping[str, Any]) -> str:
    """The reason, and whose rule it is. An older history may lack them."""
    reason = str(removal.get("reason", "-"))
    whose = "as the kubelet would decide" if removal.get("rule") == Rule.KUBELET else "by a guard of reclaimd's"
    return f"{REASONS.get(reason, reason)} ({reason}), {whose}"
