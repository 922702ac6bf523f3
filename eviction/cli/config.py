"""`reclaimd config`: the effective values, where each comes from, and the ladder of marks. Read-only."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eviction.cli.options import (
    add_configuration,
    add_output,
    answer,
    columns,
    configuration_of,
    mention_other_configuration,
    print_message,
    view_of,
)
from eviction.configuration.effective import Configuration
from eviction.configuration.kubelet_versions import KubeletVersion
from eviction.decision.thresholds import update_container_fs_thresholds
from eviction.exit_codes import EXIT_OK
from eviction.node.view import NodeView
from eviction.reporting.configuration_warnings import configuration_warnings, table_warnings
from eviction.reporting.explain import (
    LadderMark,
    ladder,
    late_threshold_sentence,
    later_than_kubelet,
    unreachable_sentences,
)
from eviction.reporting.json_shapes import Versioned
from eviction.reporting.tables import amount, not_readable, table
from signals.types import SignalObservations


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfiguration(Versioned):
    """The configuration in force: the answer of `reclaimd config`."""

    kind: Literal["EffectiveConfiguration"] = "EffectiveConfiguration"
    values: Mapping[str, Any]
    """Every field as it would be written in the file; the maps of thresholds include inherited entries."""
    origins: Mapping[str, str]
    """Field, or field.key of a map -> the source of its value."""
    left_to_kubelet: Mapping[str, str]
    """Signal -> its thresholds, which reclaimd leaves to the kubelet."""
    kubelet_version: KubeletVersion
    """As which version the kubelet is taken."""
    ladder: tuple[LadderMark, ...]
    """The marks of each signal in the order in which a filling disk reaches them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 if the configuration is invalid."""
    configuration = configuration_of(arguments, asks_version=True)
    mention_other_configuration(arguments, configuration.control_socket)
    with view_of(configuration) as (node, _):
        observations = node.summary.observe()
    marks, left = _ladder_marks(node, observations), configuration.left_to_kubelet
    record = EffectiveConfiguration(
        values=configuration.effective,
        origins=configuration.origins,
        left_to_kubelet={signal: ", ".join(value for name, value in left if name == signal) for signal, _ in left},
        kubelet_version=configuration.kubelet_version,
        ladder=marks,
    )
    answer(arguments, record, lambda: [*_values(configuration), "", *_ladder(marks, observations)])
    kubelets = configuration.kubelet.thresholds.thresholds if configuration.kubelet is not None else ()
    for sentence in configuration_warnings(configuration):
        print_message(f"warning: {sentence}")
    in_force = node.thresholds(observations.layout)
    for sentence in (*table_warnings(configuration, observations), *unreachable_sentences(in_force, observations)):
        print_message(f"warning: {sentence}")
    for later in later_than_kubelet(in_force, kubelets, observations.signals):
        print_message(f"warning: {late_threshold_sentence(later)}")
    return EXIT_OK


def _ladder_marks(node: NodeView, observations: SignalObservations) -> tuple[LadderMark, ...]:
    kubelet = node.configuration.kubelet
    if kubelet is None:
        return ladder(node.thresholds(observations.layout), (), None, observations.signals)
    high = kubelet.image_gc_high_threshold_percent
    image_gc = None if high == 100 else (high, kubelet.image_gc_low_threshold_percent)
    kubelets = update_container_fs_thresholds(kubelet.thresholds.thresholds, observations.layout)
    return ladder(node.thresholds(observations.layout), kubelets, image_gc, observations.signals)


def _values(configuration: Configuration) -> list[str]:
    rows = [["FIELD", "VALUE", "ORIGIN"]]
    for name, value in configuration.effective.items():
        values = {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {name: value}
        rows += [[field, _shown(each), configuration.origins[field]] for field, each in values.items()]
        rows += [] if values else [[name, "-", "default"]]
    rows += [[signal, text, "left to the kubelet"] for signal, text in configuration.left_to_kubelet]
    rows.append(["kubelet version", configuration.kubelet_version.version, configuration.kubelet_version.origin])
    return table(rows, columns(), "configuration")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "-"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_shown(each)}' for key, each in value.items())}}}"
    return "-" if value in (None, "") else str(value)


def _ladder(marks: tuple[LadderMark, ...], observations: SignalObservations) -> list[str]:
    rows = [["SIGNAL", "AVAILABLE", "MARK", "WHOSE", "WHAT"]]
    for mark in marks:
        available = amount(mark.signal, observations.signals[mark.signal].available)
        rows.append([mark.signal, available, amount(mark.signal, mark.mark), mark.whose, mark.what])
    if len(rows) == 1:
        return ["no filesystem could be read: no ladder", *not_readable(observations)]
    return table(rows, columns(), "ladder")
