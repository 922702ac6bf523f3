"""What an operator should know of a configuration, as sentences: for the start, a reload, `status` and `config`."""

from __future__ import annotations

from collections.abc import Iterator

from eviction.configuration.decision import eviction_config
from eviction.configuration.effective import Configuration
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.decision.reclaim_table import FREES
from eviction.reporting.explain import no_effect_sentences
from eviction.reporting.table_problems import row_problems, rows_of
from eviction.types import Threshold
from signals.types import FilesystemRole, SignalObservations

SMALLEST_MARK_BYTES = 1 << 20  # nothing comes to an end in less, and a program that fills never stops in between
NO_THRESHOLD = "no signal of a disk has a threshold, so nothing is ever relieved: set evictionHard"


def configuration_warnings(configuration: Configuration) -> Iterator[str]:
    """The sentences, the worst first. They depend on nothing but the configuration."""
    if has_no_threshold(configuration.thresholds):
        yield NO_THRESHOLD
    if why := defaults_taken(configuration):
        yield f"the kubelet's defaults are taken for its thresholds: {why}; name its file with kubeletConfig"
    elif configuration.kubelet is not None and configuration.kubelet_remark:
        yield f"{configuration.kubelet.name} is taken for the kubelet's configuration: {configuration.kubelet_remark}"
    for one in tiny_marks(() if configuration.kubelet is None else configuration.kubelet.thresholds.thresholds):
        yield f"the kubelet's own mark {tiny_mark(one)}"
    yield from no_effect_sentences(configuration.thresholds)


def table_warnings(configuration: Configuration, observations: SignalObservations) -> list[str]:
    """One sentence for each row, or function of a row, that cannot relieve its signal. Only of configured rows."""
    config = eviction_config(configuration)
    rows = {signal: config.row(signal, observations) for signal in configuration.rows}
    frees = {**FREES, **{function.name: function.frees for function in configuration.functions}}
    marked = {threshold.signal for threshold in config.in_layout(observations.layout)}
    problems = row_problems(rows_of(rows, configuration.rows, frees), marked, observations)
    return [f"{problem.sentence}: {problem.evidence}; {problem.remedy}" for problem in problems]


def has_no_threshold(thresholds: tuple[Threshold, ...]) -> bool:
    """Whether none can take effect; those of containerfs are derived from others."""
    return all(one.signal.filesystem is FilesystemRole.CONTAINERFS for one in thresholds)


def defaults_taken(configuration: Configuration) -> str:
    """Why marks are the kubelet's defaults though its configuration was looked for; empty where they are not."""
    taken = any(one.origin.startswith(KUBELETS_DEFAULTS.name) for one in configuration.thresholds)
    return configuration.kubelet_remark if configuration.kubelet is None and taken else ""


def tiny_marks(thresholds: tuple[Threshold, ...]) -> list[Threshold]:
    """The marks of less than 1 MiB of a disk, such as the `10` that was to be `10%`."""
    return [
        one
        for one in thresholds
        if one.value.quantity is not None and one.value.quantity < SMALLEST_MARK_BYTES and not one.signal.counts_inodes
    ]


def tiny_mark(threshold: Threshold) -> str:
    """Such a mark, as the end of a sentence."""
    return (
        f"{threshold.signal} {threshold.value} is less than 1MiB, so the kubelet acts when the disk is full: "
        f"correct {threshold.origin}"
    )
