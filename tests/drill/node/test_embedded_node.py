"""The node of a scenario as the runtime and the filesystems show it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, get_args

import pytest

from eviction.drill.node.embedded_node import EmbeddedNode
from eviction.drill.pressure.schedule import PressureSchedule
from eviction.drill.run.embedded import EmbeddedGrowers, configuration_of
from eviction.drill.scenario import PodState, Scenario
from eviction.engine.node import Node
from reclaim.types import Container, ContainerState, PodSandboxState
from signals.types import KUBELET_ROLES, FilesystemRole, FsLayout
from tests.conftest import MOUNTS
from tests.drill.documents import IMAGEFS, MIB, document, scenario
from tests.reclaimd_process import came_true
from tests.sockets.mounts import need_mounts

PAGE = os.sysconf("SC_PAGE_SIZE")  # a block of tmpfs

WEB = "registry.example/web:1"
PODS = [
    {"name": state, "image": WEB, "state": state, "writes": "64Ki", "logs": "8Ki"}
    for state in get_args(PodState)
]


@contextmanager
def built(made: Scenario) -> Iterator[tuple[EmbeddedNode, Node]]:
    """The embedded node, and a `Node` of the product for it."""
    need_mounts()
    with EmbeddedNode(made, MOUNTS.how) as embedded:
        node = Node(configuration_of(made, embedded))
        try:
            assert node.locate() is None
            yield embedded, node
        finally:
            node.close()


def states(containers: tuple[Container, ...]) -> dict[str, list[str]]:
    """By pod: its containers with their states, in the order of their making."""
    found: dict[str, list[str]] = {}
    for each in sorted(containers, key=lambda container: container.created_at_ns):
        found.setdefault(each.pod_name, []).append(f"{each.name}#{each.attempt} {each.state}")
    return found


def test_pods_are_in_the_states_that_the_scenario_gives_them() -> None:
    """Containers, sandboxes, the kubelet's directories and logs are those of a real node."""
    with built(scenario(node={"pods": PODS})) as (embedded, node):
        assert states(node.client.list_containers()) == {
            "running": ["app#0 RUNNING"],
            "initialized": ["init#0 EXITED", "app#0 RUNNING"],
            "crashed": ["app#0 EXITED", "app#1 EXITED"],
            "completed": ["app#0 EXITED"],
            "created": ["app#0 CREATED"],
            "unknown": ["app#0 UNKNOWN"],
            "gone": ["app#0 EXITED"],
        }
        dead = [
            s.pod_name
            for s in node.client.list_pod_sandboxes()
            if s.state is PodSandboxState.NOTREADY
        ]
        assert dead == ["gone"]
        present = set(os.listdir(os.path.join(embedded.root_directory, "pods")))
        assert present == {
            f"uid-{state}" for state in get_args(PodState) if state not in ("gone", "vanished")
        }
        logs = embedded.log_files
        assert logs.keys() == {str(state) for state in get_args(PodState) if state != "created"}
        assert {os.path.getsize(path) for path in logs.values()} == {8192}
        assert len(os.listdir(embedded.pod_logs_directory)) == len(logs)
        assert logs["crashed"].endswith("/default_crashed_uid-crashed/app/1.log")


def test_after_a_reboot_nothing_runs() -> None:
    """Every sandbox is NOTREADY, and running containers have exited; a
    created container stays CREATED.
    """
    with built(scenario(node={"pods": PODS, "rebooted": True})) as (embedded, node):
        found = {container.state for container in node.client.list_containers()}
        assert found == {ContainerState.EXITED, ContainerState.CREATED}
        assert {s.state for s in node.client.list_pod_sandboxes()} == {PodSandboxState.NOTREADY}
        assert set(embedded.exit_codes.values()) == {0, 1, 255}


@pytest.mark.parametrize(
    ("layout", "seen", "disks"),
    [
        ("single", FsLayout.SINGLE, 1),
        ("dedicated", FsLayout.DEDICATED_IMAGEFS, 2),
        ("split", FsLayout.SPLIT, 2),
    ],
)
def test_the_product_detects_the_layout(layout: str, seen: FsLayout, disks: int) -> None:
    """Each filesystem has the size of the scenario, and writable layers are on the right one."""
    other = None if layout == "single" else {**IMAGEFS, "size": "40Mi"}
    made = scenario(node={"layout": layout, "imagefs": other, "pods": PODS})
    with built(made) as (embedded, node):
        observations = node.summary.observe()
        assert observations.layout is seen
        assert len({embedded.disk(role) for role in KUBELET_ROLES}) == disks
        sizes = {
            role: stats.capacity_bytes for role, (_, stats) in observations.filesystems.items()
        }
        assert sizes[FilesystemRole.NODEFS] == 48 * MIB
        assert sizes[FilesystemRole.IMAGEFS] == (48 if layout == "single" else 40) * MIB
        assert sizes[FilesystemRole.CONTAINERFS] == (40 if layout == "dedicated" else 48) * MIB


