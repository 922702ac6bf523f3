"""What the simulator compares as ours is what ships: the same orders as the product's own plans."""

from __future__ import annotations

import pytest

from reclaim.evidence.references import ImagesInUse
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import Image, ImageOrder, ImageRecord, Layers, Listing
from tests.lab.bench.regret.node import Node
from tests.lab.bench.regret.policies import Alone, ByCost, Reclaimd
from tests.lab.bench.regret.workloads import GIB, ci_fleet

pytestmark = pytest.mark.house("reclaim/images", "tests/lab/bench/regret")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("order", "ours"), [(ImageOrder.LRU, Reclaimd), (ImageOrder.COST, ByCost)])
def test_ours_is_the_order_of_the_plan(order: ImageOrder, ours: type[Reclaimd], seed: int) -> None:
    """A node after half a day, asked for 5 GiB: what its runtime would list, its
    records and layers, as a plan.
    """
    node = Node(ci_fleet(seed, days=0.5), Alone())
    node.run()
    catalogue, layers = node.trace.catalogue, ByCost()
    images, records = [], {}
    for number, each in node.present.items():
        tag = f"registry.example/repository-{catalogue.images[number].repository}:{number}"
        images.append(Image(str(number), (tag,), size_bytes=catalogue.bytes_of(number)))
        used = node.now if each.running else max(each.last_used, each.detected)
        records[str(number)] = ImageRecord(
            each.detected,
            used,
            uses=each.uses,
            returned=each.returned,
            counted_since=each.counted_since,
        )
    in_use = frozenset(str(number) for number, each in node.present.items() if each.running)
    plan = plan_image_gc(
        Listing(tuple(images)),
        records,
        ImageGCPolicy(order=order),
        now=node.now,
        usage=ImagesInUse(in_use, frozenset(), (), sandbox_image_known=True),
        layers=Layers({str(number): layers._of(node, number) for number in node.present}),
        need_bytes=5 * GIB,
    )
    planned = [int(verdict.id) for verdict in plan.remove]
    assert len(planned) > 20
    assert list(ours().order(node, node.unused(), 5 * GIB)) == planned
