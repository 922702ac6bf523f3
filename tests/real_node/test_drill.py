"""`reclaimd drill` on real filesystems: `--fill` fills the disk of a real containerd and frees it
again, `--observe` measures while others act, and built-in scenarios hold on loop devices."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml

from eviction.drill.embedded import Drill
from eviction.drill.embedded_node import EmbeddedNode
from eviction.drill.report.document import DrillReportJson, report_of
from eviction.drill.scenario import FilesystemSpec, library, scenario_of
from eviction.wording.log import Log
from tests.conftest import MOUNTS
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import MIB, LoopFilesystem, capacity_bytes, run_tool
from tests.real_node.oci import BASE, Image
from tests.real_node.steps import Fields, configure, unused_images
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    Daemon,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.rows import rows

MARK = 300 * MIB
APP = "reclaimd.test/app:1"
SCENARIOS: Fields = yaml.safe_load(Path(__file__).with_name("drills.yaml").read_text())


def pressure(grows: str, rate: str, amount: str) -> dict[str, str]:
    """Of a scenario."""
    return {"grows": grows, "rate": rate, "amount": amount}


class FillNode:
    """A node with a directory to be filled and a mark, and the arguments of a drill on it."""

    def __init__(self, node: RealNode, base: Path) -> None:
        self.node = node
        self.directory, self.base = node.mountpoint / "drill", base
        self.directory.mkdir()
        self.mark(inodes=False)

    def mark(self, *, inodes: bool) -> None:
        """At 300 MiB, or 3 000 inodes below what is free."""
        self.inodes = inodes
        self.marked = self.node.filesystem.inodes_free() - 3000 if inodes else MARK
        self.slack = 20 if inodes else 2 * MIB
        self.before = self.free()
        self.signal = f"nodefs.{'inodesFree' if inodes else 'available'}"
        self.configuration = configure(
            self.base,
            self.node,
            podLogsDir=str(self.node.kubelet.pod_logs_dir),
            evictionHard={self.signal: str(self.marked)},
        )

    def free(self) -> int:
        """What the mark is about."""
        filesystem = self.node.filesystem
        return filesystem.inodes_free() if self.inodes else filesystem.available_bytes()

    def is_as_before(self) -> bool:
        """Whether all that was filled is free again. (containerd writes a page now and then.)"""
        return not self.left_behind and abs(self.free() - self.before) < self.slack

    @property
    def left_behind(self) -> list[str]:
        """The names in the directory."""
        return sorted(os.listdir(self.directory))

    def command(self, *more: str, fill: Path | None = None, **changes: Any) -> list[str]:
        """The arguments; `changes`: of the scenario."""
        scenario = self.base / "scenario.yaml"
        scenario.write_text(json.dumps({**SCENARIOS["small"], **changes}))
        return [
            "drill", str(scenario), "--config", self.configuration, "--fill", str(fill or self.directory),
            "--runtime", f"unix://{self.node.containerd.socket}", "--report", str(self.base / "report"), *more,
        ]  # fmt: skip

    def drill(self, *more: str, code: int = 0, **changes: Any) -> Any:
        """Runs it to its end, without a terminal; what it wrote, and what it printed."""
        process = reclaimd(*self.command("--yes", *more, **changes), timeout_seconds=100.0)
        assert process.returncode == code, process.stdout + process.stderr
        return {**self.report("small-observed" if "--observe" in more else "small"), "out": process}

    def refuses(self, said: str, *more: str, code: int = 2, **changes: Any) -> str:
        """It does nothing, and says this; all that it says."""
        process = reclaimd_here(*self.command("--yes", *more, **changes))
        assert process.returncode == code, process.stderr
        assert said in process.stderr
        return process.stderr

    def started(self, *command: str, **streams: Any) -> Any:
        """Starts it; its output is one, unless `streams` say otherwise."""
        streams = {"stdout": PIPE, "stderr": subprocess.STDOUT, "text": True, **streams}
        return subprocess.Popen([PROGRAM, *command], env=ENVIRONMENT, **streams)

    def report(self, name: str = "small") -> Any:
        """The document that it wrote, its checks by name."""
        document = json.loads((self.base / "report" / f"drill-{name}.json").read_text())
        return document | {
            "checks": {check["name"]: check["held"] for check in document["checks"]},
            "gone": [each["id"] for each in document["removals"] if each["kind"] == "image"],
        }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A node of 1 GiB for all tests of this file."""
    with running_node(tmp_path_factory.mktemp("drill"), GIB) as node:
        yield node


