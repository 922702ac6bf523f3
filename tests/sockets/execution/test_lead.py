"""A pass that the lead began, before its mark is reached."""

from __future__ import annotations

from dataclasses import replace

from eviction.record import Trigger
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode

FILL = float(1 << 30)  # bytes a second: far less time is left than removals take


def test_a_pass_that_the_lead_began_removes_one_object_while_its_mark_is_not_reached(small_node: SmallNode) -> None:
    """At that rate it stays urgent, so every image would be removed if there were no bound."""
    images = small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=-MIB)
    node.locate()
    node.responder.synchronize()
    observations, decision = node.responder.synchronize()
    assert decision.acted_on is None, "the mark is not reached"
    rates = node.responder.fill_rates
    node.responder.fill_rates = {key: replace(rate, fastest=FILL, steady_rate=FILL) for key, rate in rates.items()}
    config = node.responder.state.config
    threshold = next(one for one in config.in_layout(observations.layout) if one.signal is Signal.NODEFS_AVAILABLE)
    led = replace(decision, acted_on=threshold, row=config.row(threshold.signal, observations))
    record = node.responder.reclaim(observations, led, Trigger.LEAD)
    assert small_node.removed() == images[:1], record.reason
