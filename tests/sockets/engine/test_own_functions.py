"""Functions of the table, rows and filesystems of a configuration, on a node: each is called in
its row, measured and told like the product's own, and what it leaves is for the next one."""

from __future__ import annotations

from eviction.drill.private_mounts import unmount
from tests.nodes.small_node import MIB
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.stage import Stage


def test_what_the_configuration_says_is_relieved_by_its_rows_and_told(stage: Stage) -> None:
    """Beside the node's disk there is a filesystem of 64 MiB in `buildcache`. A program is told
    what is missing now; why a function was not called, what a row cannot do, and what cannot be
    called, is said."""
    directory = str(stage.directory / "buildcache")
    mounted_tmpfs(directory, 64 * MIB, 4000)
    try:
        stage.plays()
    finally:
        unmount(directory)


def test_a_program_is_believed_by_what_the_disk_shows(stage: Stage) -> None:
    """Whatever it says; its error is told, and where it has freed nothing the next function goes
    on."""
    stage.plays()


def test_a_program_without_a_plan_is_one_object_without_a_size(stage: Stage) -> None:
    """With the reason; one that has a plan is credited with what it lists."""
    stage.plays()
