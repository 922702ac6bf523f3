"""A daemon in a dry run: everything but removals, and what somebody else removes of its plan."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here, write_configuration

DRY_RUN = "dry run (dryRun): nothing is removed, only reported"


def status_of(file: str) -> dict[str, Any]:
    """What the daemon says of itself."""
    found: dict[str, Any] = answer(reclaimd_here("status", "--config", file, "-o", "json"))
    return found


def test_nothing_is_removed_and_everything_is_told(small_node: SmallNode) -> None:
    """In log, status and history, with names; a removal by somebody else is told with how much
    later it came; one line and a reload end it."""
    images = small_node.add_images(3)
    directory = small_node.disk.parent
    fields = {
        "controlSocket": str(directory / "control.sock"),
        "historyFile": str(directory / "history"),
    }
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 6 * MIB, dryRun=True, **fields)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"] == DRY_RUN)
        daemon.wait_for(lambda event: event.get("result") == "dry_run")
        assert set(images) <= small_node.images()
        assert came_true(lambda: status_of(file)["passes"] != [])
        status = status_of(file)
        assert status["dry_run"] is True
        planned = [
            each["id"] for each in status["passes"][-1]["removals"] if each["result"] == "planned"
        ]
        assert planned == images[:2]
        assert DRY_RUN in reclaimd_here("status", "--config", file).stdout.splitlines()
        small_node.runtime.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=images[0])))
        told = daemon.wait_for(
            lambda event: event["message"].startswith("something else has removed image ")
        )
        assert "registry.example/old/0:1; reclaimd would have begun " in told["message"]
        history = reclaimd_here("history", "--config", file).stdout
        assert "planned" in history
        assert "registry.example/old/1:1" in history
        assert set(images[1:]) <= small_node.images()
        changed = small_node.fields(
            Signal.NODEFS_AVAILABLE, 2 * MIB, imageMinimumGCAge="0s", dryRun=False, **fields
        )
        write_configuration(Path(file), **changed)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert images[1] not in small_node.images()
        assert status_of(file)["dry_run"] is False
        assert daemon.stop() == 0


@pytest.mark.regression
def test_its_own_removals_are_nobody_elses(small_node: SmallNode) -> None:
    """What it planned in a dry run and removed after the end of that is not told of; in a later dry
    run only what is planned then is compared."""
    images = small_node.add_images(3)
    file = Path(small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB, dryRun=True))
    own, others = "registry.example/old/0:1", "registry.example/old/1:1"

    def reload(daemon: Daemon, *, dry_run: bool) -> None:
        fields = small_node.fields(
            Signal.NODEFS_AVAILABLE, 2 * MIB, imageMinimumGCAge="0s", dryRun=dry_run
        )
        write_configuration(file, **fields)
        daemon.process.send_signal(signal.SIGHUP)

    with Daemon("--config", str(file)) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "dry_run")
        reload(daemon, dry_run=False)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert images[0] not in small_node.images()
        reload(daemon, dry_run=True)
        daemon.wait_for(
            lambda event: (
                event.get("result") == "dry_run" and others in str(event["record"]["removals"])
            )
        )
        small_node.runtime.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=images[1])))
        daemon.wait_for(
            lambda event: (
                event["message"].startswith("something else") and others in event["message"]
            )
        )
        told = [
            event["message"]
            for event in daemon.events
            if event["message"].startswith("something else")
        ]
        assert not [sentence for sentence in told if own in sentence]
        assert daemon.stop() == 0


@pytest.mark.regression
def test_each_pressure_is_told_and_has_its_pass(small_node: SmallNode) -> None:
    """A pass that removed nothing makes the next one wait, and its line is not
    repeated: only as long as the pressure lasts. Without it the second one had no pass
    for up to a minute, and no line."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -4 * MIB, dryRun=True)
    fill = small_node.disk / "fill"
    with Daemon("--config", file) as daemon:

        def told() -> int:
            return sum(event.get("result") == "dry_run" for event in daemon.events)

        for number in (1, 2, 3):
            fill.write_bytes(b"\1" * 6 * MIB)
            assert came_true(lambda number=number: told() >= number, 20.0), f"pressure {number}"  # type: ignore[misc] # mypy does not infer the default
            fill.unlink()
            time.sleep(1.5)  # it is seen that nothing is missing any more
        assert daemon.stop() == 0


def test_a_hook_with_the_same_configuration_removes_nothing_either(small_node: SmallNode) -> None:
    """With or without the daemon."""
    images = small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 6 * MIB, dryRun=True)
    done = reclaimd_here("reclaim", "--standalone", "--config", file)
    assert "dry_run: would remove" in done.stdout
    assert set(images) <= small_node.images()
