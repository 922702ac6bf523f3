"""Asks the disk once more after a jump, before anything is removed for it.

Space that went at once is often not used: XFS gives back what it has reserved behind a file when the file is closed,
and a file that was allocated at once may be gone again. So where a threshold was crossed by a jump
(`signals.steady_fill`) the filesystem is read four times in 20 ms, and what is missing then is what counts. If it was
the first moment of a fill after all, these readings show it.

Not where waiting is dangerous or of no use: the disk is full within 5 s at its steady rate, less than 16 MiB are left
(500 MiB/s for 32 ms), the step is no faster than a fill is expected to be (512 MiB/s), or it was seen more than 0.25 s
ago. So a steady fill never waits, nor does one of up to 512 MiB/s that begins right at the mark.

Covers: whether to ask again, and what the jump has decided. Does not cover: what is removed (`responder`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from eviction.decision.headroom import FillRates, jump_below, most_urgent_need, update_fill_rates, would_hurry
from eviction.decision.thresholds import thresholds_met, usable
from eviction.types import Threshold
from signals.steady_fill import FASTEST_FILL, WINDOW_SECONDS, Step
from signals.types import SignalObservations, SummaryProvider

WAIT_SECONDS = 0.02
READINGS = 4
FULL_SOON_SECONDS = 5.0
LEAST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """The fill rates after asking again. `jumped_bytes`: the jump, where it decided something; else 0."""

    fill_rates: FillRates
    jumped_bytes: int = 0


def ask_again(
    threshold: Threshold,
    observations: SignalObservations,
    fill_rates: FillRates,
    summary: SummaryProvider,
    stopping: threading.Event,
) -> AskedAgain:
    """Reads the filesystem again if this threshold was crossed by a jump; 20 ms at most, and a stop ends the wait.

    A jump has decided something if the disk would be full within a minute if it were a rate, and if the threshold is
    not met any longer.
    """
    jump = jump_below(threshold, observations, fill_rates)
    if jump is None:
        return AskedAgain(fill_rates)
    no_hurry, latest = would_hurry(threshold, observations, fill_rates), observations
    if _may_wait(jump, threshold, observations, fill_rates):
        for _ in range(READINGS):
            stopping.wait(WAIT_SECONDS / READINGS)
            latest = summary.observe()
            fill_rates = update_fill_rates(fill_rates, latest)
        jump = jump_below(threshold, latest, fill_rates) or jump  # it may not have been over
    need = most_urgent_need([threshold], latest, fill_rates)
    fills = need is not None and need.full_within_a_minute
    gone_again = not thresholds_met([threshold], usable(latest.signals), enforce_min_reclaim=False)
    return AskedAgain(fill_rates, jump.fall if not fills and (no_hurry or gone_again) else 0)


def _may_wait(jump: Step, threshold: Threshold, observations: SignalObservations, fill_rates: FillRates) -> bool:
    need = most_urgent_need([threshold], observations, fill_rates)
    return (
        need is not None
        and need.left >= LEAST_BYTES
        and need.seconds_to_full >= FULL_SOON_SECONDS
        and jump.fall > FASTEST_FILL * jump.seconds
        and observations.time - jump.time <= WINDOW_SECONDS
    )