@pytest.fixture
def fill_node(shared: RealNode, tmp_path: Path) -> Iterator[FillNode]:
    """The node with nothing but the sandbox image, and with a mark at 300 MiB."""
    made = FillNode(shared, tmp_path)
    yield made
    shutil.rmtree(made.directory)
    shared.containerd.remove_pods(20.0)
    for image in shared.cri.image_ids() - {shared.sandbox_image_id}:
        shared.cri.remove_image(image)


# ---- the drill fills, our own daemon or another relieves


def test_our_own_daemon_relieves_a_real_node_and_the_space_is_freed_again(
    fill_node: FillNode,
) -> None:
    """The mark is crossed at the scenario's pace, the oldest image is removed, what can be judged
    holds, and the filled space is free again."""
    images = unused_images(fill_node.node, 3)
    before = fill_node.free()
    found = fill_node.drill()
    assert found["gone"] == images[:1]
    assert MARK - 6 * MIB <= found["lowest"]["nodefs.available"] < MARK
    assert found["passes"][0]["result"] == "satisfied"
    held = ("relieved", "lowest nodefs.available", "pods that ran", "ReclaimPressure")
    unknown = ("images left", "new pod")  # reported as not judged, never as passed
    assert found["checks"] == {**dict.fromkeys(held, True), **dict.fromkeys(unknown)}
    assert "2 of 6 could not be judged" in found["out"].stdout
    assert fill_node.left_behind == []
    assert fill_node.free() > before
    assert fill_node.node.cri.image_ids() >= set(images[1:])


def test_another_daemon_responds_while_the_drill_fills_and_observes(fill_node: FillNode) -> None:
    """With --observe another daemon responds; the drill removes nothing, and
    does not judge the condition.
    """
    images = unused_images(fill_node.node, 2)
    with Daemon("--config", fill_node.configuration):
        found = fill_node.drill("--observe", "--with-margin", "--quiet", "500ms")
    assert (found["response"], found["passes"], found["gone"]) == ("observed", [], images[:1])
    assert found["checks"]["relieved"] is True
    assert found["checks"]["ReclaimPressure"] is None
    assert fill_node.left_behind == []


@rows("""
    what   | inodes
    bytes  |
    inodes | yes
""")
def test_pressure_that_is_not_relieved_does_not_hold_and_is_freed_again(
    fill_node: FillNode, inodes: bool
) -> None:
    """Nothing is removable: exit 1, the report says that relief is missing, unless none was
    expected. The prefill stops above the mark, and the disk is as before."""
    fill_node.mark(inodes=inodes)
    grows = ("inodes", "10000", "400") if inodes else ("bytes", "400Mi", "40Mi")
    expect = {"relievedWithin": "never" if inodes else "30s"}
    found = fill_node.drill(
        "--for", "2s", code=not inodes, pressure=pressure(*grows), expect=expect
    )
    failed = [name for name, held in found["checks"].items() if held is False]
    assert failed == ([] if inodes else ["relieved"])
    below = fill_node.marked - found["lowest"][fill_node.signal]
    assert 0 < below <= (250 if inodes else 41 * MIB)
    assert came_true(fill_node.is_as_before)


@rows("""
    number  | inodes
    SIGTERM |
    SIGINT  |
    SIGKILL |
    SIGKILL | yes
""")
def test_a_drill_that_is_ended_by_a_signal_frees_everything(
    fill_node: FillNode, number: signal.Signals, inodes: bool
) -> None:
    """In the pressure itself: exit 130 with a sentence, and the disk is as before by the time the
    process ends; after SIGKILL its helper process notices, and it is as before a moment later."""
    fill_node.mark(inodes=inodes)
    grows = ("inodes", "100", "400") if inodes else ("bytes", "2Mi", "400Mi")
    process = fill_node.started(*fill_node.command("--yes", pressure=pressure(*grows)))
    crossed = fill_node.marked + (500 if inodes else 199 * MIB)
    assert came_true(lambda: fill_node.free() < crossed), "it fills"
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60.0)
    if number == signal.SIGKILL:
        assert came_true(fill_node.is_as_before)
    else:
        assert (process.returncode, "the fill was removed" in printed) == (130, True), printed
        assert fill_node.is_as_before()


