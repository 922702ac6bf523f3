"""`reclaimd why NAME`: whether one object would be removed now, by which rule, and when; or, from
the history, how it was removed. Read-only.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any, Literal, TypeVar

from eviction.cli.ask_daemon import NotAskedError, converse
from eviction.cli.history import is_about
from eviction.cli.options import ASKED, add_output, answer, configuration_of, mention, places_of
from eviction.cli.plan import planned
from eviction.cli.progress import Progress
from eviction.configuration.effective import ConfigurationError
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.records.history import documents_of
from eviction.records.json_shapes import (
    LEFT_OUT,
    Count,
    Document,
    Json,
    LeftOut,
    Time,
    Versioned,
    to_json,
)
from eviction.records.pass_json import OutcomeJson, outcome_json
from eviction.records.regret import ImageRegretJson, images_of, removals_of
from eviction.records.store import HistoryUnusable, NoHistoryYet, contents_of
from eviction.surface.requests import ReclaimOptions
from eviction.wording.explain import in_words, reason_in_words
from reclaim.types import Outcome, Result, Rule
from signals.quantity import counted, format_bytes, format_duration
from signals.types import Signal

SHORTEST_ID = 8  # fewer characters are not taken for the beginning of an id
GONE = (Result.REMOVED, Result.ALREADY_GONE)

Found = TypeVar("Found")


class ObjectJson(OutcomeJson):
    """One object, and what would become of it."""

    place: Count | None
    """Its position in the order of removal, from 1; null if it is kept."""
    in_words: str
    """Its reason in words, and what is known of its place in the order."""
    eligible_in_seconds: float | None
    """How long until it is old enough; null if its age is not what keeps it."""


class RemovalJson(Document):
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
    """Exit 0; 1 there is no such object, or no longer; 2 usage, or a configuration that cannot be
    used while no daemon answers; 3 no runtime; 4 no reading.

    Example: reclaimd why registry.example/app:1.2
    """
    name = arguments.name
    objects: Any
    try:
        configuration = configuration_of(arguments)
    except ConfigurationError as error:
        objects, history_file = by_daemon(arguments, error)
    else:
        with planned(arguments, configuration, ReclaimOptions()) as (_, _, record):
            listed = [*enumerate(record.removals, 1), *((None, kept) for kept in record.kept)]
            objects = [
                why_json(*each)
                for each in named(listed, name, lambda each: each[1].verdict._asdict())
            ]
        history_file = configuration.history_file
    history = history_of(history_file)
    regret = images_of(named(removals_of(history), name, asdict))
    went = (
        [] if objects else named(last_removals(history), name, lambda each: to_json(each.removal))
    )
    if not objects:
        mention(
            f"no object has {name!r} in its name, or begins its id with"
            f" it{' any more' * bool(went)}"
        )
    if objects or went:
        found = WhyJson(objects=objects, went=went or LEFT_OUT, regret=regret)
        blocks = [*map(why_lines, objects), *map(went_lines, went), map(regret_line, regret)]
        answer(arguments, found, lambda: chain.from_iterable(blocks))
    return EXIT_OK if objects else EXIT_NOT_RELIEVED


def by_daemon(arguments: argparse.Namespace, error: ConfigurationError) -> tuple[Any, str]:
    """The objects with the name, as a dry run of the daemon sees them, and the history file: for a
    configuration that cannot be used. Raises this error if no daemon does the dry run."""
    places = places_of(arguments, ASKED)
    options = {"dry_run": True, "all": True, "signal": Signal.IMAGEFS_AVAILABLE, "output": "json"}
    try:
        document = converse(
            places.control_socket, {"command": "reclaim", "options": options, "told": {}}
        )["document"]
        listed = [*enumerate(document["removals"], 1), *((None, kept) for kept in document["kept"])]
    except (NotAskedError, LookupError, TypeError):
        raise error from None
    found: list[tuple[int | None, Json]] = named(listed, arguments.name, lambda each: each[1])
    objects = [
        {
            **one,
            "place": place,
            "in_words": reason_in_words(one["reason"]),
            "eligible_in_seconds": None,
        }
        for place, one in found
    ]
    return objects, places.history_file


def named(
    found: Iterable[Found], name: str, shown: Callable[[Found], Mapping[str, Any]]
) -> list[Found]:
    """Those with this name. `shown`: gives name and id.

    `name`: part of the name, or at least the first eight characters of the id. If it is the whole
    name or id of one, only that counts.
    """
    each_with = [(each, shown(each)) for each in found]
    whole = [each for each, of_it in each_with if name in (of_it["name"], of_it["id"])]
    return whole or [each for each, of_it in each_with if is_about(of_it, name, SHORTEST_ID)]


def last_removals(history: Iterable[Json]) -> list[RemovalJson]:
    """The last removal of each object in these records, the last first."""
    last: dict[tuple[str, str], RemovalJson] = {}
    # the record of a parked removal's end does not contain its pass
    passes: dict[tuple[str, str], Json] = {}
    for document, removal in ((each, one) for each in history for one in each.get("removals", ())):
        key = removal["kind"], removal["id"]
        of_pass = passes[key] = (
            passes.get(key, document) if document["kind"] == "parked_ended" else document
        )
        if removal["result"] in GONE:
            last.pop(key, None)  # so that it moves to the end
            last[key] = RemovalJson(
                time=document["time"],
                pass_id=of_pass.get("id", of_pass.get("pass")),
                trigger=of_pass.get("trigger"),
                signal=(of_pass.get("acted_on") or {}).get("signal"),
                removal=removal,
            )
    return list(reversed(last.values()))


def history_of(history_file: str) -> list[Json]:
    """The records of the history; none if there is none. Problems go to stderr."""
    try:
        with Progress("reading the history"):
            return list(documents_of(contents_of(history_file).records)) if history_file else []
    except HistoryUnusable as error:
        mention("" if isinstance(error, NoHistoryYet) else f"historyFile: {error}")
        return []


def why_json(place: int | None, outcome: Outcome) -> Json:
    eligible_in_seconds = outcome.verdict.eligible_in_seconds
    added = {
        "place": place,
        "in_words": in_words(outcome),
        "eligible_in_seconds": eligible_in_seconds,
    }
    return {**to_json(outcome_json(outcome)), **added}


def why_lines(found: Json) -> list[str]:
    """An object for people."""
    size, age, eligible = found["size"], found["age_seconds"], found["eligible_in_seconds"]
    goes = found["place"] is not None and found["result"] == Result.PLANNED
    when = None if eligible is None else f"may go in {format_duration(round(eligible))}"
    return _block(
        found,
        size=None if size is None else format_bytes(size),
        age=None if age is None else format_duration(round(age)),
        **{"goes" if goes else "stays": _why(found)},
        when=(
            f"under pressure, as number {found['place']}; fewer removals may be enough"
            if goes
            else when
        ),
    )


def went_lines(went: RemovalJson) -> list[str]:
    """A removed object for people."""
    removal: Json = to_json(went.removal)
    by = ", ".join(filter(None, (went.trigger, went.signal)))
    what = "was gone already" if removal["result"] == Result.ALREADY_GONE else "removed"
    return _block(
        removal,
        went=f"{went.time}, {what} in pass {went.pass_id or '-'}" + (f" ({by})" if by else ""),
        why=_why(removal),
        freed=f"{format_bytes(removal['freed']['bytes'])}, measured right after it",
    )


def _block(found: Json, **facts: str | None) -> list[str]:
    known = {"id": found["id"], **facts}
    lines = [f"  {name + ':':6} {fact}" for name, fact in known.items() if fact is not None]
    return [f"{found['kind']} {found['name']}", *lines]


def regret_line(regret: ImageRegretJson) -> str:
    """How often an image was removed and came back."""
    soonest, back = regret.soonest_seconds, counted(regret.returned, "time")
    after = "" if soonest is None else f", soonest after {format_duration(soonest)}"
    return (
        f"image {regret.name}: removed {counted(regret.removed, 'time')}, came back {back}{after}"
    )


def _why(removal: Json) -> str:
    """The reason, and whose rule it is."""
    whose = (
        "as the kubelet would decide"
        if removal["rule"] == Rule.KUBELET
        else "by a guard of reclaimd's"
    )
    return (
        f"{removal.get('in_words') or reason_in_words(removal['reason'])} ({removal['reason']}),"
        f" {whose}"
    )
