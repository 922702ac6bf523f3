"""What an operator says keeps the daemon from removing: `pause`, a dry run, and a reload."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eviction.surface.pause import PauseFile
from reclaim.cri import cri_pb2 as pb
from signals.clock import SystemClock
from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here, write_configuration

NODEFS = Signal.NODEFS_AVAILABLE
DRY_RUN = "dry run (dryRun): nothing is removed, only reported"


class Held:
    """A small node with six old images, a configuration with sockets and files, and commands by
    it."""

    def __init__(self, small: SmallNode):
        self.small = small
        self.images = small.add_images(6)
        self.directory = small.disk.parent
        self.kept = self.directory / "state" / "images.json.pause"
        self.own = {
            "controlSocket": f"{self.directory}/control.sock",
            "stateFile": str(self.kept).removesuffix(".pause"),
            "historyFile": f"{self.directory}/history",
        }
        self.file = ""

    def configure(self, above: int = -2 * MIB, **fields: Any) -> str:
        """The node is under pressure above so much more than is available now."""
        self.file = self.small.configuration(NODEFS, above, **{**self.own, **fields})
        return self.file

    def reload(self, daemon: Daemon, above: int, **fields: Any) -> None:
        """The same file has other fields."""
        given = {**self.own, "imageMinimumGCAge": "0s", **fields}
        write_configuration(Path(self.file), **self.small.fields(NODEFS, above, **given))
        daemon.process.send_signal(signal.SIGHUP)

    def command(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        done = reclaimd_here(*words, "--config", self.file)
        return done.returncode, done.stdout, done.stderr

    def status(self) -> Any:
        """What the daemon says of itself."""
        return answer(reclaimd_here("status", "--config", self.file, "-o", "json"))

    def clear(self) -> bool:
        """Whether the daemon has seen that nothing is missing."""
        status = self.status()
        available = status["observations"][0]["available"]
        return bool(available > status["thresholds"][0]["effective"])

    def everybody_says(self, why: str) -> None:
        """Asserts that status, doctor and the commands that would remove say so, and that nothing is
        removed."""
        assert why in self.status()["held_off"]
        for command, code in (("status", 0), ("doctor", 1), ("reclaim", 6)):
            found, out, err = self.command(command)
            assert why in out + err
            assert found == code or command == "doctor"
        code, _, err = self.command("reclaim", "--standalone")
        assert (code, why in err) == (6, True)
        assert self.small.removed() == []

    def remove(self, image: str) -> None:
        """Somebody else removes it."""
        self.small.runtime.answer(pb.RemoveImageRequest(image=pb.ImageSpec(image=image)))


@pytest.fixture
def held(small_node: SmallNode) -> Held:
    """The node, without a daemon."""
    return Held(small_node)


def starts(daemon: Daemon, begins: str) -> None:
    """Waits for a message that begins so."""
    daemon.wait_for(lambda event: event["message"].startswith(begins))


def ends(daemon: Daemon, result: str) -> Any:
    """Waits for a pass with this result."""
    return daemon.wait_for(lambda event: event.get("result") == result)["record"]


@pytest.mark.regression
def test_a_pause_outlives_the_daemon(held: Held) -> None:
    """Under pressure nothing is removed until it ends, by this daemon, the next one or a command,
    and everybody says why and until when; --now removes all the same. After `resume` relief begins,
    and a third daemon knows of no pause. Without a daemon resume ends what is kept, with exit 3."""
    with Daemon("--config", held.configure()) as daemon:
        code, said, err = held.command("pause", "--for", "10m")
        assert (code, err) == (0, "")
        paused = said.removesuffix(" (reclaimd resume ends it)\n")
        assert re.fullmatch(r"paused until \S+Z", paused)
        held.small.fill(8 * MIB)
        starts(daemon, f"held off: {paused}")
        held.everybody_says(paused)
    assert held.command("reclaim", "--standalone")[0] == 6
    with Daemon("--config", held.file) as daemon:
        starts(daemon, f"still {paused}")
        starts(daemon, f"held off: {paused}")
        held.everybody_says(paused)
        assert held.command("reclaim", "--now", "--signal", "nodefs.available")[0] == 0
        gone = len(held.small.removed())
        held.small.fill(20 * MIB)
        ended = f"the pause until {paused.split()[2]} is ended\n"
        assert held.command("resume") == (0, ended, "")
        assert came_true(lambda: len(held.small.removed()) > gone > 0)
        assert held.command("resume") == (0, "there was no pause to end\n", "")
    assert not held.kept.exists()
    with Daemon("--config", held.file) as daemon:
        assert held.status()["held_off"] is None
        assert not daemon.logged("paused until")
        assert held.command("pause")[0] == 0
    code, _, err = held.command("resume")
    assert (code, held.kept.exists()) == (3, False)
    assert f"{held.kept} is removed, so its next start is without a pause" in err


@pytest.mark.regression
def test_a_file_that_may_be_a_pause_holds_until_it_can_be_read_or_is_ended(held: Held) -> None:
    """Torn: neither the daemon nor a command removes anything, and each says why. Relief begins some
    seconds after the file is whole, or gone; the next daemon, which finds a directory, is told to
    `resume`."""
    held.kept.parent.mkdir(mode=0o700)
    held.kept.write_text('{"kind": "reclaimd.io/pause", "version": 1, "sec')
    unknown = f"as whether a pause is in force is not known: {held.kept} cannot be used: "
    with Daemon("--config", held.configure(2 * MIB)) as daemon:
        starts(daemon, "held off: paused until ")
        held.everybody_says(unknown)
        held.kept.unlink()
        starts(daemon, f"{held.kept} can be read again: there is no pause")
        ends(daemon, "satisfied")
    left = held.small.images()
    held.kept.mkdir()
    held.small.fill(4 * MIB)
    with Daemon("--config", held.file) as daemon:
        starts(daemon, "held off: paused until ")
        assert held.small.images() == left
        code, _, err = held.command("resume")
        assert (code, "a restart of the daemon brings the pause back: " in err) == (0, True)
        ends(daemon, "satisfied")


def test_a_pause_that_cannot_be_kept_is_a_warning(held: Held) -> None:
    """To the client and in the log; the pause holds, exit 0. Where the state is to be is a file."""
    held.kept.parent.write_text("")
    with Daemon("--config", held.configure()) as daemon:
        code, said, err = held.command("pause")
        assert (code, said.startswith("paused until ")) == (0, True)
        warning = f"a restart of the daemon ends the pause: {held.kept} cannot be written: "
        assert err.startswith(f"reclaimd: {warning}")
        starts(daemon, warning)
        assert held.status()["held_off"].startswith("paused until ")


def test_a_command_alone_skips_a_pause_when_it_is_told_to(held: Held) -> None:
    """`--now`, and a dry run, which removes nothing; with nothing under pressure there is nothing to
    do, and exit 0."""
    assert PauseFile(held.own["stateFile"], SystemClock()).keep(lambda: 600.0) == ""
    held.configure()
    assert held.command("reclaim", "--standalone")[0] == 0
    held.configure(2 * MIB)
    codes = [
        held.command("reclaim", "--standalone", *more)[0] for more in ([], ["--dry-run"], ["--now"])
    ]
    assert codes == [6, 0, 0]


# ---- in the middle of a pass


@contextmanager
def removing(held: Held) -> Iterator[Daemon]:
    """A daemon in the middle of a pass that needs three images: the first removal was sent and is
    not answered."""
    held.small.run(held.small.run_pod("web"))
    with Daemon("--config", held.configure()) as daemon:
        held.small.failpoints["RemoveImage"] = Hang(times=1)
        held.small.fill(12 * MIB)
        held.small.wait_for("RemoveImage")
        yield daemon


def test_a_pause_stops_the_pass_that_runs(held: Held) -> None:
    """Once the client has its answer only what had been sent ends."""
    with removing(held) as daemon:
        code, said, _ = held.command("pause")
        assert (code, said.splitlines()[0][-41:]) == (
            0,
            "; 1 removal sent before it will still end",
        )
        held.small.failpoints.clear()
        assert "removals were paused" in ends(daemon, "not_enough")["reason"]
        assert held.small.removed() == held.images[:1]


@pytest.mark.parametrize(
    "field",
    [{"dryRun": True}, {"keepImages": ["*"]}, {"evictionHard": {"nodefs.available": "0%"}}],
    ids=str,
)
def test_a_reload_stops_the_pass_that_runs(held: Held, field: dict[str, Any]) -> None:
    """It is in force while the pass still waits for what it has sent; what the pass had planned
    stays. A client whose own file says the same is served by what is in force."""
    with removing(held) as daemon:
        held.reload(daemon, -2 * MIB, **field)
        starts(daemon, "the configuration was reloaded")
        assert held.small.removed() == []
        held.small.failpoints.clear()
        assert came_true(lambda: held.small.removed() == held.images[:1])
        assert "another configuration" not in held.command("reclaim")[2]
        assert came_true(lambda: held.status()["doing"] is None)
        assert held.small.removed() == held.images[:1]


# ---- a dry run


@pytest.mark.regression
def test_a_dry_run_removes_nothing_and_everything_is_told(held: Held) -> None:
    """In log, status and history, with names, and by a command with the same configuration; a
    removal by somebody else is told with how much later it came. One line and a reload end it; what
    it planned and removed afterwards is nobody else's."""
    old = "registry.example/old/{}:1".format
    with Daemon("--config", held.configure(6 * MIB, dryRun=True)) as daemon:
        starts(daemon, DRY_RUN)
        ends(daemon, "dry_run")
        assert came_true(lambda: held.status()["passes"] != [])
        status = held.status()
        removals = status["passes"][-1]["removals"]
        planned = [each["id"] for each in removals if each["result"] == "planned"]
        assert (status["dry_run"], planned) == (True, held.images[:2])
        assert DRY_RUN in held.command("status")[1].splitlines()
        assert "dry_run: would free" in held.command("reclaim", "--standalone")[1]
        assert held.small.removed() == []
        held.remove(held.images[0])
        told = daemon.wait_for(lambda event: event["message"].startswith("something else has remo"))
        assert f"image {old(0)}; reclaimd would have begun " in told["message"]
        assert re.search(f"planned .*{old(1)}", held.command("history")[1])
        held.reload(daemon, 2 * MIB, dryRun=False)
        ends(daemon, "satisfied")
        assert held.images[1] not in held.small.images()
        assert held.status()["dry_run"] is False
        held.reload(daemon, 6 * MIB, dryRun=True)
        daemon.wait_for(
            lambda event: (
                event.get("result") == "dry_run" and old(2) in str(event["record"]["removals"])
            )
        )
        held.remove(held.images[2])
        others = "something else has removed image {}".format
        starts(daemon, others(old(2)))
        assert not daemon.logged(others(old(1)))


@pytest.mark.regression
def test_each_pressure_is_told_and_has_its_pass(held: Held) -> None:
    """A pass that removed nothing makes the next one wait, and its line is not repeated: only as
    long as the pressure lasts. Without it the second one had no pass for up to a minute."""
    fill = held.small.disk / "fill"
    with Daemon("--config", held.configure(-4 * MIB, dryRun=True)) as daemon:
        for number in range(3):
            fill.write_bytes(b"\1" * 6 * MIB)
            assert came_true(
                lambda number=number: (  # type: ignore[misc] # mypy does not infer the default
                    [event.get("result") for event in daemon.events].count("dry_run") > number
                ),
                20.0,
            )
            fill.unlink()
            assert came_true(lambda: held.clear())