def test_the_next_drill_refuses_beside_another_or_one_killed_with_its_helper(
    fill_node: FillNode,
) -> None:
    """Bytes are freed with the last process that holds them; files are left, and named."""
    fill_node.mark(inodes=True)
    # it takes longer than the test to cross the mark
    words = fill_node.command("--yes", pressure=pressure("inodes", "5", "400"))
    process = fill_node.started(*words)
    assert came_true(lambda: len(fill_node.left_behind) == 2), "the prefill, and the pressure"
    left = fill_node.left_behind
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    helpers = [int(child) for file in children for child in file.read_text().split()]
    assert len(helpers) == 2
    second = reclaimd(*words)
    assert (second.returncode, "another" in second.stderr) == (75, True), "it is not disturbed"
    # all at one moment: none of them notices another one's end
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*helpers, process.pid):
            os.kill(pid, number)
    process.communicate()
    assert fill_node.left_behind == left
    third = reclaimd(*words)
    assert third.returncode == 75
    assert f"remove {', '.join(left)}" in third.stderr
    assert fill_node.left_behind == left


def test_every_refusal_changes_nothing(fill_node: FillNode, tmp_path: Path) -> None:
    """Each has one sentence with its reason, and leaves images and disk unchanged."""
    images = unused_images(fill_node.node, 1)
    fill_node.mark(inodes=False)
    for name in ("conf.d", "elsewhere"):
        (tmp_path / name).mkdir()
    hold_off = {"holdOffAfterStart": "100000h", "kubeletHealthzEndpoint": ""}
    write_configuration(tmp_path / "conf.d" / "10.conf", **hold_off)
    process = reclaimd(*fill_node.command())
    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert "there is no terminal to ask on" in process.stderr
    with chdir(tmp_path):
        for row in SCENARIOS["refused"]:
            where, changes = row.get("fill"), row.get("changes", {})
            fill = where and tmp_path / where
            said = fill_node.refuses(row["said"], *row.get("options", ()), fill=fill, **changes)
            assert (said.count("\n"), "nothing was changed" in said) == (1, True), said
    with Daemon("--config", fill_node.configuration):
        fill_node.refuses("", code=75)
    other = fill_node.node.mountpoint / "database"
    other.write_text("of another program")
    assert "database" in fill_node.refuses("holds other data")
    assert fill_node.is_as_before()
    assert set(images) < fill_node.node.cri.image_ids()
    fill_node.drill("--allow-other-data")
    assert other.read_text() == "of another program"
    other.unlink()


@rows("""
    typed | code
          | 1
    y     | 0
    ^C    | 130
""")
def test_at_a_terminal_the_drill_asks_before_it_fills(
    fill_node: FillNode, typed: str, code: int
) -> None:
    """Only a yes fills; the plan is printed above the question. Ctrl-C is a no."""
    unused_images(fill_node.node, 1)
    fill_node.mark(inodes=False)
    leader, follower = os.openpty()
    process = fill_node.started(
        *fill_node.command(), stdin=follower, stderr=PIPE, bufsize=0, text=False
    )
    asked = b""
    while b"continue? [y/N]" not in asked:
        asked += os.read(process.stderr.fileno(), 100)
    if typed == "^C":
        process.send_signal(signal.SIGINT)
    else:
        os.write(leader, f"{typed}\n".encode())
    printed, said = process.communicate(timeout=60.0)
    for descriptor in (leader, follower):
        os.close(descriptor)
    assert process.returncode == code, printed + said
    assert b"everything that was filled is freed" in printed
    assert (b"nothing was changed" in asked + said) is (code == 1)
    assert fill_node.is_as_before() is (code != 0), "a yes has removed an image"


def test_a_pod_that_ends_meanwhile_is_a_failure(fill_node: FillNode) -> None:
    """A pod that is stopped during the drill is named, and the drill fails."""
    node = fill_node.node
    unused_images(node, 1)
    victim = node.kubelet.pod("victim")
    node.kubelet.run_container(victim, "app", node.import_image(Image(APP, (BASE,))))
    small = pressure("bytes", "2Mi", "10Mi")
    process = fill_node.started(*fill_node.command("--yes", pressure=small))
    assert came_true(lambda: fill_node.free() < MARK + 4 * MIB)
    node.kubelet.end_pod(victim)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1, printed
    assert "ended: default/victim" in printed
    assert fill_node.report()["checks"]["pods that ran"] is False


