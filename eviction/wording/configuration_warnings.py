"""Warnings about a configuration, shown at startup, on reload, and by `status`,
`config` and `doctor`. Pure.

Does not cover unknown names, which the configuration rejects, and functions that
cannot be called (`engine.node`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from eviction.configuration.effective import Configuration, eviction_config
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.types import Thresholds
from eviction.wording.explain import later_than_kubelet, no_effect_sentences, unreachable_sentences
from reclaim.kubelet.versions import DROP_INS_REMOVE, MERGES_DEFAULTS
from reclaim.types import FREES
from signals.types import FilesystemRole, Signal, SignalObservations, in_order

SMALLEST_MARK_BYTES = 1 << 20  # less is gone before anything can be removed


class Severity(StrEnum):
    """A problem prevents reclaim, a risk may prevent it, a note needs no action."""

    PROBLEM = "problem"
    RISK = "risk"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """What is wrong or risky."""

    check: str
    """The name of the check; `reclaimd help NAME` explains it."""
    sentence: str
    """What is wrong."""
    evidence: str
    """What shows it."""
    remedy: str
    """What to do."""
    level: Severity
    """A problem prevents reclaim, a risk may prevent it, a note needs no action."""


problem, risk, note = (partial(Finding, level=level) for level in Severity)


def configuration_warnings(configuration: Configuration) -> Iterator[str]:
    """Warnings that depend on the configuration alone, the worst first."""
    if has_no_threshold(configuration.thresholds):
        yield "no disk signal has a threshold, so nothing is ever reclaimed: set evictionHard"
    yield from map(_in_a_sentence, kubelet_findings(configuration))
    yield from no_effect_sentences(configuration.thresholds)


def warnings_on_node(
    configuration: Configuration, observations: SignalObservations
) -> Iterator[str]:
    """Warnings that depend on the node, too: of configured rows, or functions in one,
    that cannot relieve their signal, and of thresholds that are out of reach, or act
    later than the kubelet's own."""
    config = eviction_config(configuration)
    in_force = config.in_layout(observations.layout)
    yield from map(_in_a_sentence, row_findings(configuration, observations, configuration.rows))
    yield from unreachable_sentences(in_force, observations)
    yield from later_than_kubelet(in_force, config.kubelets or (), observations.signals)


def _in_a_sentence(found: Finding) -> str:
    return f"{found.sentence}: {found.evidence}; {found.remedy}"


def row_findings(
    configuration: Configuration, observations: SignalObservations, signals: Collection[Signal]
) -> Iterator[Finding]:
    """Rows of these signals that are empty, that nothing calls, or whose
    functions free space elsewhere.
    """
    config = eviction_config(configuration)
    frees = {**FREES, **{function.name: function.frees for function in configuration.functions}}
    marked = {threshold.signal for threshold in config.in_layout(observations.layout)}
    devices: dict[str, int] = {
        role: identity.device_id for role, (identity, _) in observations.filesystems.items()
    }
    for signal in in_order(signals):
        row = config.row(signal, observations)
        kubelets = signal.filesystem.kubelets and signal not in configuration.rows
        unknown = kubelets and observations.layout is None  # then each of its rows is empty
        if signal in marked and not row and not unknown:
            why = "no function is in its row"
            if kubelets:
                why = "in this layout the kubelet's own row is empty too"
            yield (note if kubelets else problem)(
                "row-empty",
                f"nothing relieves {signal}: its row of the reclaim table is empty",
                why,
                remedy=f"name functions for {signal} in reclaimTable",
            )
        if signal not in configuration.rows:  # the built-in rows follow the layout
            continue
        if signal not in marked:
            yield risk(
                "row-unused",
                f"nothing calls the row of {signal}",
                f"{signal} is in reclaimTable but has no threshold",
                remedy=f"set evictionHard {signal}, or remove the row",
            )
        here = devices.get(signal.filesystem)
        for name in row:
            there = devices.get(frees[name])
            if here is not None and there is not None and here != there:
                yield risk(
                    "row-elsewhere",
                    f"{name} frees nothing where {signal} is short",
                    f"it frees space on {frees[name]}, which is not the filesystem of"
                    f" {signal.filesystem}",
                    remedy=f"move it to a row of {frees[name]}, or correct the frees of {name}",
                )


def has_no_threshold(thresholds: Thresholds) -> bool:
    """Whether none of them can take effect: those of containerfs never do, as the kubelet
    derives them from others.
    """
    return {threshold.signal.filesystem for threshold in thresholds} <= {FilesystemRole.CONTAINERFS}


def kubelet_findings(configuration: Configuration) -> Iterator[Finding]:
    """Whether the kubelet's own settings are known, and its marks plausible."""
    kubelet = configuration.kubelet
    remark = configuration.kubelet_remark
    assumed = "assuming the kubelet's default thresholds"
    origins = (threshold.origin for threshold in configuration.thresholds)
    if kubelet is not None:
        assumed = f"{kubelet.name} is assumed to be the kubelet's configuration"
    elif not any(origin.startswith(KUBELETS_DEFAULTS.name) for origin in origins):
        return
    if remark:
        yield risk(
            "kubelet-config",
            assumed,
            remark,
            remedy='name its file with kubeletConfig ("": there is none)',
        )
    if kubelet is None:
        return
    version = configuration.kubelet_version
    if kubelet.depends_on_version and version.assumed:
        changes = "; ".join(
            f"since 1.{change.since} {change.what}" for change in (DROP_INS_REMOVE, MERGES_DEFAULTS)
        )
        yield risk(
            "kubelet-version",
            f"the kubelet's settings depend on its version, for which {version.version} is assumed",
            f"{changes}; {version.assumed}",
            remedy="set kubeletEndpoint, for an identity that may get nodes/metrics",
        )
    for threshold in kubelet.thresholds.thresholds:
        signal = threshold.signal
        size = threshold.value.quantity or SMALLEST_MARK_BYTES
        if size < SMALLEST_MARK_BYTES and not signal.counts_inodes:
            yield risk(
                "thresholds-tiny",
                f"the kubelet's own mark {signal} is less than 1MiB, so it acts only when the"
                " disk is full",
                f"{threshold.value} in {threshold.origin}",
                remedy="give it a unit: 10% or 10Gi, not 10",
            )
