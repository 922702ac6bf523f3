"""The effective thresholds: the kubelet's plus the margin, and our own in place of them.

* Inherited are the kubelet's effective thresholds; without a kubelet configuration its defaults on Linux. They are
  raised by the margin, so that reclaimd acts before the kubelet does.
* A signal that our own maps name replaces the inherited one, and gets no margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eviction.configuration.file import ConfigurationFile
from eviction.configuration.kubelet import KubeletConfiguration
from eviction.configuration.sources import DEFAULT, Origins
from eviction.configuration.strict_yaml import quoted
from eviction.configuration.threshold_config import (
    KUBELET_EVICTION_HARD,
    EvictionMaps,
    ThresholdConfigError,
    parse_threshold_config,
)
from eviction.types import Threshold, ThresholdValue
from signals.quantity import PERCENTAGE_FORMS, QUANTITY_FORMS, QuantityError, parse_percentage, parse_quantity
from signals.types import KUBELET_SIGNALS, Signal

DEFAULT_MINIMUM_RECLAIM: Mapping[str, str] = {Signal.NODEFS_AVAILABLE: "2%", Signal.IMAGEFS_AVAILABLE: "2%"}
DEFAULT_OWN_MINIMUM_RECLAIM = "2%"
LARGEST_MARGIN = 0.5


def name_of(kubelet: KubeletConfiguration | None) -> str:
    """The origin of inherited values: the kubelet's file, or its defaults."""
    return kubelet.name if kubelet is not None else "the kubelet's default"


def effective_thresholds(
    written: ConfigurationFile,
    kubelet: KubeletConfiguration | None,
    origins: Origins,
    signals: Sequence[Signal] = KUBELET_SIGNALS,
) -> tuple[tuple[Threshold, ...], tuple[tuple[str, str], ...], dict[str, dict[str, str]]]:
    """The thresholds, what is left to the kubelet (signal and value), and the four maps as they are in force.

    `signals`: those of the node. Nothing is inherited where the kubelet's are not among them. Raises
    ConfigurationError.
    """
    inherited = kubelet.maps if kubelet is not None else EvictionMaps(KUBELET_EVICTION_HARD, {}, {}, {})
    if not set(KUBELET_SIGNALS) <= set(signals):
        inherited = EvictionMaps({}, {}, {}, {})
    own = [signal for signal in signals if signal not in KUBELET_SIGNALS and not signal.counts_inodes]
    minimum_reclaim: dict[str, str] = {**DEFAULT_MINIMUM_RECLAIM, **dict.fromkeys(own, DEFAULT_OWN_MINIMUM_RECLAIM)}
    maps: dict[str, dict[str, str]] = {
        "evictionHard": {**inherited.hard, **written.evictionHard},
        "evictionSoft": {**inherited.soft, **written.evictionSoft},
        "evictionSoftGracePeriod": {**inherited.soft_grace_period, **written.evictionSoftGracePeriod},
        "evictionMinimumReclaim": {
            **{signal: text for signal, text in minimum_reclaim.items() if signal in signals},
            **inherited.minimum_reclaim,
            **written.evictionMinimumReclaim,
        },
    }
    maps = {name: {str(key): text for key, text in entries.items()} for name, entries in maps.items()}
    try:
        parsed = parse_threshold_config(EvictionMaps(*maps.values()), signals=signals)
    except ThresholdConfigError as error:
        raise origins.error(error.field, error.problem, error.signal) from None
    margin = _margin(written.margin, origins)
    inherited_origin = name_of(kubelet)
    thresholds = tuple(
        _with_origin_and_margin(threshold, origins.of(threshold.origin, threshold.signal), inherited_origin, margin)
        for threshold in parsed.thresholds
    )
    left = kubelet.thresholds.left_to_kubelet if kubelet is not None else parsed.left_to_kubelet
    return thresholds, left, maps


def _with_origin_and_margin(threshold: Threshold, own: str, inherited: str, margin: ThresholdValue) -> Threshold:
    """A threshold with the name of its source and, if it is inherited, the margin."""
    if own != DEFAULT:
        return replace(threshold, origin=own)
    applies = margin.percentage is not None or not threshold.signal.counts_inodes
    raised = margin if applies and margin.amount(2**62) > 0 else None
    return replace(
        threshold, margin=raised, origin=inherited if raised is None else f"{inherited} plus margin {raised}"
    )


def _margin(text: str, origins: Origins) -> ThresholdValue:
    """A share of the capacity, 0% to 50%, or bytes, which raise only the marks of the `available` signals."""
    try:
        if text.endswith("%"):
            margin = ThresholdValue(percentage=parse_percentage(text))
        else:
            margin = ThresholdValue(quantity=parse_quantity(text))
    except QuantityError:
        raise origins.error("margin", f"{quoted(text)} is neither {PERCENTAGE_FORMS} nor {QUANTITY_FORMS}") from None
    if margin.percentage is not None and not 0 <= margin.percentage.fraction <= LARGEST_MARGIN:
        raise origins.error("margin", f"must be between 0% and 50%, but it was {text!r}")
    if margin.quantity is not None and margin.quantity < 0:
        raise origins.error("margin", f"must not be negative, but it was {text!r}")
    return margin
