"""What tests configure leads to nothing of the machine on which they run."""

from __future__ import annotations

from pathlib import Path

from eviction.configuration.effective import Configuration, load
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import write_configuration


def test_no_configuration_of_a_test_leads_to_a_kubelet_of_the_machine(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Neither to its health, which would end a hold-off that a test rests on,
    nor to its configuration.
    """

    def reached(found: Configuration) -> tuple[object, ...]:
        return found.kubelet_healthz, found.kubelet, found.kubelet_access, found.metrics_address

    assert reached(load(str(write_configuration(tmp_path / "reclaimd.yaml")), {}, {})) == (
        None,
        None,
        None,
        None,
    )
    assert reached(load(small_node.configuration(), {}, {})) == (None, None, None, None)
    assert reached(small_node.node().configuration)[:3] == (None, None, None)
