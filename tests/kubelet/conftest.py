"""Every test of this ring needs a real kubelet; where none can be started one test says
so, the others are left out.

All share one API server; each node is a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.buildah import skip_without_buildah
from tests.bundles import unpacked_wheels
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.kubectl import missing_kubectl
from tests.kubelet.kubelet import KubeletSettings
from tests.kubelet.node import GIB, KubeletNode, kubelet_node
from tests.kubelet.program_image import ProgramImage, write_program_image
from tests.kubelet.programs import what_is_missing

HERE = Path(__file__).parent

NodeMaker = Callable[..., KubeletNode]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a kubelet one test is left, which is skipped with the reason:
    one line, not one for each.
    """
    if not (sentence := what_is_missing()):
        return
    here = [item for item in items if HERE in item.path.parents]
    for item in here[:1]:
        item.add_marker(pytest.mark.skip(reason=sentence))
    if here[1:]:
        config.hook.pytest_deselected(items=here[1:])
        items[:] = [item for item in items if item not in here[1:]]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and an API server."""
    with ControlPlane(tmp_path_factory.mktemp("plane") / "cluster") as running:
        yield running


@pytest.fixture
def make_node(plane: ControlPlane, tmp_path: Path) -> Iterator[NodeMaker]:
    """`make_node(thresholds, size_bytes=2 GiB, fstype="ext4", image_size_bytes=0, drop_ins=(),
    **fields of the kubelet)`: a running node."""
    with ExitStack() as stack:

        def make(
            thresholds: dict[str, str] | None = None,
            size_bytes: int = 2 * GIB,
            fstype: str = "ext4",
            image_size_bytes: int = 0,
            drop_ins: Sequence[dict[str, object]] = (),
            **fields: object,
        ) -> KubeletNode:
            directory = tmp_path / f"node{len(list(tmp_path.glob('node*')))}"
            settings = KubeletSettings(thresholds or {}, fields, drop_ins)
            return stack.enter_context(
                kubelet_node(
                    directory,
                    plane,
                    settings,
                    size_bytes,
                    fstype,
                    image_size_bytes=image_size_bytes,
                )
            )

        yield make


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> ProgramImage:
    """The image of the program."""
    skip_without_buildah()
    if sentence := missing_kubectl():
        pytest.skip(sentence)
    return write_program_image(
        tmp_path_factory.mktemp("image") / "image", unpacked_wheels(tmp_path_factory)
    )
