"""After a jump the disk is asked again, where that is not dangerous; a fill that has just begun is none."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from eviction.decision.headroom import FillRates, update_fill_rates
from eviction.node.jump import LEAST_BYTES, READINGS, WAIT_SECONDS, AskedAgain, ask_again
from signals.types import FilesystemIdentity, FilesystemRole, FsLayout, Signal, SignalObservation, SignalObservations
from tests.pure.values import GIB, MIB, filling, stats, threshold

DISK = FilesystemIdentity("/images", 1)
MARK = threshold(Signal.NODEFS_AVAILABLE, str(GIB), min_reclaim=str(64 * MIB))


def observed(time: float, available: int) -> SignalObservations:
    """One filesystem of 100 GiB."""
    signal = Signal.NODEFS_AVAILABLE
    return SignalObservations(
        {signal: SignalObservation(signal, available, 100 * GIB, time, filesystem=DISK)},
        FsLayout.SINGLE,
        time,
        filesystems={FilesystemRole.NODEFS: (DISK, stats(available_bytes=available, time=time))},
    )


class Script:
    """A SummaryProvider that reads these amounts, each 5 ms after the one before, and then the last one."""

    def __init__(self, time: float, amounts: Sequence[int]):
        self._time = time
        self._amounts = list(amounts)
        self.readings = 0

    def observe(self) -> SignalObservations:
        """The next reading."""
        self.readings += 1
        self._time += WAIT_SECONDS / READINGS
        return observed(self._time, self._amounts.pop(0) if len(self._amounts) > 1 else self._amounts[0])


def rates_of(*readings: tuple[float, int]) -> FillRates:
    """The fill rates after these readings."""
    rates: FillRates = {}
    for time, available in readings:
        rates = update_fill_rates(rates, observed(time, available))
    return rates


def asked(readings: Sequence[tuple[float, int]], *then: int) -> tuple[AskedAgain, int]:
    """What is asked again after these readings, and how many readings that took."""
    time, available = readings[-1]
    script = Script(time, then or [available])
    answer = ask_again(MARK, observed(time, available), rates_of(*readings), script, threading.Event())
    return answer, script.readings


REST = [(0.0, 2 * GIB), (1.0, 2 * GIB)]
LEFT = 900 * MIB
JUMPED = [*REST, (1.01, LEFT)]


def test_a_jump_is_read_again_and_decides_that_there_is_no_hurry() -> None:
    """1.1 GiB went in 10 ms: as a rate the disk would be full within a second; four readings say that nothing fills."""
    answer, readings = asked(JUMPED)
    assert (answer.jumped_bytes, readings) == (2 * GIB - LEFT, READINGS)


def test_a_jump_that_comes_back_decides_that_nothing_is_missing() -> None:
    """The threshold is not met any longer."""
    answer, _ = asked(JUMPED, LEFT, 2 * GIB)
    assert answer.jumped_bytes == 2 * GIB - LEFT


@pytest.mark.parametrize("rate", [200 * MIB, 400 * MIB])
def test_after_a_jump_a_fill_that_goes_on_is_in_a_hurry(rate: int) -> None:
    """It shows in four readings, and the jump decides nothing. A slower one shows while the pass goes on."""
    step = int(rate * WAIT_SECONDS / READINGS)
    answer, readings = asked([*REST, (1.01, LEFT)], *[LEFT - step * (count + 1) for count in range(READINGS)])
    assert (answer.jumped_bytes, readings) == (0, READINGS)
    assert answer.fill_rates[1, False].steady_rate * 60 > LEFT


@pytest.mark.parametrize(
    "readings",
    [
        [*REST, (1.01, LEAST_BYTES - 1)],
        [*REST, (4.0, LEFT)],
        [*JUMPED, (1.5, LEFT)],
        [*REST, (1.01, GIB + 5 * MIB), (1.2, GIB - 5 * MIB)],
        [(0.0, GIB - 1), (1.0, GIB - 1)],
    ],
    ids=["next to nothing is left", "no faster than a fill can be", "half a second ago", "no jump", "met before"],
)
def test_where_waiting_is_dangerous_or_of_no_use_nothing_is_read_again(readings: list[tuple[float, int]]) -> None:
    """The pass begins at once."""
    assert asked(readings)[1] == 0


def test_a_disk_that_is_full_within_seconds_by_its_steady_rate_is_not_read_again() -> None:
    """A jump amid a fill of 400 MiB/s that leaves 900 MiB."""
    rates = {key: filling(rate, 400 * MIB) for key, rate in rates_of(*REST).items()}
    rates = update_fill_rates(rates, observed(1.01, LEFT))
    script = Script(1.01, [LEFT])
    assert ask_again(MARK, observed(1.01, LEFT), rates, script, threading.Event()).jumped_bytes == 0
    assert script.readings == 0


def test_a_stop_ends_the_wait() -> None:
    """The readings follow at once, and the pass sees by itself that it may not start."""
    stopping = threading.Event()
    stopping.set()
    script = Script(1.01, [LEFT])
    assert ask_again(MARK, observed(1.01, LEFT), rates_of(*JUMPED), script, stopping).jumped_bytes
