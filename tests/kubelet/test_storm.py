"""A storm of pods while reclaimd removes everything unused without a pause."""

from __future__ import annotations

import pytest

from tests.kubelet.conftest import NodeMaker
from tests.kubelet.storm import Storm, storm
from tests.reclaimd_process import reclaimd, write_configuration

PURGE_SECONDS = 300.0  # the limit of one pass, in which the runtime is busy with pods


def storm_beside_reclaimd(make_node: NodeMaker, pods: int) -> Storm:
    """The storm with `reclaimd reclaim --all` after itself."""
    node = make_node(maxPods=500)
    configuration = write_configuration(
        node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields()
    )
    command = (
        "reclaim",
        "--config",
        str(configuration),
        "--signal",
        "imagefs.available",
        "--all",
        "--now",
    )
    return storm(node, pods, lambda: reclaimd(*command, timeout_seconds=PURGE_SECONDS))


def harmed(found: Storm) -> dict[str, int]:
    """How many pods neither ran nor found their image absent, by reason."""
    return {end: count for end, count in found.ends.items() if end not in ("ran", "absent")}


def test_no_image_vanishes_while_a_pod_is_being_made(make_node: NodeMaker) -> None:
    """Fifty pods."""
    found = storm_beside_reclaimd(make_node, 50)
    assert (harmed(found), found.restarted) == ({}, ())
    assert found.ends["ran"] > 0
    assert found.purges > 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_storm_of_250_pods(make_node: NodeMaker) -> None:
    """As they come: about two and a half a second."""
    found = storm_beside_reclaimd(make_node, 250)
    print(f"\nstorm: {found}")  # the figures of the ring
    assert (harmed(found), found.restarted) == ({}, ())
