"""The node of a scenario as the runtime and the filesystems show it, and what grows on it."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from eviction.drill.embedded import configuration_of, grower_on
from eviction.drill.embedded_node import EmbeddedNode
from eviction.drill.scenario import PodState, Scenario
from eviction.drill.schedule import PressurePeriod, PressureSchedule
from eviction.engine.node import Node
from signals.types import FilesystemRole
from tests.conftest import MOUNTS
from tests.drill.documents import MIB, document, scenario
from tests.expected import expect
from tests.reclaimd_process import came_true
from tests.rows import rows
from tests.sockets.mounts import need_mounts

WEB = "registry.example/web:1"
PODS = [
    {"name": state, "image": WEB, "state": state, "writes": "64Ki", "logs": "8Ki"}
    for state in get_args(PodState)
]


@contextmanager
def built(made: Scenario) -> Iterator[tuple[EmbeddedNode, Node]]:
    """The embedded node, and a `Node` of the product for it. Nothing of it is left."""
    need_mounts()
    with EmbeddedNode(made, MOUNTS.how) as embedded:
        node = Node(configuration_of(embedded))
        try:
            assert node.locate() == ""
            yield embedded, node
        finally:
            node.close()
        disk = embedded.disk(FilesystemRole.NODEFS)
        assert os.path.ismount(disk)
    assert not os.path.exists(os.path.dirname(disk))


@pytest.mark.parametrize("rebooted", [False, True])
def test_pods_are_in_the_states_that_the_scenario_gives_them(rebooted: bool) -> None:
    """Containers, with the codes of those that have exited, sandboxes, the kubelet's directories and
    logs are those of a real node; after a reboot nothing runs."""
    with built(scenario(node={"pods": PODS, "rebooted": rebooted})) as (embedded, node):
        told = [
            f"{each.pod_name} {each.name}#{each.attempt} {each.state}"
            f" {embedded.exit_codes.get(each.id, '')}".rstrip()
            for each in node.client.list_containers()
        ]
        told += [f"{each.pod_name} {each.state}" for each in node.client.list_pod_sandboxes()]
        told += [f"pods/{each}" for each in os.listdir(f"{embedded.root_directory}/pods")]
        logs = Path(embedded.pod_logs_directory)
        told += [f"{log.relative_to(logs)} {log.stat().st_size}" for log in logs.rglob("*.log")]
    name = "rebooted.txt" if rebooted else "states.txt"
    expect(Path(__file__).with_name(name), "\n".join(sorted(told)) + "\n")


class Pressed(NamedTuple):
    """A node on which pressures have ended; what is held open still is until they are freed."""

    embedded: EmbeddedNode
    schedule: PressureSchedule
    periods: list[PressurePeriod]
    before: os.statvfs_result

    @property
    def taken(self) -> tuple[int, int]:
        """Bytes and inodes that are missing since before."""
        now = os.statvfs(self.embedded.root_directory)
        blocks = self.before.f_bavail - now.f_bavail
        return blocks * now.f_frsize, self.before.f_ffree - now.f_ffree


@contextmanager
def pressed(*pressures: dict[str, Any]) -> Iterator[Pressed]:
    """Runs these pressures to their end."""
    made = scenario(node={"pods": PODS}, pressure=list(pressures))
    with built(made) as (embedded, _):
        before = os.statvfs(embedded.root_directory)
        schedule = PressureSchedule(made.pressures, partial(grower_on, embedded))
        schedule.start(0.0)
        assert came_true(lambda: not schedule.running)
        yield Pressed(embedded, schedule, list(schedule.periods), before)
        schedule.free()


FILLS = {**document()["pressure"], "rate": "80Mi", "amount": "3Mi"}


@rows("""
    pressure                                                             | written
    {grows: bytes, rate: 80Mi, amount: 3Mi}                              | 3145728
    {grows: inodes, rate: "9000", amount: "300", fileSize: 1Ki}          | 300
    {grows: log, rate: 80Mi, amount: 3Mi, pod: running}                  | 3145728
    {grows: writable, rate: 80Mi, amount: 3Mi, pod: running}             | 3145728
    {grows: pull, rate: 80Mi, image: {name: a.example/new, count: 2, size: 1Mi}} | 2097152
""")
def test_a_pressure_takes_its_amount(pressure: dict[str, Any], written: int) -> None:
    """The bytes or files are missing from the filesystem, also when it is no longer held."""
    with pressed(pressure) as run:
        assert [period.written for period in run.periods] == [written]
        run.schedule.free()
        assert run.taken[pressure["grows"] == "inodes"] >= written


@pytest.mark.parametrize("change", [{"amount": "full"}, {"amount": "1Gi", "for": "1s"}], ids=str)
def test_a_pressure_ends_when_the_disk_is_full_or_its_time_is_over(change: dict[str, str]) -> None:
    """With `remains: false` the space is free again, but for a directory."""
    with pressed({**FILLS, "rate": "1Gi", "remains": False, **change}) as run:
        assert run.periods[0].written > 10 * MIB
        run.schedule.free()
        assert run.taken[0] <= 2 * os.sysconf("SC_PAGE_SIZE")


def holders(path: str) -> int:
    """How many processes hold the file that has, or had, this name."""
    found = 0
    for descriptor in glob.glob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):
            found += os.readlink(descriptor).removesuffix(" (deleted)") == path
    return found


@pytest.mark.parametrize("file", ["closed", "open", "deleted"])
def test_a_file_is_held_open_or_deleted_until_the_growers_are_closed(file: str) -> None:
    """A deleted one has no name and takes its room all the same, and gives it back when nobody
    holds it any more."""
    with pressed({**FILLS, "file": file}) as run:
        path = os.path.join(run.embedded.disk(FilesystemRole.NODEFS), "grown", "0")
        assert os.path.exists(path) == (file != "deleted")
        assert holders(path) == int(file != "closed")
        assert run.taken[0] >= 3 * MIB
        run.schedule.free()
        assert (run.taken[0] < MIB) == (file == "deleted")


def test_pressures_beside_each_other_begin_together() -> None:
    """The third one waits for both."""
    one = {"grows": "bytes", "rate": "4Mi", "amount": "2Mi"}
    with pressed(one, {**one, "beside": True}, {**one, "rate": "80Mi"}) as run:
        spans = sorted((each.from_seconds, each.to_seconds or 0.0) for each in run.periods)
        (_, first), (second, end), (third, _) = spans
        assert second < first
        assert third >= max(first, end)