def test_a_node_leaves_nothing_behind() -> None:
    """Neither the mount nor the directory below it."""
    with built(scenario()) as (embedded, _):
        disk = embedded.disk(FilesystemRole.NODEFS)
        assert os.path.ismount(disk)
    assert not os.path.exists(os.path.dirname(disk))


PRESSURES: dict[str, dict[str, Any]] = {
    "bytes": {"amount": "3Mi"},
    "inodes": {"amount": "300", "fileSize": "1Ki", "rate": "9000"},
    "log": {"amount": "1Mi", "pod": "running"},
    "writable": {"amount": "1Mi", "pod": "running"},
    "pull": {"amount": None, "image": {"name": "registry.example/new", "count": 2, "size": "1Mi"}},
}


def pressed(made: Scenario, embedded: EmbeddedNode) -> PressureSchedule:
    """The pressures of a scenario, which have ended; nothing is held open any more."""
    growers = EmbeddedGrowers(embedded)
    pressures = PressureSchedule(made.pressures, growers)
    pressures.start(0.0)
    assert came_true(lambda: not pressures.running)
    growers.free()
    return pressures


@pytest.mark.parametrize("grows", PRESSURES)
def test_a_pressure_takes_its_amount(grows: str) -> None:
    """The bytes or files are missing from the filesystem when it has ended."""
    written = {"grows": grows, "rate": "80Mi", **PRESSURES[grows]}
    pressure = {name: value for name, value in written.items() if value is not None}
    made = scenario(node={"pods": PODS}, pressure=[pressure])
    with built(made) as (embedded, _):
        before = os.statvfs(embedded.root_directory)
        pressures = pressed(made, embedded)
        after = os.statvfs(embedded.root_directory)
        (period,) = pressures.periods
        expected = {"bytes": 3 * MIB, "inodes": 300, "pull": 2 * MIB}.get(grows, MIB)
        assert period.written == expected
        inodes, size = (
            before.f_ffree - after.f_ffree,
            (before.f_bavail - after.f_bavail) * after.f_frsize,
        )
        assert (inodes >= 300) if grows == "inodes" else (size >= expected)


@pytest.mark.parametrize("change", [{"amount": "full"}, {"amount": "1Gi", "for": "3s"}])
def test_a_pressure_ends_when_the_disk_is_full_or_its_time_is_over(change: dict[str, str]) -> None:
    """With `remains: false` the space is free again."""
    pressure = {**document()["pressure"], "rate": "1Gi", "remains": False, **change}
    made = scenario(pressure=pressure)
    with built(made) as (embedded, _):
        before = os.statvfs(embedded.root_directory).f_bavail
        pressures = pressed(made, embedded)
        assert pressures.periods[0].written > 10 * MIB
        assert before - os.statvfs(embedded.root_directory).f_bavail <= 2, (
            "only the directory is left"
        )


@pytest.mark.parametrize("file", ["closed", "open", "deleted"])
def test_a_file_is_held_open_or_deleted_until_the_growers_are_closed(file: str) -> None:
    """A deleted one has no name and takes its room all the same, and gives it back when
    nobody holds it any more.
    """
    pressure = {
        **document()["pressure"],
        "grows": "bytes",
        "rate": "80Mi",
        "amount": "3Mi",
        "file": str(file),
    }
    made = scenario(pressure=pressure)
    with built(made) as (embedded, _):
        before = os.statvfs(embedded.root_directory).f_bavail
        growers = EmbeddedGrowers(embedded)
        pressures = PressureSchedule(made.pressures, growers)
        pressures.start(0.0)
        assert came_true(lambda: not pressures.running)
        path = os.path.join(embedded.disk(FilesystemRole.NODEFS), "grown", "0")
        assert os.path.exists(path) == (file != "deleted")
        assert holders(path) == int(file != "closed")
        assert (before - os.statvfs(embedded.root_directory).f_bavail) * PAGE >= 3 * MIB
        growers.free()
        left = (before - os.statvfs(embedded.root_directory).f_bavail) * PAGE
        assert left < MIB if file == "deleted" else left >= 3 * MIB


def test_pressures_beside_each_other_begin_together() -> None:
    """The third one waits for both."""
    one = {"grows": "bytes", "rate": "4Mi", "amount": "2Mi"}
    made = scenario(pressure=[one, {**one, "beside": True}, {**one, "rate": "80Mi"}])
    with built(made) as (embedded, _):
        first, second, third = sorted(
            pressed(made, embedded).periods, key=lambda period: period.from_seconds
        )
        assert second.from_seconds < (first.to_seconds or 0.0)
        assert third.from_seconds >= max(first.to_seconds or 0.0, second.to_seconds or 0.0)


def holders(path: str) -> int:
    """How many processes hold the file that has, or had, this name."""
    found = 0
    for descriptor in glob.glob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):
            found += os.readlink(descriptor).removesuffix(" (deleted)") == path
    return found
