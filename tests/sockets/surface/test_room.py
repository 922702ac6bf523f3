"""`reclaimd reclaim --room AMOUNT --on FILESYSTEM`: by the command itself and by a
daemon, as on a pull's hook.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from signals.types import FsLayout, Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory

Ask = Callable[..., subprocess.CompletedProcess[str]]


def located(file: str) -> bool:
    process = reclaimd_here("status", "--config", file, "-o", "json")
    return process.returncode == 0 and answer(process)["layout"] is not None


@pytest.fixture(params=["standalone", "daemon"])
def ask(request: pytest.FixtureRequest, small_node: SmallNode, tmp_path: Path) -> Iterator[Ask]:
    """Asks for room on a node with six old images of 4 MiB, whose daemon, if there is
    one, holds off for an hour.
    """
    small_node.add_images(6)
    small_node.run(small_node.run_pod("web"))
    file = small_node.configuration(
        controlSocket=str(tmp_path / "run" / "control.sock"), holdOffAfterStart="1h"
    )
    by_daemon = request.param == "daemon"

    def room(
        amount: object, *arguments: str, on: str = "imagefs"
    ) -> subprocess.CompletedProcess[str]:
        alone = () if by_daemon else ("--standalone",)
        words = ("--room", str(amount), "--on", on, "--now", *alone, *arguments)
        process = reclaimd_here("reclaim", "--config", file, *words)
        assert "doing the work here" not in process.stderr
        return process

    if not by_daemon:
        yield room
        return
    with Daemon("--config", file):
        assert came_true(lambda: located(file))
        yield room


def test_room_is_made_and_no_more_than_that(ask: Ask, small_node: SmallNode) -> None:
    """6 MiB more: two images of 4 MiB, the oldest; asked again, it is there,
    and nothing is done.
    """
    wanted = small_node.available() + 6 * MIB
    process = ask(wanted, "-o", "json")
    document = answer(process)
    room = document["room"]
    assert (process.returncode, document["kind"], document["result"]) == (0, "Pass", "satisfied")
    assert small_node.available() >= wanted
    assert [each["id"] for each in document["removals"]] == small_node.removed("image")
    assert len(small_node.removed("image")) == 2
    assert (room["filesystem"], room["asked"], room["missing"], room["dry_run"]) == (
        "imagefs",
        wanted,
        0,
        False,
    )
    assert room["available"] >= wanted
    again = ask(wanted, "-o", "json")
    document = answer(again)
    assert (again.returncode, document["kind"], document["room"]["missing"]) == (
        0,
        "NothingToDo",
        0,
    )
    assert document["reason"] == document["room"]["sentence"]
    assert ask(wanted).stdout.splitlines()[-1].endswith("was asked for: the room is there")
    assert len(small_node.removed("image")) == 2


def test_a_dry_run_says_the_same_and_removes_nothing(ask: Ask, small_node: SmallNode) -> None:
    """Exit 0 and what would go; exit 1 and what would be missing."""
    before, available = small_node.images(), small_node.available()
    enough = ask(available + 6 * MIB, "--dry-run", "-o", "json")
    document = answer(enough)
    assert (enough.returncode, document["result"], len(document["removals"])) == (0, "dry_run", 2)
    assert (document["room"]["missing"], document["room"]["dry_run"]) == (0, True)
    short = ask(available + 40 * MIB, "--dry-run")
    assert short.returncode == 1
    assert short.stdout.splitlines()[-1].endswith("would be missing")
    document = answer(ask(available + 40 * MIB, "--dry-run", "-o", "json"))
    assert document["room"]["missing"] == pytest.approx(16 * MIB, abs=MIB)
    assert len(document["removals"]) == 6
    assert (small_node.removed(), small_node.images()) == ([], before)


def test_room_that_cannot_be_made_is_exit_1_with_what_is_missing(
    ask: Ask, small_node: SmallNode
) -> None:
    """All six go, and 16 MiB are missing; why no more goes is in the record."""
    wanted = small_node.available() + 40 * MIB
    process = ask(wanted, "-o", "json")
    document = answer(process)
    assert (process.returncode, document["result"]) == (1, "not_enough")
    assert document["room"]["missing"] == wanted - small_node.available()
    assert len(small_node.removed("image")) == 6
    assert document["kept_by_reason"]["in_use"] == 1
    words = ask(wanted)
    assert words.returncode == 1
    assert words.stdout.splitlines()[-1].endswith(" is missing")


def test_a_percentage_is_of_the_filesystem(ask: Ask, small_node: SmallNode) -> None:
    """As for any mark."""
    assert ask("1%").returncode == 0
    assert small_node.removed() == []
    assert ask("100%", "--dry-run").returncode == 1


def test_what_cannot_be_asked_for_is_exit_2(ask: Ask) -> None:
    """One sentence, whoever is asked."""
    for words in (("1Gi", "--all"), ("12",), ("much",)):
        amount, *others = words
        process = reclaimd_or_refused(ask, amount, *others)
        assert process.returncode == 2
        assert len([line for line in process.stderr.splitlines() if "--room" in line]) >= 1


def reclaimd_or_refused(ask: Ask, amount: str, *others: str) -> subprocess.CompletedProcess[str]:
    """The answer of the command itself, to which a daemon that refuses leaves it."""
    try:
        return ask(amount, *others)
    except AssertionError:
        return reclaimd_here(
            "reclaim", "--config", "", "--room", amount, "--on", "imagefs", *others
        )


# ---- layouts, marks, and what does not answer


def test_where_nothing_frees_space_the_room_is_there_or_not(
    make_small_node: SmallNodeFactory,
) -> None:
    """The kubelet's own filesystem beside a dedicated imagefs: its row is empty,
    and no image goes for it.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    small.add_images(3)
    file = small.configuration()
    available = small.available(small.disk)
    there = reclaimd_here(
        "reclaim", "--config", file, "--room", str(available - MIB), "--on", "nodefs", "--now"
    )
    missing = reclaimd_here(
        "reclaim", "--config", file, "--room", str(available + MIB), "--on", "nodefs", "--now"
    )
    assert (there.returncode, missing.returncode) == (0, 1)
    assert "nothing in this layout relieves it" in missing.stdout
    assert small.removed() == []


