"""`reclaimd plan --signal S --until V`: what would go for one signal, and
whether that is enough.
"""

from __future__ import annotations

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import answer, reclaimd_here


def test_as_much_as_the_mark_needs_is_planned_and_that_is_enough(small_node: SmallNode) -> None:
    """6 MiB more: two images of four; nothing is removed."""
    images = small_node.add_images(4)
    file = small_node.configuration()
    until = str(small_node.available() + 6 * MIB)
    plan = reclaimd_here(
        "plan", "--signal", "imagefs.available", "--until", until, "--config", file
    )
    assert (plan.returncode, "that is enough for imagefs.available" in plan.stdout) == (0, True)
    document = answer(
        reclaimd_here(
            "plan",
            "--signal",
            "imagefs.available",
            "--until",
            until,
            "--config",
            file,
            "-o",
            "json",
        )
    )
    assert document["enough"] is True
    assert [each["id"] for each in document["removals"]] == images[:2]
    assert set(images) <= small_node.images()


def test_what_cannot_suffice_is_said_with_exit_1(small_node: SmallNode) -> None:
    """All that may go is 16 MiB, and 30 are wanted."""
    small_node.add_images(4)
    until = str(small_node.available() + 30 * MIB)
    plan = reclaimd_here(
        "plan",
        "--signal",
        "imagefs.available",
        "--until",
        until,
        "--config",
        small_node.configuration(),
    )
    assert (plan.returncode, "that is not enough for imagefs.available" in plan.stdout) == (1, True)


def test_of_a_clear_signal_the_whole_row_is_shown(small_node: SmallNode) -> None:
    """No mark tells where to stop, so nothing is said of enough."""
    images = small_node.add_images(3)
    file = small_node.configuration()
    plan = answer(
        reclaimd_here("plan", "--signal", "imagefs.available", "--config", file, "-o", "json")
    )
    assert plan["enough"] is None
    assert {each["id"] for each in plan["removals"]} >= set(images)


def test_of_inodes_it_cannot_be_told(small_node: SmallNode) -> None:
    """The runtime reports no inodes."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_INODES_FREE, 3)
    plan = reclaimd_here("plan", "--signal", "nodefs.inodesFree", "--config", file)
    assert plan.returncode == 0
    assert "it is not known whether that is enough for nodefs.inodesFree" in plan.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--until", "1Gi"),
            "--until sets the mark of the signal named by --signal, and that is missing",
        ),
        (("--signal", "nodefs.inodesfree"), "'nodefs.inodesfree' is none of nodefs.available, "),
        (("--signal", "nodefs.available", "--until", "1x"), "'1x' is neither"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    small_node: SmallNode, words: tuple[str, ...], sentence: str
) -> None:
    """Exit 2 and one sentence."""
    refused = reclaimd_here("plan", *words, "--config", small_node.configuration())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert sentence in refused.stderr