# ---- the drill only observes


OBSERVED = "node-observed"


class Observing:
    """A running observation with this mark, which has begun."""

    def __init__(self, fill_node: FillNode, nodefs: int, *more: str) -> None:
        file = configure(fill_node.base, fill_node.node, nodefs=nodefs)
        words = ("--observe", "--report", str(fill_node.base / "report"), "--config", file)
        self._process = fill_node.started("drill", *words, *more)
        assert any(line.startswith("ends ") for line in self._process.stdout)

    def ended(self, *numbers: signal.Signals) -> tuple[int, str]:
        """Waits for its end, by these signals or by itself; the exit code, and what was printed."""
        for number in numbers:
            self._process.send_signal(number)
        printed, _ = self._process.communicate(timeout=60.0)
        return self._process.returncode, printed


def test_the_response_of_another_responder_is_measured(fill_node: FillNode) -> None:
    """A fill crosses the mark, a pod is ended, an image is removed: the report has all of it with
    its times, and the observation ends by itself once the node is relieved and nothing changes."""
    node = fill_node.node
    app = node.import_image(Image(APP, (BASE,)))
    images = unused_images(node, 2)
    victim, bystander = node.kubelet.pod("victim"), node.kubelet.pod("bystander")
    for pod in (victim, bystander):
        node.kubelet.run_container(pod, "app", app)
    mark = fill_node.free() - 30 * MIB
    observed = Observing(fill_node, mark, "--quiet", "1s", "--for", "60s")
    fill = fill_bytes(node.mountpoint / "fill", mark - 5 * MIB, 200 * MIB)
    fill.wait(60.0)
    time.sleep(1.0)
    node.kubelet.end_pod(victim)
    node.cri.remove_image(images[0])
    code, printed = observed.ended()
    shutil.rmtree(fill.directory)
    assert code == 0, printed
    document = fill_node.report(OBSERVED)
    gone = [each["name"] for each in document["removals"] if each["kind"] == "image"]
    assert (document["response"], gone) == ("observed", ["reclaimd.test/spare/00:1"])
    assert [pod["name"] for pod in document["ended_pods"]] == ["default/victim"]
    to = {what: document[f"from_crossing_to_{what}_seconds"] for what in ("first_relief", "relief")}
    assert document["crossed_seconds"] is not None
    assert 0.1 < to["first_relief"] <= to["relief"]
    assert document["from_crossing_to_first_removal_seconds"] > 0.1
    assert mark - 10 * MIB < document["lowest"]["nodefs.available"] <= mark - 5 * MIB
    assert document["lists_apart_seconds"] < 20.0
    assert "default/victim" in printed
    assert "default/bystander" not in printed
    suffixes = {path.suffix for path in (fill_node.base / "report").iterdir()}
    assert suffixes >= {".html", ".json", ".xml"}


def test_an_observation_changes_nothing_and_ends_on_sigint_or_after_its_time(
    fill_node: FillNode, tmp_path: Path
) -> None:
    """Under lasting pressure it removes nothing, and on SIGINT it writes its report and exits with
    0. --for ends it also if no mark was crossed. Without a runtime it is exit 3, one sentence on
    stderr, and no report."""
    unused_images(fill_node.node, 1)
    before, objects = fill_node.free(), fill_node.node.cri.image_ids()
    observed = Observing(fill_node, before + 10 * MIB)
    time.sleep(1.0)
    code, printed = observed.ended(signal.SIGINT)
    assert (code, "relief never" in printed) == (0, True), printed
    assert fill_node.node.cri.image_ids() == objects
    document = fill_node.report(OBSERVED)
    assert document["from_crossing_to_relief_seconds"] is None
    assert document["crossed_seconds"] < 10.0, "under pressure from the first look on"
    code, printed = Observing(fill_node, MIB, "--for", "500ms").ended()
    assert (code, "crossed  no mark" in printed) == (0, True), printed
    words = ("drill", "--observe", "--config", fill_node.configuration)
    to = ("--runtime", f"unix://{tmp_path}/no.sock", "--report", str(tmp_path / "none"))
    process = reclaimd(*words, *to)
    assert (process.returncode, process.stderr.count("\n")) == (3, 1)
    assert not (tmp_path / "none").exists()


