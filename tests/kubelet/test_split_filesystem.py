"""Images on a filesystem of their own, writable layers with the kubelet's data: each is
relieved by what is on it.

Only CRI-O keeps them apart, and for no other runtime does a kubelet look for them in two places. As
in `test_twins` two nodes are compared: on the first only the kubelet has pressure to answer, on the
second reclaimd answers above the kubelet's mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kubelet import manifests, readings
from tests.kubelet.access import kubelet_fields
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.every_kind import MIB
from tests.kubelet.kubelet import KubeletSettings
from tests.kubelet.manifests import APP
from tests.kubelet.node import GIB, KubeletNode, kubelet_node
from tests.kubelet.test_twins import ENOUGH, Left, left_on
from tests.real_node.crio import crio_program
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import reclaimd, write_configuration

pytestmark = pytest.mark.skipif(
    crio_program() is None, reason="only CRI-O keeps images apart from writable layers (CRIO=)"
)

KUBELETS_MARK = 300 * MIB
OWN_MARK = KUBELETS_MARK + 100 * MIB
BELOW = 40 * MIB
# of the pod that is done: what its container frees of the kubelet's filesystem
LOG_BYTES = 60 * MIB
Relieve = Callable[[KubeletNode, str], None]
UNUSED = [
    Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, 20 * MIB)))
    for number in range(4)
]
IMAGES = [Image(APP, (BASE,)), *UNUSED]
TALKS = (
    "yes a line that says nothing, but is as long as a line of a log may well be | head -c"
    f" {LOG_BYTES}"
)


@contextmanager
def split_node(
    directory: Path, plane: ControlPlane, signal: str = "imagefs.available"
) -> Iterator[KubeletNode]:
    """A node with one pod that runs, one that is done and has a long log,
    and images that nobody uses.
    """
    settings = KubeletSettings({signal: str(KUBELETS_MARK)}, {"containerLogMaxSize": "1Gi"})
    with kubelet_node(
        directory, plane, settings, GIB, images=IMAGES, image_size_bytes=GIB, split=True
    ) as node:
        node.create(manifests.running("serves", APP))
        talks = manifests.container("works", APP, (*manifests.SHELL, TALKS))
        node.create(manifests.pod("done", talks, restart="Never"))
        node.wait_for_phase("serves", "Running")
        node.wait_for_phase("done", "Succeeded")
        yield node


def press(node: KubeletNode, signal: str, mark: int) -> None:
    """Fills the filesystem of a signal to below a mark."""
    fill_bytes(
        readings.filesystem_of(node, signal).mountpoint / "fill", mark - BELOW, fast=True
    ).wait(60.0)


def configured(node: KubeletNode, signal: str) -> Path:
    """reclaimd with a mark above the kubelet's, which does what the kubelet would."""
    return write_configuration(
        node.disk.parent / "reclaimd.yaml",
        **node.reclaimd_fields(),
        **kubelet_fields(node),
        extent="all",
        evictionHard={signal: str(OWN_MARK)},
    )


def relieved(
    directory: Path, plane: ControlPlane, signal: str, mark: int, relieve: Relieve
) -> tuple[Left, Left]:
    """What is there before a filesystem is filled to below a mark, and what is left
    once somebody has made room.
    """
    with split_node(directory, plane, signal) as node:
        before = left_on(node)
        press(node, signal, mark)
        relieve(node, signal)
        assert not [
            pod for pod in node.api.pods().values() if pod["status"].get("reason") == "Evicted"
        ]
        return before, left_on(node)


def by_the_kubelet(node: KubeletNode, _: str) -> None:
    """Waits until it has made room."""
    node.api.wait("the kubelet makes room", lambda: ENOUGH in node.kubelet.log_text(), 90.0)


def by_reclaimd(node: KubeletNode, signal: str) -> None:
    """One pass, above the kubelet's mark."""
    done = reclaimd("reclaim", "--config", str(configured(node, signal)), "--now")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ENOUGH not in node.kubelet.log_text()


def test_the_kubelets_summary_and_our_observations_are_the_same(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Of three filesystems by name; the layout is split."""
    with split_node(tmp_path / "node", plane) as node:
        kubelet, configuration = (
            readings.asking_the_kubelet(node),
            configured(node, "imagefs.available"),
        )
        assert readings.by_reclaimd(configuration)[1] == "split"

        def agree() -> bool:
            return readings.agree(
                readings.by_reclaimd(configuration)[0], readings.by_the_kubelet(kubelet)
            )

        node.api.wait("they agree", agree, 60.0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("signal", "gone_images", "gone_pods"),
    [
        ("imagefs.available", {image.reference for image in UNUSED}, set()),
        ("nodefs.available", set(), {"done"}),
    ],
    ids=["images", "layers"],
)
def test_the_same_goes(
    plane: ControlPlane, tmp_path: Path, signal: str, gone_images: set[str], gone_pods: set[str]
) -> None:
    """As when the kubelet makes room: images alone, or containers with their logs
    alone; and no pod is evicted.
    """
    before, kubelets = relieved(tmp_path / "k", plane, signal, KUBELETS_MARK, by_the_kubelet)
    assert relieved(tmp_path / "r", plane, signal, OWN_MARK, by_reclaimd) == (before, kubelets)
    assert kubelets.images == before.images - gone_images
    assert {name for name, *_ in kubelets.containers} == {"serves", "done"} - gone_pods
