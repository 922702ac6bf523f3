"""A pytest plugin for other projects: fixtures with a node under disk pressure.

    embedded_runtime    the node of a scenario: small real filesystems, and on them a CRI runtime
    pressured_node      the same node after the pressure of the scenario: it is below its marks
    fill                fills the node of the test: fill("24Mi")

`@pytest.mark.reclaimd_scenario(…)` chooses another scenario: a name, a file, or a mapping.

Each test gets its own node. The filesystems are mounted in a private mount namespace, which the
pytest process enters before the first test if any test uses a fixture of these. If that is not
allowed, those tests are skipped with the reason. Without the extra `drill` (grpcio) they fail
and say how to install it. Everything else is imported when a fixture is used, so other test
suites load only this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eviction.drill.guest_node import GuestNode
    from eviction.drill.runtime.private_mounts import PrivateMounts
    from eviction.drill.scenario import Scenario

MARKER = "reclaimd_scenario"
DEFAULT = "pressured-node"
FIXTURES = frozenset({"embedded_runtime", "pressured_node", "fill"})
NO_ROOT = "needs root to mount filesystems; as another user, run unshare -Urm pytest"

_MOUNTS: pytest.StashKey[PrivateMounts] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line(
        "markers", f"{MARKER}(scenario): the scenario of reclaimd's drill that makes the node"
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Enters the mount namespace if any test needs it, while there is only one thread."""
    wanted = any(FIXTURES & set(getattr(item, "fixturenames", ())) for item in session.items)
    if not wanted or session.config.option.collectonly or os.geteuid() != 0:
        return
    from eviction.drill.runtime.private_mounts import enter_private_mounts

    session.config.stash[_MOUNTS] = enter_private_mounts()


@pytest.fixture
def embedded_runtime(request: pytest.FixtureRequest) -> Iterator[GuestNode]:
    """The node of the test's scenario: see `GuestNode`."""
    from eviction.drill.runtime.private_mounts import missing_extra

    if (missing := missing_extra()) is not None:
        pytest.fail(missing, pytrace=False)
    mounts = request.config.stash.get(_MOUNTS, None)
    if mounts is None or not mounts.available:
        pytest.skip(NO_ROOT if mounts is None else f"cannot mount filesystems: {mounts.reason}")
    from eviction.drill.guest_node import guest_node  # brings grpcio, and with it threads

    with guest_node(_scenario_of(request), mounts) as node:
        yield node


@pytest.fixture
def pressured_node(embedded_runtime: GuestNode) -> GuestNode:
    """The same node below its marks."""
    embedded_runtime.press()
    return embedded_runtime


@pytest.fixture
def fill(embedded_runtime: GuestNode) -> Callable[..., int]:
    """`GuestNode.fill` of the node of the test."""
    return embedded_runtime.fill


def _scenario_of(request: pytest.FixtureRequest) -> Scenario:
    """The scenario of the marker, or the default one. Raises UsageError if it cannot be used."""
    from eviction.drill.scenario import ScenarioError, find_scenario, scenario_of

    marker = request.node.get_closest_marker(MARKER)
    chosen = DEFAULT if marker is None else marker.args[0]
    try:
        return (
            scenario_of(chosen, f"@pytest.mark.{MARKER}")
            if isinstance(chosen, dict)
            else find_scenario(str(chosen))
        )
    except ScenarioError as error:
        raise pytest.UsageError(str(error)) from None
