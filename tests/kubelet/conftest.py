"""Every test of this ring needs a real kubelet; where none can be started one test says
so, the others are left out.

All share one API server; each node is a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kubelet.control_plane import ControlPlane, what_is_missing
from tests.kubelet.kubelet import KubeletSettings
from tests.kubelet.node import KubeletNode, kubelet_node

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
    """`make_node(thresholds, drop_ins, **fields of the kubelet)`: a running node."""
    with ExitStack() as stack:

        def make(
            thresholds: Mapping[str, str] | None = None,
            drop_ins: Sequence[Mapping[str, object]] = (),
            **fields: object,
        ) -> KubeletNode:
            settings = KubeletSettings(thresholds or {}, fields, drop_ins)
            return stack.enter_context(kubelet_node(tmp_path / "node", plane, settings))

        yield make
