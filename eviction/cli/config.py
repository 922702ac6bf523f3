"""`reclaimd config`: the effective values, where each comes from, and the ladder of marks. Touches nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from eviction.cli import EXIT_OK
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    columns,
    configuration_of,
    say,
)
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration
from eviction.decision.ladder import Rung, ladder, later_than_kubelet
from eviction.decision.threshold_config import update_container_fs_thresholds
from eviction.node.view import NodeSight
from eviction.reporting.explain import later_sentence, no_effect_sentences
from eviction.reporting.tables import amount, table
from signals.types import SignalObservations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 when the configuration is refused."""
    configuration = configuration_of(arguments)
    node = NodeSight(configuration, read_deadline_seconds=2.0)
    try:
        with Progress("asking the runtime where the images are, and looking at the filesystems"):
            node.locate()
            look = node.summary.observe()
    finally:
        node.close()
    rungs = _rungs(node, look)
    if arguments.output == "json":
        answer_json(
            {
                "values": configuration.effective,
                "origins": configuration.origins,
                "left_to_kubelet": _left_to_kubelet(configuration),
                "ladder": [{"signal": str(r.signal), "mark": r.mark, "what": r.what, "whose": r.whose} for r in rungs],
            }
        )
    else:
        answer_lines([*_values(configuration), "", *_ladder(rungs, look)])
    kubelets = configuration.kubelet.thresholds.thresholds if configuration.kubelet is not None else ()
    for sentence in no_effect_sentences(configuration.thresholds):
        say(f"warning: {sentence}")
    for later in later_than_kubelet(node.thresholds(look.layout), kubelets, look.signals):
        say(f"warning: {later_sentence(later)}")
    return EXIT_OK


def _rungs(node: NodeSight, look: SignalObservations) -> tuple[Rung, ...]:
    kubelet = node.configuration.kubelet
    if kubelet is None:
        return ladder(node.thresholds(look.layout), (), None, look.signals)
    high = kubelet.image_gc_high_threshold_percent
    image_gc = None if high == 100 else (high, kubelet.image_gc_low_threshold_percent)
    kubelets = update_container_fs_thresholds(kubelet.thresholds.thresholds, look.layout)
    return ladder(node.thresholds(look.layout), kubelets, image_gc, look.signals)


def _values(configuration: Configuration) -> list[str]:
    rows = [["FIELD", "VALUE", "ORIGIN"]]
    for name, value in configuration.effective.items():
        if isinstance(value, Mapping):
            rows += [[f"{name}.{key}", text, configuration.origins[f"{name}.{key}"]] for key, text in value.items()]
            rows += [] if value else [[name, "-", "default"]]
        else:
            rows.append([name, _shown(value), configuration.origins[name]])
    rows += [[signal, text, "left to the kubelet"] for signal, text in configuration.left_to_kubelet]
    return table(rows, columns())


def _left_to_kubelet(configuration: Configuration) -> dict[str, str]:
    """Signal -> its values; hard and soft stand side by side."""
    values: dict[str, list[str]] = {}
    for signal, text in configuration.left_to_kubelet:
        values.setdefault(signal, []).append(text)
    return {signal: ", ".join(texts) for signal, texts in values.items()}


def _shown(value: Any) -> str:
    """A value as it would be written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)


def _ladder(rungs: tuple[Rung, ...], look: SignalObservations) -> list[str]:
    rows = [["SIGNAL", "AVAILABLE", "MARK", "WHOSE", "WHAT"]]
    rows += [
        [
            str(rung.signal),
            amount(rung.signal, look.signals[rung.signal].available),
            amount(rung.signal, rung.mark),
            rung.whose,
            rung.what,
        ]
        for rung in rungs
    ]
    if len(rows) == 1:
        return ["no filesystem could be read: no ladder", *(f"{u.role}: {u.reason}" for u in look.unavailable)]
    return table(rows, columns())
