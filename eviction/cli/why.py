"""`reclaimd why NAME`: what is known of one object, whether it would go now, by which rule, and when; of one that went,
its record in the history.

Read-only.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Literal, NotRequired, TypedDict

from eviction.cli.daemon_configuration import mention_other_configuration
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    configuration_of,
    exit_with,
    mention,
)
from eviction.cli.progress import Progress
from eviction.cli.standalone import everything, observe_or_exit
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_RUNTIME
from eviction.history_file.recorder import documents_of
from eviction.history_file.store import HistoryUnusable, NoHistoryYet, read_records
from eviction.node.node import Node
from eviction.record import Pass, Trigger
from eviction.reporting.explain import REASONS
from eviction.reporting.json_shapes import Count, Time, VersionedJson
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import OutcomeJson, outcome_json
from eviction.types import API_VERSION
from reclaim.types import Outcome, Result, Rule
from signals.quantity import format_bytes, format_duration

SHORTEST_ID = 8  # of fewer characters nobody means an id
DIGEST = "sha256:"
GONE = (Result.REMOVED, Result.ALREADY_GONE)


class ObjectJson(OutcomeJson):
    """One object, and what would become of it."""

    place: Count | None
    """The how many-th of those that may go; null if it stays."""
    in_words: str
    """Its reason in words."""
    eligible_in_seconds: float | None
    """When its age alone lets it go; null if that is not what keeps it."""


class RemovalJson(TypedDict):
    """The last time that an object went, from the history."""

    time: Time
    """When it was recorded."""
    pass_id: str | None
    """The id of its pass; null where the history has it no more."""
    trigger: str | None
    """What started the pass; null where that is not known."""
    signal: str | None
    """The signal that the pass acted on; null where a command or a periodic loop asked for it."""
    removal: OutcomeJson
    """The object, and what became of it."""


class WhyJson(VersionedJson):
    """The objects of a name, each with its verdict: the answer of `reclaimd why`."""

    kind: Literal["Why"]
    """What the document is."""
    objects: list[ObjectJson]
    """Those that are meant; none where they went."""
    went: NotRequired[list[RemovalJson]]
    """Where there is no such object: those that went, the last first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("name", metavar="NAME", help="an image, container or pod: a part of its name, or of its id")
    add_output(parser)
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 there is no such object, or not any more; 3 runtime unreachable; 4 reading unavailable."""
    configuration = configuration_of(arguments)
    mention_other_configuration(arguments, configuration.control_socket)
    with closing(Node(configuration, dry_run=True)) as node:
        observations, decision = observe_or_exit(node)
        with Progress("listing containers and images, and planning"):
            record = node.responder.reclaim(observations, decision, Trigger.REQUEST, everything(node, observations))
    if record.errors:
        exit_with(EXIT_RUNTIME, "; ".join(record.errors))
    found = objects_named(record, arguments.name)
    answer: WhyJson = {"apiVersion": API_VERSION, "kind": "Why", "objects": [why_json(*each) for each in found]}
    lines = [line for each in answer["objects"] for line in why_lines(each)]
    if not found:
        answer["went"] = removals_named(configuration.history_file, arguments.name)
        lines = [line for each in answer["went"] for line in went_lines(each)]
        mention(f"no object has {arguments.name!r} in its name, or begins its id with it{' any more' * bool(lines)}")
    if lines and arguments.output == "json":
        answer_json(answer)
    elif lines:
        answer_lines(lines)
    return EXIT_OK if found else EXIT_NOT_RELIEVED


def objects_named(record: Pass, name: str) -> list[tuple[int | None, Outcome]]:
    """The objects of this name, each with its place among those that may go (from 1), or None if it stays.

    A part of a name is enough; of an id its beginning, eight characters at least. One that bears the whole name is the
    only one that is meant.
    """
    places = [(place, outcome) for place, outcome in enumerate(record.removals, 1)]
    objects = [*places, *((None, outcome) for outcome in record.kept)]
    whole = [each for each in objects if name in (each[1].verdict.name, each[1].verdict.id)]
    return whole or [each for each in objects if _is_named(each[1].verdict.name, each[1].verdict.id, name)]


def _is_named(name: str, identity: str, text: str) -> bool:
    begins = identity.startswith(text) or identity.removeprefix(DIGEST).startswith(text)
    return text in name or (len(text) >= SHORTEST_ID and begins)


def removals_named(history_file: str, name: str) -> list[RemovalJson]:
    """The last removal of each object of this name in the history, the last first; one that bears the whole name is
    the only one that is meant. What is wrong with the history goes to stderr."""
    last: dict[tuple[str, str], RemovalJson] = {}
    passes: dict[tuple[str, str], dict[str, Any]] = {}  # a removal that was parked ends in a record without its pass
    try:
        if history_file:
            with Progress("reading the history"):
                for document in documents_of(read_records(history_file)):
                    for removal in document.get("removals", ()):
                        if _is_named(removal.get("name", ""), removal.get("id", ""), name):
                            key = (removal.get("kind", ""), removal.get("id", ""))
                            passes[key] = passes.get(key, document) if document["kind"] == "parked_ended" else document
                            if removal.get("result") in GONE:
                                last.pop(key, None)  # so that it is the last one in its order too
                                last[key] = _removal_json(document.get("time", ""), passes[key], removal)
    except NoHistoryYet:
        pass
    except HistoryUnusable as error:
        mention(f"historyFile: {error}")
    found = list(reversed(last.values()))
    return [each for each in found if name in (each["removal"]["name"], each["removal"]["id"])] or found


def _removal_json(time: str, of_pass: dict[str, Any], removal: OutcomeJson) -> RemovalJson:
    return {
        "time": time,
        "pass_id": of_pass.get("id", of_pass.get("pass")),
        "trigger": of_pass.get("trigger"),
        "signal": (of_pass.get("acted_on") or {}).get("signal"),
        "removal": removal,
    }


def why_json(place: int | None, outcome: Outcome) -> ObjectJson:
    """One object as in the record of a pass. `place`: its place among those that may go, from 1; None if it stays."""
    eligible = outcome.verdict.eligible_in_seconds
    return {
        **outcome_json(outcome),
        "place": place,
        "in_words": REASONS.get(outcome.verdict.reason, outcome.verdict.reason),
        "eligible_in_seconds": None if eligible is None else round(eligible, 3),
    }


def why_lines(found: ObjectJson) -> list[str]:
    """One object for people."""
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
        lines.append(f"  when:  under pressure, number {found['place']} of those that may go; less may be enough")
    elif found["eligible_in_seconds"] is not None:
        lines.append(f"  when:  it may go in {format_duration(round(found['eligible_in_seconds']))}")
    return list(map(escaped, lines))


def went_lines(went: RemovalJson) -> list[str]:
    """One object that went, for people."""
    removal = went["removal"]
    by = ", ".join(filter(None, (went["trigger"], went["signal"])))
    what = "was gone already" if removal["result"] == Result.ALREADY_GONE else "removed"
    freed = removal["freed"]["bytes"] if "freed" in removal else 0
    lines = [
        f"{removal['kind']} {removal['name']}",
        f"  id:    {removal['id']}",
        f"  went:  {went['time']}, {what} in pass {went['pass_id'] or '-'}" + (f" ({by})" if by else ""),
        f"  why:   {_why(removal)}",
        f"  freed: {format_bytes(freed)}, measured right after it",
    ]
    return list(map(escaped, lines))


def _why(removal: Mapping[str, Any]) -> str:
    """The reason and whose rule it is; an older history may not say it."""
    reason = str(removal.get("reason", "-"))
    whose = "as the kubelet would decide" if removal.get("rule") == Rule.KUBELET else "by a guard of reclaimd's"
    return f"{REASONS.get(reason, reason)} ({reason}), {whose}"
