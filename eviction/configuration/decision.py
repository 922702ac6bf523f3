"""The configuration as decision and polls take it."""

from __future__ import annotations

from eviction.configuration.effective import Configuration
from eviction.decision.headroom import PollPolicy
from eviction.decision.synchronize import EvictionConfig

GAP_INTERVALS = 3.0  # times the longest polling interval
SHORTEST_GAP_SECONDS = 30.0  # one observation takes 6 s when three filesystems hang


def eviction_config(configuration: Configuration) -> EvictionConfig:
    """The part of the configuration that `synchronize` uses."""
    kubelets = None  # not known: the kubelet's configuration was not read, or it has no filesystem here
    if configuration.kubelet is not None and configuration.has_runtime:
        kubelets = configuration.kubelet.thresholds.thresholds
    longest_gap_seconds = max(GAP_INTERVALS * configuration.poll_ceiling_seconds, SHORTEST_GAP_SECONDS)
    return EvictionConfig(
        configuration.thresholds,
        configuration.transition_period_seconds,
        longest_gap_seconds,
        rows=configuration.rows,
        kubelets=kubelets,
    )


def poll_policy(configuration: Configuration) -> PollPolicy:
    """How often filesystems are read."""
    assumed = float(configuration.assumed_fill_rate)
    return PollPolicy(configuration.poll_floor_seconds, configuration.poll_ceiling_seconds, assumed)