def test_how_much_is_above_the_marks_is_said(small_node: SmallNode) -> None:
    """A mark 8 MiB below what is available:

    8 MiB of the room can be used before reclaimd removes more.
    """
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -8 * MIB)
    room = answer(
        reclaimd_here("reclaim", "--config", file, "--room", "1Mi", "--on", "imagefs", "-o", "json")
    )["room"]
    assert room["available"] - room["kept_free"] == pytest.approx(8 * MIB, abs=MIB)


def test_with_the_extent_all_no_more_goes_than_the_room_needs(small_node: SmallNode) -> None:
    """The extent is for pressure."""
    small_node.add_images(4)
    file = small_node.configuration(extent="all")
    wanted = str(small_node.available() + 3 * MIB)
    assert (
        reclaimd_here(
            "reclaim", "--config", file, "--room", wanted, "--on", "imagefs", "--now"
        ).returncode
        == 0
    )
    assert len(small_node.removed("image")) == 1


def test_without_a_runtime_room_that_is_there_is_there_and_other_room_is_exit_3(
    small_node: SmallNode,
) -> None:
    """nodefs is read without it; where images are only the runtime says."""
    file = small_node.configuration()
    small_node.server.stop()
    words = ("reclaim", "--config", file, "--now", "--on")
    assert reclaimd_here(*words, "nodefs", "--room", "1Mi").returncode == 0
    for on, room in (("nodefs", "100%"), ("imagefs", "1Mi")):
        away = reclaimd_here(*words, on, "--room", room)
        assert (away.returncode, "the container runtime cannot be reached" in away.stderr) == (
            3,
            True,
        )


def test_a_runtime_that_hangs_ends_in_exit_3_and_removes_nothing(small_node: SmallNode) -> None:
    """The lists are not answered: bounded by their deadlines, and nothing is guessed."""
    small_node.add_images(3)
    file = small_node.configuration()
    small_node.failpoints["ListContainers"] = Hang()
    wanted = str(small_node.available() + 6 * MIB)
    process = reclaimd(
        "reclaim", "--config", file, "--standalone", "--now", "--room", wanted, "--on", "imagefs"
    )
    small_node.failpoints.clear()
    assert process.returncode == 3
    assert small_node.removed() == []


def test_a_pause_holds_for_room_too(small_node: SmallNode, tmp_path: Path) -> None:
    """Exit 6; but room that is there is there."""
    small_node.add_images(3)
    file = small_node.configuration(controlSocket=str(tmp_path / "run" / "control.sock"))
    with Daemon("--config", file):
        assert came_true(lambda: located(file))
        assert reclaimd_here("pause", "--config", file).returncode == 0
        wanted: Any = small_node.available() + 6 * MIB
        words = ("reclaim", "--config", file, "--on", "imagefs", "--room")
        assert [reclaimd_here(*words, str(each)).returncode for each in (MIB, wanted)] == [0, 6]
    assert small_node.removed() == []