def test_lists_missing_for_a_while_are_reported_as_a_fault_and_not_as_removals(
    fill_node: FillNode,
) -> None:
    """A runtime that is killed and restarted: the report names the outage, and no image as removed."""
    node = fill_node.node
    unused_images(node, 1)
    observed = Observing(fill_node, MIB)
    time.sleep(0.5)
    node.containerd.kill()
    time.sleep(4.0)  # the lists are asked for once a second
    node.containerd.start()
    assert came_true(lambda: len(node.cri.image_ids()) == 2)
    time.sleep(0.5)
    assert observed.ended(signal.SIGINT)[0] == 0
    document = fill_node.report(OBSERVED)
    assert document["removals"] == []
    (fault,) = document["faults"]
    assert fault["what"].startswith("the runtime's lists are not available:")


# ---- the embedded node, on loop devices; the same on tmpfs are with the rest of the library

# On btrfs a crossing is seen when what was written is committed, which the speed of the disk
# decides: only what is held there also when it comes late.
RUNS = [
    ("growing-file", "xfs"),
    ("small-files", "ext4"),
    ("small-files", "btrfs"),
    pytest.param("deleted-file", "xfs", marks=pytest.mark.soak),
    pytest.param("two-filesystems", "xfs", marks=pytest.mark.soak),
    pytest.param("growing-file", "ext4", marks=pytest.mark.soak),
]
# now and then XFS allocates less ahead: where something else on the machine made it write back
# early
MOST_RUNS = 5
# btrfs: mixed, as btrfs(5) recommends for small devices; it shows what was written or freed only
# when it commits: every 30 s, unless something calls sync.
MKFS = {"ext4": ("-E", "nodiscard"), "xfs": ("-K",), "btrfs": ("-K", "--mixed")}
OPTIONS = {"btrfs": ("commit=1", "flushoncommit")}


class LoopNode(EmbeddedNode):
    """The node of a scenario on loop devices, whose files are in a directory. `loops`: what closes
    them after the node."""

    def __init__(self, written: Fields, fstype: str, directory: Path, loops: ExitStack) -> None:
        super().__init__(scenario_of(written, "a scenario"), MOUNTS.how)
        self.kind = f"{fstype} on loop devices"
        self._fstype, self._directory, self._loops = fstype, directory, loops

    def _mount(self, disk: str, spec: FilesystemSpec) -> None:
        """Its capacity by statvfs is what is asked for, or a little more: the device is larger by
        what the type keeps for itself, such as the log of XFS."""
        options = MKFS[self._fstype], OPTIONS.get(self._fstype, ())
        inodes = spec.inodes if self._fstype == "ext4" else None  # the others make them as needed
        size = spec.size_bytes
        while True:
            where = self._directory / f"{Path(disk).name}-{size}"
            made = LoopFilesystem(where, size, self._fstype, inodes, *options)
            self._loops.enter_context(made)
            missing = spec.size_bytes - capacity_bytes(made.mountpoint)
            if missing <= 0:
                break
            size += missing + MIB
        run_tool("mount", "--bind", made.mountpoint, disk)


def drilled(written: Fields, fstype: str, directory: Path) -> DrillReportJson:
    """The report of a drill of this scenario."""
    with ExitStack() as loops, LoopNode(written, fstype, directory, loops) as node:
        return report_of(Drill(node, Log(time.time, stream=io.StringIO())).run())


@pytest.mark.parametrize(("name", "fstype"), RUNS)
def test_a_drill_on_a_loop_device_holds(name: str, fstype: str, tmp_path: Path) -> None:
    """The filesystem is what was asked for, and everything that the scenario says holds."""
    scenario = yaml.safe_load(Path(library()[name]).read_text())
    scenario["node"] |= SCENARIOS.get(f"{name} on {fstype}", {})
    found = drilled(scenario, fstype, tmp_path)
    assert fstype in found.filesystem
    assert found.held, found.checks


def test_what_xfs_allocates_ahead_counts_as_used(tmp_path: Path) -> None:
    """It takes as much again as the file has, until that is closed: below the mark, so
    images go, and relief holds.
    """
    written = SCENARIOS["closed-file"]
    runs = (drilled(written, "xfs", tmp_path / str(number)) for number in range(MOST_RUNS))
    found = next((run for run in runs if run.crossed_seconds is not None), None)
    assert found is not None, f"the mark was not crossed in {MOST_RUNS} runs"
    assert found.held, found.checks
