"""Warnings about a configuration, shown at startup, on reload, and by `status`, `config` and `doctor`. Pure.

Does not cover unknown names, which the configuration rejects, and functions that cannot be called (`node.node`).
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

SMALLEST_MARK_BYTES = 1 << 20  # less is gone before anything can be removed
NO_THRESHOLD = "no disk signal has a threshold, so nothing is ever reclaimed: set evictionHard"


class Severity(StrEnum):
    """A problem prevents reclaim, a risk may prevent it, a note needs no action."""

    PROBLEM = "problem"
    RISK = "risk"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong or risky."""

    check: str
    """The name of the check; `eviction/README.md` lists them."""
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
    """Warnings that depend on the configuration alone, the worst first."""
    if has_no_threshold(configuration.thresholds):
        yield NO_THRESHOLD
    if why := defaults_taken(configuration):
        yield f"assuming the kubelet's default thresholds: {why}; name its file with kubeletConfig"
    elif configuration.kubelet is not None and configuration.kubelet_remark:
        name, remark = configuration.kubelet.name, configuration.kubelet_remark
        yield f"{name} is assumed to be the kubelet's configuration: {remark}"
    for one in tiny_marks(() if configuration.kubelet is None else configuration.kubelet.thresholds.thresholds):
        yield f"the kubelet's own mark {tiny_mark(one)}"
    yield from no_effect_sentences(configuration.thresholds)


def table_warnings(configuration: Configuration, observations: SignalObservations) -> list[str]:
    """One sentence for each configured row, or function in one, that cannot relieve its signal."""
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
    """Rows that are empty, that nothing calls, or whose functions free space elsewhere.

    `configured`: the signals whose row the configuration sets. `frees`: by function name, the filesystem on which the
    function frees space; None: any. `marked`: the signals that have a threshold.
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
        if signal not in configured:  # the built-in rows follow the layout
            continue
        if signal not in marked:
            yield risk(
                "row-unused",
                f"nothing calls the row of {signal}",
                f"{signal} is in reclaimTable but has no threshold",
                f"set evictionHard {signal}, or remove the row",
            )
        here = devices.get(signal.filesystem)
        for name in rows[signal]:
            there = devices.get(frees.get(name) or "")
            if here is not None and there is not None and here != there:
                yield risk(
                    "row-elsewhere",
                    f"{name} frees nothing where {signal} is short",
                    f"it frees space on {frees[name]}, which is not the filesystem of {signal.filesystem}",
                    f"move it to a row of {frees[name]}, or correct the frees of {name}",
                )


def has_no_threshold(thresholds: tuple[Threshold, ...]) -> bool:
    """Whether none of them can take effect: those of containerfs never do, as the kubelet derives them from others."""
    return all(one.signal.filesystem is FilesystemRole.CONTAINERFS for one in thresholds)


def defaults_taken(configuration: Configuration) -> str:
    """Why the kubelet's default marks are used although its configuration was looked for; empty if they are not."""
    taken = any(one.origin.startswith(KUBELETS_DEFAULTS.name) for one in configuration.thresholds)
    return configuration.kubelet_remark if configuration.kubelet is None and taken else ""


def tiny_marks(thresholds: tuple[Threshold, ...]) -> list[Threshold]:
    """The marks of less than 1 MiB, such as a `10` that was meant to be `10%`."""
    return [
        one
        for one in thresholds
        if one.value.quantity is not None and one.value.quantity < SMALLEST_MARK_BYTES and not one.signal.counts_inodes
    ]


def tiny_mark(threshold: Threshold) -> str:
    """Such a mark, as the end of a sentence."""
    return (
        f"{threshold.signal} {threshold.value} is less than 1MiB, so the kubelet acts only when the disk is full: "
        f"correct {threshold.origin}"
    )
