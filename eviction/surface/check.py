"""The answer of `reclaimd check`, the same from the daemon and from the command itself.

The daemon reads the filesystems anew for a check; its own state and decisions are not affected. The
client side is in `eviction.cli.client`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eviction.configuration.effective import eviction_config
from eviction.configuration.fingerprint import Fingerprint
from eviction.decision import thresholds as rules
from eviction.engine.view import NodeView
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_READING
from eviction.records.json_shapes import (
    Document,
    ObservationJson,
    RoleName,
    ThresholdJson,
    Versioned,
    observations_json,
    threshold_json,
    to_json,
)
from eviction.surface.answer import Answer, Output, options_of_client, read_options
from eviction.survey.filesystem_facts import FilesystemFacts, filesystem_facts, paths_that_answer
from eviction.types import Fields, Json, NodeCondition, Thresholds
from eviction.wording.explain import (
    amount,
    conditions_in_words,
    disk_pressure,
    signals_table,
    table,
    why_met,
)
from signals.mounts import mounts_of
from signals.quantity import format_bytes
from signals.types import FsLayout, SignalObservations

Ahead = Callable[[SignalObservations], SignalObservations]
"""Adds to the observations what is needed for what is coming."""

LONGEST_LINE = 80  # bytes; node-problem-detector truncates a plugin's message there


@dataclass(frozen=True)
class CheckOptions(Output):
    """The options of the command."""

    npd: bool = False
    """One line for node-problem-detector."""


class UnavailableJson(Document):
    """A filesystem that could not be read."""

    filesystem: RoleName
    """Its role."""
    reason: str
    """Why, for people."""


class CheckJson(Versioned):
    """One observation: the answer of `reclaimd check`."""

    endpoint: str
    """The endpoint of the runtime."""
    conditions: list[NodeCondition]
    """The node conditions that are reported:

    ReclaimPressure is ours, DiskPressure the kubelet's.
    """
    disk_pressure: bool | None
    """Whether the kubelet would report DiskPressure now; null if its thresholds are not known."""
    layout: FsLayout | None
    """How the roles are spread over filesystems; null if that is not known."""
    filesystems: tuple[FilesystemFacts, ...]
    """The filesystems of the signals."""
    observations: list[ObservationJson]
    """What was observed, in the order of the signals."""
    thresholds: list[ThresholdJson]
    """The thresholds in force."""
    thresholds_met: list[ThresholdJson]
    """Those that are met."""
    unavailable: list[UnavailableJson]
    """The filesystems that could not be read."""


def check(node: NodeView, options: CheckOptions, ahead: Ahead = lambda seen: seen) -> Answer:
    """Observes the node. Only a daemon knows how fast it fills.

    Exit code 0: clear; 1: a threshold is met; 4: a signal with a threshold could not be read.
    """
    observations = ahead(node.summary.observe())
    signals = observations.signals
    layout = observations.layout
    thresholds = node.thresholds(layout)
    met = rules.thresholds_met(thresholds, signals)
    unknown = rules.unreadable(observations, thresholds)
    code = EXIT_OK
    if met:
        code = EXIT_NOT_RELIEVED
    elif unknown:
        code = EXIT_READING
    if options.npd:
        return Answer(code, lines=(one_line(observations, met, unknown),))
    filesystems = filesystem_facts(observations, mounts_of(paths_that_answer(observations)))
    config = eviction_config(node.configuration)
    reported = rules.node_conditions(
        reclaim_pressure=rules.raise_pressure(met),
        disk_pressure=bool(rules.kubelets_met(config.kubelets_in_layout(layout), signals)),
    )
    if not options.as_json:
        lines = (
            *signals_table(observations, thresholds, options.width),
            conditions_in_words(reported, config.kubelets is not None, why_met(met, signals)),
            *facts_table(filesystems, options.width),
            f"runtime: {node.endpoint.remark or node.endpoint.runtime}",
        )
        return Answer(code, lines=lines)
    document = CheckJson(
        endpoint=node.endpoint.runtime,
        conditions=sorted(reported),
        disk_pressure=disk_pressure(reported, config.kubelets),
        layout=layout,
        filesystems=filesystems,
        observations=observations_json(observations),
        thresholds=[threshold_json(threshold, observations) for threshold in thresholds],
        thresholds_met=[threshold_json(threshold, observations) for threshold in met],
        unavailable=[
            UnavailableJson(filesystem=each.role, reason=each.reason)
            for each in observations.unavailable
        ],
    )
    return Answer(code, document=to_json(document))


def check_for_client(
    request: Fields, loaded: Fingerprint, node: NodeView, *, ahead: Ahead
) -> Iterator[Json]:
    """The JSON lines of the daemon's answer. `loaded`: the daemon's configuration, which
    must be the client's too. Raises OptionRefused.
    """
    options = read_options(CheckOptions, "check", options_of_client(request, loaded, node))
    yield {"accepted": True}
    yield check(node, options, ahead).line()


def one_line(observations: SignalObservations, met: Thresholds, unknown: Thresholds) -> str:
    """The answer in at most 80 characters."""
    if met:
        low = ", ".join(
            f"{t.signal} {amount(t.signal, observations.signals[t.signal].available)}" for t in met
        )
        text = f"pressure: {low}"
    elif unknown:
        text = f"unknown: {', '.join(str(threshold.signal) for threshold in unknown)}"
    else:
        text = "no disk pressure"
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 3]}..."


def facts_table(filesystems: Sequence[FilesystemFacts], width: int | None = None) -> list[str]:
    if not filesystems:
        return []
    rows = [["FILESYSTEM", "TYPE", "RESERVE", "OPTIONS", "WHAT OF ITS NUMBERS CAN JUMP"]]
    for facts in filesystems:
        roles = ", ".join(facts.filesystems)
        options = "?" if facts.options is None else ",".join(facts.options) or "-"
        rows.append([roles, facts.type or "?", format_bytes(facts.reserve), options, facts.phrase])
    return table(rows, width)
