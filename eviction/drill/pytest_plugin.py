"""A pytest plugin for other projects: fixtures with a node under disk pressure. Imported by pytest only.

    embedded_runtime    the node of a scenario: small real filesystems, a CRI runtime with images and pods on them
    pressured_node      the same node after the pressure of the scenario: it is below its marks
    fill                fills the node of the test: fill("24Mi")

`@pytest.mark.reclaimd_scenario(NAME, FILE or a mapping)` chooses another scenario than the default.

Each test has a node of its own. Its filesystems are mounted in a mount namespace of the pytest process, which is
entered before the first test if a test asks for one of the fixtures. If that is not allowed, the tests are skipped with
the reason. Without the extra `drill` (grpcio) they fail and say how to install it. Everything else is imported when a
fixture is used, so other test suites load this module only.
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
NO_ROOT = "needs root for filesystems of its own: as another user, unshare -Urm pytest"

_MOUNTS: pytest.StashKey[PrivateMounts] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", f"{MARKER}(scenario): the scenario of reclaimd's drill that makes the node")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Enters the mount namespace while there is one thread, if any test will need it."""
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
        pytest.skip(NO_ROOT if mounts is None else f"needs filesystems of its own: {mounts.reason}")
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
    """The scenario that the marker names, else the default. Raises UsageError if it cannot be used."""
    from eviction.drill.scenario import ScenarioError, find_scenario, scenario_of

    marker = request.node.get_closest_marker(MARKER)
    chosen = DEFAULT if marker is None else marker.args[0]
    try:
        return scenario_of(chosen, f"@pytest.mark.{MARKER}") if isinstance(chosen, dict) else find_scenario(str(chosen))
    except ScenarioError as error:
        raise pytest.UsageError(str(error)) from None
