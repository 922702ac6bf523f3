"""What is free on the filesystems of an observation, as one sum."""

from __future__ import annotations

from reclaim.types import Usage
from signals.types import SignalObservations


def usage_of(observations: SignalObservations) -> Usage:
    """Available and free bytes and free inodes, summed over the distinct filesystems."""
    by_device = {identity.device_id: stats for identity, stats in observations.filesystems.values()}
    return Usage(
        sum(stats.available_bytes for stats in by_device.values()),
        sum(stats.free_bytes for stats in by_device.values()),
        sum(stats.inodes_free for stats in by_device.values()),
    )
