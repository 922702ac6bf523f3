"""`reclaimd why NAME`: whether one object would be removed now, by which rule, and when; or, from
the history, how it was removed. Read-only.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import chain
from typing import TypeVar, cast

from eviction.cli.client import NotAskedError
from eviction.cli.history import is_about, regret_sentence
from eviction.cli.local_files import ASKED
from eviction.cli.local_node import LocalNode
from eviction.cli.output import answer, exit_with
from eviction.cli.parser import OBJECTS
from eviction.cli.progress import mention
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.records.json_shapes import (
    LEFT_OUT,
    Count,
    Document,
    LeftOut,
    Time,
    Versioned,
    to_json,
)
from eviction.records.pass_json import OutcomeJson, pass_json
from eviction.records.regret import ImageRegretJson, images_of, removals_of
from eviction.types import EvictionError, Fields, Json
from eviction.wording.explain import frees_in_words, in_words, reason_in_words
from reclaim.types import Result, Rule
from signals.quantity import format_bytes, format_duration

OPTIONS = {
    "name NAME": "an image, container or pod: part of its name, or the start of its id",
    **OBJECTS,
}
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

    objects: list[ObjectJson]
    """The existing objects with that name."""
    went: list[RemovalJson] | LeftOut = LEFT_OUT
    """If there are none: the objects that were removed, the last first."""
    regret: list[ImageRegretJson]
    """The images with that name that were removed, and how often they came back."""


def run(arguments: Namespace) -> int:
    """Exit 0; 1 there is no such object, or no longer; 2 usage, or a configuration that cannot be
    used while no daemon answers; 3 no runtime; 4 no reading.

    Example: reclaimd why registry.example/app:1.2
    """
    name = arguments.name
    node = LocalNode(arguments, ASKED)
    if node.problem:  # the daemon goes on with its configuration
        try:
            planned = node.client.dry_run("imagefs.available")
        except NotAskedError:
            exit_with(EXIT_USAGE, node.problem)
    else:
        planned = to_json(pass_json(node.plan().record))
    objects = objects_of(planned, name)
    history: list[Json] = []
    try:
        if node.configuration.history_file:
            history, _ = node.history()
    except EvictionError as error:
        mention(f"historyFile: {error}")
    regret = images_of(named(removals_of(history), name, asdict))
    went: list[RemovalJson] = []
    if not objects:
        went = named(last_removals(history), name, lambda last: to_json(last.removal))
        sentence = f"no object has {name!r} in its name, or begins its id with it"
        mention(f"{sentence} any more" if went else sentence)
    if objects or went:
        document = WhyJson(
            objects=cast("list[ObjectJson]", objects), went=went or LEFT_OUT, regret=regret
        )
        blocks = [
            *map(why_lines, objects),
            *map(went_lines, went),
            [regret_sentence(f"image {each.name}", each) for each in regret],
        ]
        answer(arguments, document, lambda: chain.from_iterable(blocks))
    return EXIT_OK if objects else EXIT_NOT_RELIEVED


def objects_of(planned: Json, name: str) -> list[Json]:
    """The objects of a pass with this name, each as `ObjectJson`."""
    placed = [
        *enumerate(planned.get("removals", ()), 1),
        *((None, one) for one in planned.get("kept", ())),
    ]
    return [
        {
            "eligible_in_seconds": None,
            **one,
            "place": place,
            "in_words": in_words(one["reason"], one["result"], one.get("needed_in_seconds")),
        }
        for place, one in named(placed, name, lambda placed_one: placed_one[1])
    ]


def named(objects: Iterable[Found], name: str, shown: Callable[[Found], Fields]) -> list[Found]:
    """Those with this name. `shown`: gives name and id.

    `name`: part of the name, or at least the first eight characters of the id. If it is the whole
    name or id of one, or what `-o name` prints, only that counts.
    """
    each_shown = [(one, shown(one)) for one in objects]
    whole = [
        one
        for one, fields in each_shown
        if name in (fields["name"], fields["id"], f"{fields.get('kind', 'image')}/{fields['name']}")
    ]
    return whole or [one for one, fields in each_shown if is_about(fields, name, SHORTEST_ID)]


def last_removals(history: Iterable[Json]) -> list[RemovalJson]:
    """The last removal of each object in these records, the last first."""
    last: dict[tuple[str, str], RemovalJson] = {}
    # the record of a parked removal's end does not contain its pass
    passes: dict[tuple[str, str], Json] = {}
    for document in history:
        for removal in document.get("removals", ()):
            key = removal["kind"], removal["id"]
            if document["kind"] != "parked_ended":
                passes[key] = document
            of_pass = passes.get(key, document)
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


def why_lines(found: Json) -> list[str]:
    """An object for people."""
    size = found["size"]
    age = found["age_seconds"]
    eligible = found["eligible_in_seconds"]
    facts = {
        "size": None if size is None else format_bytes(size),
        "age": None if age is None else format_duration(round(age)),
    }
    if found["place"] is not None and found["result"] == Result.PLANNED:
        number = found["place"]
        facts["frees"] = frees_in_words(
            found["result"], freed=0, frees=found.get("frees"), size=size
        )
        facts["goes"] = _why(found)
        facts["when"] = f"under pressure, as number {number}; fewer removals may be enough"
    else:
        facts["stays"] = _why(found)
        if eligible is not None:
            facts["when"] = f"may go in {format_duration(round(eligible))}"
    return _block(found, **facts)


def went_lines(went: RemovalJson) -> list[str]:
    """A removed object for people."""
    removal: Json = to_json(went.removal)
    at = f"{went.time[:19]}Z"
    by = ", ".join(filter(None, (went.trigger, went.signal)))
    what = "was gone already" if removal["result"] == Result.ALREADY_GONE else "removed"
    return _block(
        removal,
        went=f"{at}, {what} in pass {went.pass_id or '-'}" + (f" ({by})" if by else ""),
        why=_why(removal),
        freed=f"{format_bytes(removal['freed']['bytes'])}, measured right after it",
    )


def _block(found: Json, **facts: str | None) -> list[str]:
    return [
        f"{found['kind']} {found['name']}",
        *(
            f"  {name + ':':6} {fact}"
            for name, fact in {"id": found["id"], **facts}.items()
            if fact is not None
        ),
    ]


def _why(removal: Json) -> str:
    """The reason, and whose rule it is."""
    reason = removal["reason"]
    whose = Rule(removal["rule"]).words
    return f"{removal.get('in_words') or reason_in_words(reason)} ({reason}; {whose})"
