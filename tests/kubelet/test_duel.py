"""A fill beside the kubelet: with reclaimd it never has pressure and no pod is
evicted; on XFS too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.duel import Responder, duel
from tests.real_node.crio import crio_program

RATE_MIB = 50
XFS_RATE_MIB = 100
FAILED = ("fails-0",)  # its container crashes all the time


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_with_reclaimd_beside_it_the_kubelet_has_nothing_to_do(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """At 50 MiB/s; what runs goes on running.

    `make kubelet` has the table of all rates, both sides.
    """
    found = duel(tmp_path / "node", plane, RATE_MIB, responder=Responder.RECLAIMD)
    assert (found.pressure, found.evicted, found.restarted) == (False, (), ())
    assert found.first_freed_seconds is not None
    assert found.lowest_bytes > found.mark_bytes


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_nor_on_xfs_which_allocates_ahead_of_the_file_that_fills_it(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """At 100 MiB/s, one file: with each doubling as much again as it has would be missing at once.
    On CRI-O, which keeps no content beside the layers, all unused images hold less than that:
    there, what runs still goes on."""
    found = duel(tmp_path / "node", plane, XFS_RATE_MIB, responder=Responder.RECLAIMD, fstype="xfs")
    assert found.restarted == ()
    assert found.first_freed_seconds is not None
    if crio_program() is None:
        assert (found.pressure, found.evicted) == (False, ())
    else:
        assert found.evicted in ((), FAILED)
