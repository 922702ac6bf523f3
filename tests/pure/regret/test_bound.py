"""The bound on bytes that are pulled again is one: no order is below it, and little ones are exact."""

from __future__ import annotations

import pytest

from tests.bench.regret.bound import least_bytes_again
from tests.bench.regret.node import Node
from tests.bench.regret.policies import Offline, Reclaimd
from tests.bench.regret.workloads import GIB, WORKLOADS, Start, ci_fleet
from tests.pure.regret.test_node import at_intervals, singles, trace

# of 10 GiB, 8.5 are above the kubelet's mark
TURNS = at_intervals(*[0, 1] * 50)
LONG = Start(0, 2, 400_000, GIB)  # runs all the while, and has written as much as its image has


@pytest.mark.parametrize(
    ("sizes", "starts", "gib"),
    [
        pytest.param((4, 4), TURNS, 0, id="two that fit beside each other stay"),
        pytest.param((6, 6), TURNS, 98 * 3.5, id="of two that do not, 2.5 of 6 GiB can stay"),
        pytest.param((6, 6), [*TURNS, Start(1e6, 0, 60)], 99 * 3.5, id="quiet times lend nothing"),
        pytest.param((3, 4, 0), [LONG, *TURNS], 0, id="two that fit beside what is in use stay"),
        pytest.param((4, 4, 2), [LONG, *TURNS], 98 * 2.5, id="what is in use leaves less room"),
        pytest.param((4,), [], 0, id="nothing is needed"),
    ],
)
def test_little_bounds_are_exact(sizes: tuple[int, ...], starts: list[Start], gib: float) -> None:
    """What has to be pulled again of images of so many GiB."""
    assert least_bytes_again(trace(singles(*sizes), *starts)) / GIB == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_no_order_is_below_the_bound(seed: int) -> None:
    """A real trace, under the two that are best."""
    of = ci_fleet(seed, days=2)
    bound = least_bytes_again(of)
    for policy in (Offline(of), Reclaimd()):
        assert Node(of, policy).run().again_bytes >= bound
    assert WORKLOADS.keys() == {"ci", "service", "ml", "edge"}
