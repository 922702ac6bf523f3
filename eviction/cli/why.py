"""`reclaimd why NAME`: what is known of one object, whether it would go now, by which rule, and when.

Read-only.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Literal, TypedDict

from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_RUNTIME
from eviction.cli.daemon_configuration import mention_other_configuration
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    configuration_of,
    exit_with,
)
from eviction.cli.progress import Progress
from eviction.cli.standalone import everything, observe_or_exit
from eviction.node.node import Node
from eviction.reporting.explain import REASONS
from eviction.reporting.json_shapes import Count
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import Pass, Trigger, outcome_json
from eviction.reporting.pass_shapes import OutcomeJson
from eviction.types import API_VERSION
from reclaim.types import Outcome, Result, Rule
from signals.quantity import format_bytes, format_duration

SHORTEST_ID = 8  # of fewer characters nobody means an id
DIGEST = "sha256:"


class ObjectJson(OutcomeJson):
    """One object, and what would become of it."""

    place: Count | None
    """The how many-th of those that may go; null if it stays."""
    in_words: str
    """Its reason in words."""
    eligible_in_seconds: float | None
    """When its age alone lets it go; null if that is not what keeps it."""


class WhyJson(TypedDict):
    """The objects of a name, each with its verdict: the answer of `reclaimd why`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["Why"]
    """What the document is."""
    objects: list[ObjectJson]
    """Those that are meant; at least one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("name", metavar="NAME", help="an image, container or pod: a part of its name, or of its id")
    add_output(parser)
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 there is no such object; 3 runtime unreachable; 4 reading unavailable."""
    configuration = configuration_of(arguments)
    mention_other_configuration(arguments, configuration.control_socket)
    with closing(Node(configuration, dry_run=True)) as node:
        observations, decision = observe_or_exit(node)
        with Progress("listing containers and images, and planning"):
            record = node.responder.reclaim(observations, decision, Trigger.REQUEST, everything(node, observations))
    if record.errors:
        exit_with(EXIT_RUNTIME, "; ".join(record.errors))
    found = objects_named(record, arguments.name)
    if not found:
        exit_with(EXIT_NOT_RELIEVED, f"no object has {arguments.name!r} in its name, or begins its id with it")
    if arguments.output == "json":
        objects = [why_json(place, outcome) for place, outcome in found]
        answer: WhyJson = {"apiVersion": API_VERSION, "kind": "Why", "objects": objects}
        answer_json(answer)
    else:
        answer_lines([line for place, outcome in found for line in why_lines(place, outcome)])
    return EXIT_OK


def objects_named(record: Pass, name: str) -> list[tuple[int | None, Outcome]]:
    """The objects of this name, each with its place among those that may go (from 1), or None if it stays.

    A part of a name is enough; of an id its beginning, eight characters at least. One that bears the whole name is the
    only one that is meant.
    """
    places = [(place, outcome) for place, outcome in enumerate(record.removals, 1)]
    objects = [*places, *((None, outcome) for outcome in record.kept)]
    whole = [each for each in objects if name in (each[1].verdict.name, each[1].verdict.id)]
    return whole or [each for each in objects if _is_named(each[1], name)]


def _is_named(outcome: Outcome, name: str) -> bool:
    verdict = outcome.verdict
    begins = verdict.id.startswith(name) or verdict.id.removeprefix(DIGEST).startswith(name)
    return name in verdict.name or (len(name) >= SHORTEST_ID and begins)


def why_json(place: int | None, outcome: Outcome) -> ObjectJson:
    """One object as in the record of a pass. `place`: the how many-th it would be; null if it stays.
    `eligible_in_seconds`: when its age alone lets it go; null if that is not what keeps it."""
    eligible = outcome.verdict.eligible_in_seconds
    return {
        **outcome_json(outcome),
        "place": place,
        "in_words": REASONS.get(outcome.verdict.reason, outcome.verdict.reason),
        "eligible_in_seconds": None if eligible is None else round(eligible, 3),
    }


def why_lines(place: int | None, outcome: Outcome) -> list[str]:
    """One object for people."""
    verdict = outcome.verdict
    words = REASONS.get(verdict.reason, verdict.reason)
    goes = place is not None and outcome.result is Result.PLANNED
    whose = "as the kubelet would decide" if verdict.rule is Rule.KUBELET else "by a guard of reclaimd's"
    lines = [f"{verdict.kind} {escaped(verdict.name)}"]
    if verdict.id != verdict.name:
        lines.append(f"  id:    {escaped(verdict.id)}")
    if verdict.size_bytes is not None:
        lines.append(f"  size:  {format_bytes(verdict.size_bytes)}")
    if verdict.age_seconds is not None:
        lines.append(f"  age:   {format_duration(round(verdict.age_seconds))}")
    lines.append(f"  {'goes' if goes else 'stays'}: {words} ({verdict.reason}), {whose}")
    if goes:
        lines.append(f"  when:  under pressure, number {place} of those that may go; less may be enough")
    elif verdict.eligible_in_seconds is not None:
        lines.append(f"  when:  it may go in {format_duration(round(verdict.eligible_in_seconds))}")
    return lines
