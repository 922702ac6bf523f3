"""Observations and thresholds in JSON. The fields are a stable interface for programs, as those of `pass_record`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eviction.types import Threshold
from signals.types import SignalObservation, SignalObservations, in_order


def timestamp(wall: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def observation_json(observation: SignalObservation, observations: SignalObservations) -> dict[str, Any]:
    """One observation; its time is when the filesystem was read, in wall time."""
    time = None
    if observation.time is not None:
        time = timestamp(observations.wall_time - (observations.time - observation.time))
    filesystem = observation.filesystem
    return {
        "signal": str(observation.signal),
        "available": observation.available,
        "capacity": observation.capacity,
        "time": time,
        "stale": observation.stale,
        "filesystem": None
        if filesystem is None
        else {"path": filesystem.path, "device": filesystem.device, "type": filesystem.type},
    }


def observations_json(observations: SignalObservations) -> list[dict[str, Any]]:
    """All observations, in the order of the signals."""
    return [observation_json(observations.signals[signal], observations) for signal in in_order(observations.signals)]


def threshold_json(threshold: Threshold, observations: SignalObservations) -> dict[str, Any]:
    """One threshold; `effective` is its mark in bytes or inodes, null while the capacity is unknown."""
    observation = observations.signals.get(threshold.signal)
    effective = None if observation is None else threshold.mark(observation.capacity)
    return {
        "signal": str(threshold.signal),
        "value": str(threshold.value),
        "margin": None if threshold.margin is None else str(threshold.margin),
        "effective": effective,
        "min_reclaim": None if threshold.min_reclaim is None else str(threshold.min_reclaim),
        "hard": threshold.hard,
        "grace_seconds": threshold.grace_seconds,
        "origin": threshold.origin,
    }
