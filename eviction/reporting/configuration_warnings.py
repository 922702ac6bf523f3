"""What an operator should know about a configuration: for the start, a reload, `status`, `config` and `doctor`. Pure.

Does not cover: names that nothing has, which the configuration refuses, and functions that cannot be called
(`node.node`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from eviction.configuration.effective import Configuration, eviction_config
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.reporting.explain import no_effect_sentences
from eviction.types import Threshold
from reclaim.types import FREES
from signals.types import FilesystemRole, Signal, SignalObservations, in_order

SMALLEST_MARK_BYTES = 1 << 20  # nothing comes to an end in less, and a program that fills never stops in between
NO_THRESHOLD = "no signal of a disk has a threshold, so nothing is ever relieved: set evictionHard"


class Severity(StrEnum):
    """A problem prevents reclaim, a risk may prevent it, a note needs no action."""

    PROBLEM = "problem"
    RISK = "risk"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong or risky."""

    check: str
    """The name of the check; those of a release are in `eviction/README.md`."""
    level: Severity
    """A problem prevents reclaim, a risk may prevent it, a note needs no action."""
    sentence: str
    """What is wrong."""
    evidence: str
    """What shows it."""
    remedy: str
    """What to do."""


def problem(check: str, sentence: str, evidence: str, remedy: str) -> Finding:
    """A finding that prevents reclaim."""
    return Finding(check, Severity.PROBLEM, sentence, evidence, remedy)


def risk(check: str, sentence: str, evidence: str, remedy: str) -> Finding:
    """A finding that may prevent reclaim."""
    return Finding(check, Severity.RISK, sentence, evidence, remedy)


def note(check: str, sentence: str, evidence: str, remedy: str) -> Finding:
    """A finding that needs no action."""
    return Finding(check, Severity.NOTE, sentence, evidence, remedy)


def configuration_warnings(configuration: Configuration) -> Iterator[str]:
    """The sentences, the worst first. They depend only on the configuration."""
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
    problems = row_problems(rows, configuration.rows, frees, marked, observations)
    return [f"{found.sentence}: {found.evidence}; {found.remedy}" for found in problems]


def row_problems(
    rows: Mapping[Signal, tuple[str, ...]],
    configured: Collection[Signal],
    frees: Mapping[str, str | None],
    marked: Collection[Signal],
    observations: SignalObservations,
) -> Iterator[Finding]:
    """Rows that are empty, that nothing calls, or whose functions free elsewhere.

    `configured`: the signals whose row is the configuration's. `frees`: by the name of each function, the filesystem on
    which it frees; None: on any. `marked`: the signals that have a threshold.
    """
    devices: dict[str, int] = {role: found.device_id for role, (found, _) in observations.filesystems.items()}
    for signal in in_order(rows):
        if signal in marked and not rows[signal]:
            kubelets = signal.filesystem.kubelets and signal not in configured
            yield Finding(
                "row-empty",
                Severity.NOTE if kubelets else Severity.PROBLEM,
                f"nothing relieves {signal}: its row of the reclaim table is empty",
                "in this layout the kubelet's own row is empty too" if kubelets else "no function is in its row",
                f"name functions for {signal} in reclaimTable",
            )
        if signal not in configured:  # the built-in ones follow the layout
            continue
        if signal not in marked:
            yield risk(
                "row-unused",
                f"nothing calls the row of {signal}",
                f"{signal} is in reclaimTable and has no threshold",
                f"set evictionHard {signal}, or remove the row",
            )
        here = devices.get(signal.filesystem)
        for name in rows[signal]:
            there = devices.get(frees.get(name) or "")
            if here is not None and there is not None and here != there:
                yield risk(
                    "row-elsewhere",
                    f"{name} frees nothing where {signal} is short",
                    f"it frees on {frees[name]}, which is another filesystem than {signal.filesystem}",
                    f"put it into a row of {frees[name]}, or correct frees of {name}",
                )


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
