"""`reclaimd drill --fill` on a real containerd: a real disk is filled and relieved,
and its space freed again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import RealNode
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image
from tests.real_node.test_decide import unused_images
from tests.real_node.test_relief import MIB, configure
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true, reclaimd, reclaimd_here

MARK = 300 * MIB
NODE = {
    "size": "512Mi",
    "inodes": 4000,
    "images": [{"name": "registry.k8s.io/pause", "size": "64Ki"}],
    "evictionHard": {"nodefs.available": "10%"},
}
SCENARIO: dict[str, Any] = {
    "name": "small",
    "why": "A real disk that fills is relieved.",
    "node": NODE,
    "pressure": {"grows": "bytes", "rate": "25Mi", "amount": "10Mi"},
    "expect": {
        "relievedWithin": "30s",
        "lowest": {"nodefs.available": "10%"},
        "imagesLeftAtLeast": 2,
    },
}


class FillNode:
    """A node with a directory to be filled, and the arguments of a drill on it."""

    def __init__(self, node: RealNode, directory: Path, **fields: object):
        self.node = node
        self.directory = node.mountpoint / "drill"
        self.directory.mkdir()
        self._base = directory
        given = {
            "podLogsDir": str(node.kubelet.pod_logs_dir),
            "evictionHard": {"nodefs.available": str(MARK)},
            "evictionMinimumReclaim": {"nodefs.available": "0"},
        }
        self.configuration = configure(directory, node, **{**given, **fields})

    def scenario(self, **changes: Any) -> str:
        """A file of the scenario."""
        path = self._base / "scenario.yaml"
        path.write_text(json.dumps({**SCENARIO, **changes}))
        return str(path)

    def arguments(self, *more: str, fill: Path | None = None, **changes: Any) -> list[str]:
        """The arguments of the command."""
        return [
            "drill", self.scenario(**changes), "--config", self.configuration, "--fill", str(fill or self.directory),
            "--runtime", f"unix://{self.node.containerd.socket}", "--report", str(self._base / "report"), *more,
        ]  # fmt: skip

    def drill(
        self, *more: str, fill: Path | None = None, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end, without a terminal."""
        return reclaimd(*self.arguments(*more, fill=fill, **changes), timeout_seconds=100.0)

    def refused(
        self, *more: str, fill: Path | None = None, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs one that ends before it fills, in this process."""
        return reclaimd_here(*self.arguments(*more, fill=fill, **changes))

    def started(self, *more: str, **changes: Any) -> subprocess.Popen[str]:
        """Starts it."""
        arguments = [PROGRAM, *self.arguments("--yes", *more, **changes)]
        return subprocess.Popen(
            arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def report(self, name: str = "small") -> Any:
        """The document that it wrote."""
        return json.loads((self._base / "report" / f"drill-{name}.json").read_text())

    @property
    def left_behind(self) -> list[str]:
        """The names in the directory."""
        return sorted(os.listdir(self.directory))


def checks(document: Any) -> dict[str, bool | None]:
    return {check["name"]: check["held"] for check in document["checks"]}


@pytest.fixture
def fill_node(containerd_on_ext4: RealNode, tmp_path: Path) -> FillNode:
    """A node of 1 GiB with a mark at 300 MiB."""
    return FillNode(containerd_on_ext4, tmp_path)


def test_our_own_daemon_relieves_a_real_node_and_the_space_is_freed_again(
    fill_node: FillNode,
) -> None:
    """The mark is crossed at the scenario's pace, the oldest image is removed, what can be judged
    holds, and the filled space is free again."""
    images = unused_images(fill_node.node, 3)
    before = fill_node.node.filesystem.available_bytes()
    process = fill_node.drill("--yes")
    assert process.returncode == 0, process.stdout + process.stderr
    document = fill_node.report()
    assert [
        removal["id"] for removal in document["removals"] if removal["kind"] == "image"
    ] == images[:1]
    assert MARK - 6 * MIB <= document["lowest"]["nodefs.available"] < MARK
    assert document["passes"][0]["result"] == "satisfied"
    judged = checks(document)
    assert (
        judged["relieved"] is judged["lowest nodefs.available"] is judged["pods that ran"] is True
    )
    assert judged["ReclaimPressure"] is True, "our own daemon reports it"
    assert judged["images left"] is judged["new pod"] is None, (
        "reported as not judged, never as passed"
    )
    assert "2 of 6 could not be judged" in process.stdout
    assert fill_node.left_behind == []
    assert fill_node.node.filesystem.available_bytes() > before
    assert fill_node.node.cri.image_ids() >= set(images[1:])


def test_another_daemon_responds_while_the_drill_fills_and_observes(fill_node: FillNode) -> None:
    """With --observe another daemon responds; the drill removes nothing, and
    does not judge the condition.
    """
    images = unused_images(fill_node.node, 2)
    with Daemon("--config", fill_node.configuration):
        process = fill_node.drill("--yes", "--observe", "--with-margin", "--quiet", "500ms")
    assert process.returncode == 0, process.stdout + process.stderr
    document = fill_node.report("small-observed")
    assert (document["response"], document["passes"]) == ("observed", [])
    assert [
        removal["id"] for removal in document["removals"] if removal["kind"] == "image"
    ] == images[:1]
    assert checks(document)["relieved"] is True
    assert checks(document)["ReclaimPressure"] is None
    assert fill_node.left_behind == []


def test_pressure_that_is_not_relieved_does_not_hold_and_is_freed_again(
    fill_node: FillNode,
) -> None:
    """Nothing is removable: exit 1, the report says that relief is missing,
    and the disk is as before.
    """
    before = fill_node.node.filesystem.available_bytes()
    process = fill_node.drill(
        "--yes", "--for", "2s", pressure={"grows": "bytes", "rate": "400Mi", "amount": "40Mi"}
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert checks(fill_node.report())["relieved"] is False
    assert abs(fill_node.node.filesystem.available_bytes() - before) < 2 * MIB
    assert fill_node.left_behind == []


def test_inodes_of_a_real_node_are_filled_and_freed_again(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """The prefill stops above the mark, the pressure crosses it, and all
    files are removed at the end.
    """
    node = containerd_on_ext4
    mark = node.filesystem.inodes_free() - 3000
    fill_node = FillNode(
        node, tmp_path, evictionHard={"nodefs.inodesFree": str(mark)}, evictionMinimumReclaim={}
    )
    before = node.filesystem.inodes_free()
    pressure = {"grows": "inodes", "rate": "10000", "amount": "400"}
    process = fill_node.drill(
        "--yes", "--for", "2s", pressure=pressure, expect={"relievedWithin": "never"}
    )
    assert process.returncode == 0, process.stdout + process.stderr
    document = fill_node.report()
    assert mark - 250 <= document["lowest"]["nodefs.inodesFree"] < mark
    assert checks(document)["pressure"] is None
    assert abs(node.filesystem.inodes_free() - before) < 20
    assert fill_node.left_behind == []


def test_a_pressure_with_a_duration_ends_after_it(fill_node: FillNode) -> None:
    """Half a second at 20 MiB a second is 10 MiB, half of them below the mark, not the whole disk.
    Ten times as much is allowed, as the machine is shared."""
    process = fill_node.drill(
        "--yes", "--for", "1500ms", pressure={"grows": "bytes", "rate": "20Mi", "for": "500ms"}
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert fill_node.report()["lowest"]["nodefs.available"] > MARK - 120 * MIB
    (period,) = fill_node.report()["pressures"]
    assert 0.5 <= period["to_seconds"] - period["from_seconds"] < 5.0


@pytest.mark.parametrize("grows", ["bytes", "inodes"])
def test_a_drill_that_is_killed_frees_everything(
    containerd_on_ext4: RealNode, tmp_path: Path, grows: str
) -> None:
    """SIGKILL in the middle of the fill: its helper process notices, and the disk is
    as before a moment later.
    """
    node = containerd_on_ext4
    inodes = grows == "inodes"
    hard = (
        {"nodefs.inodesFree": str(node.filesystem.inodes_free() - 3000)}
        if inodes
        else {"nodefs.available": str(MARK)}
    )
    fill_node = FillNode(node, tmp_path, evictionHard=hard, evictionMinimumReclaim={})

    def free() -> int:
        return node.filesystem.inodes_free() if inodes else node.filesystem.available_bytes()

    before, slack = free(), 20 if inodes else 2 * MIB
    pressure = {
        "grows": grows,
        "rate": "100" if inodes else "1Mi",
        "amount": "400" if inodes else "40Mi",
    }
    process = fill_node.started(pressure=pressure)
    filled = 2500 if inodes else before - MARK - 30 * MIB
    assert came_true(lambda: free() < before - filled), "it fills"
    process.kill()
    process.communicate()
    assert came_true(lambda: abs(free() - before) < slack), f"{before - free()} are missing"
    assert came_true(lambda: fill_node.left_behind == [])


def test_the_next_drill_refuses_beside_another_or_one_killed_with_its_helper(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Bytes are freed with the last process that holds them; files are left, and named."""
    node = containerd_on_ext4
    fill_node = FillNode(
        node,
        tmp_path,
        evictionHard={"nodefs.inodesFree": str(node.filesystem.inodes_free() - 3000)},
    )
    # it takes longer than the test to cross the mark
    pressure = {"grows": "inodes", "rate": "5", "amount": "400"}
    process = fill_node.started(pressure=pressure)
    assert came_true(lambda: len(fill_node.left_behind) == 2), "the prefill, and the pressure"
    helpers = [
        int(name.removeprefix(".reclaimd-drill-").partition("-")[0])
        for name in fill_node.left_behind
    ]
    second = fill_node.drill("--yes", pressure=pressure)
    assert (second.returncode, "another" in second.stderr) == (
        75,
        True,
    ), "a running drill is not disturbed"
    # all at one moment: none of them notices another one's end
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*helpers, process.pid):
            os.kill(pid, number)
    process.communicate()
    assert len(fill_node.left_behind) == 2
    left = fill_node.left_behind
    third = fill_node.drill("--yes", pressure=pressure)
    assert third.returncode == 75
    assert f"remove {', '.join(left)}" in third.stderr
    assert fill_node.left_behind == left


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drill_that_is_stopped_by_a_signal_frees_everything(
    fill_node: FillNode, number: signal.Signals
) -> None:
    """Exit 130 with a sentence, and the disk is as before by the time the process ends."""
    before = fill_node.node.filesystem.available_bytes()
    process = fill_node.started(pressure={"grows": "bytes", "rate": "2Mi", "amount": "400Mi"})
    assert came_true(lambda: fill_node.node.filesystem.available_bytes() < MARK + 199 * MIB), (
        "in the pressure itself"
    )
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 130, printed
    assert "the fill was removed" in printed
    assert abs(fill_node.node.filesystem.available_bytes() - before) < 2 * MIB


def test_every_refusal_changes_nothing(fill_node: FillNode, tmp_path: Path) -> None:
    """Each has one sentence with its reason, and leaves images and disk unchanged."""
    images = unused_images(fill_node.node, 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    held_off = _conf(tmp_path, holdOffAfterStart="100000h", kubeletHealthzEndpoint="")
    before = fill_node.node.filesystem.available_bytes(), fill_node.node.cri.image_ids()
    pull = {
        "grows": "pull",
        "rate": "1Mi",
        "image": {"name": "registry.example/new", "size": "1Mi"},
    }
    fault = [{"action": "restart", "at": "1s"}]
    on_imagefs = {"grows": "bytes", "rate": "1Mi", "amount": "900Mi"}
    refused: dict[str, tuple[int, list[str], dict[str, Any]]] = {
        "is not a directory": (2, ["--yes"], {"fill": tmp_path / "absent"}),
        "on none of the node's filesystems": (2, ["--yes"], {"fill": elsewhere}),
        "only bytes and inodes can grow": (2, ["--yes"], {"pressure": pull}),
        "faults, which only the embedded runtime can have": (2, ["--yes"], {"faults": fault}),
        "must stay free": (2, ["--yes"], {"pressure": on_imagefs}),
        "no threshold counts inodes": (
            2,
            ["--yes"],
            {"pressure": {"grows": "inodes", "rate": "1", "amount": "2"}},
        ),
        "already under pressure": (2, ["--yes", "--eviction-hard", "nodefs.available<1000Mi"], {}),
        "--all: not allowed with --fill": (2, ["--yes", "--all"], {}),
        "held off": (2, ["--yes", "--config-dir", str(held_off)], {}),
    }
    unasked = fill_node.drill()
    assert (unasked.returncode, "there is no terminal to ask on" in unasked.stderr) == (
        2,
        True,
    ), unasked.stderr
    assert unasked.stderr.count("\n") == 1, unasked.stderr
    assert "nothing was changed" in unasked.stderr
    for message, (code, more, changes) in refused.items():
        process = fill_node.refused(*more, **changes)
        assert (process.returncode, message in process.stderr) == (code, True), (
            message,
            process.stderr,
        )
        assert process.stderr.count("\n") == 1, process.stderr
        assert "nothing was changed" in process.stderr
    with Daemon("--config", fill_node.configuration):
        assert fill_node.refused("--yes").returncode == 75, "a daemon of ours holds the node"
    (fill_node.node.mountpoint / "database").write_text("of another program")
    process = fill_node.refused("--yes")
    assert (process.returncode, "holds other data" in process.stderr) == (2, True), process.stderr
    assert "database" in process.stderr
    assert abs(fill_node.node.filesystem.available_bytes() - before[0]) < MIB
    assert fill_node.node.cri.image_ids() == before[1] >= set(images)
    assert fill_node.drill("--yes", "--allow-other-data").returncode == 0
    assert (fill_node.node.mountpoint / "database").read_text() == "of another program"


def _conf(directory: Path, **fields: object) -> Path:
    """A directory with one drop-in file."""
    made = directory / "conf.d"
    made.mkdir(exist_ok=True)
    head = {"apiVersion": "reclaimd.io/v1alpha1", "kind": "ReclaimdConfiguration"}
    (made / "10.conf").write_text(json.dumps({**head, **fields}))
    return made


def test_at_a_terminal_the_drill_asks_before_it_fills(fill_node: FillNode) -> None:
    """Only a yes fills; the plan is printed above the question."""
    unused_images(fill_node.node, 1)
    before = fill_node.node.filesystem.available_bytes()
    for answer, code in (("n", 1), ("", 1), ("y", 0)):
        leader, follower = os.openpty()
        command = [PROGRAM, *fill_node.arguments()]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=ENVIRONMENT, stdin=follower, stdout=pipe, stderr=pipe, text=True
        )
        os.write(leader, f"{answer}\n".encode())
        printed, question = process.communicate(timeout=60.0)
        os.close(leader)
        os.close(follower)
        assert process.returncode == code, printed + question
        assert "continue? [y/N]" in question
        assert "everything that was filled is freed" in printed
        assert ("nothing was changed" in question) == bool(code)
        assert (abs(fill_node.node.filesystem.available_bytes() - before) < MIB) == bool(code)


def test_a_ctrl_c_at_the_question_is_a_no(fill_node: FillNode) -> None:
    """It ends the command at once, and changes nothing."""
    before = fill_node.node.filesystem.available_bytes()
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [PROGRAM, *fill_node.arguments()],
        env=ENVIRONMENT,
        stdin=follower,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process.stderr:
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(process.stderr.fileno(), 100)
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == 130
    os.close(leader)
    os.close(follower)
    # containerd writes a page now and then
    assert abs(fill_node.node.filesystem.available_bytes() - before) < MIB
    assert fill_node.left_behind == []


def test_space_freed_by_losing_the_fill_is_no_relief(fill_node: FillNode) -> None:
    """The process that holds the fill is killed: the disk has room again, and that
    does not count as relief.
    """
    process = fill_node.started(pressure={"grows": "bytes", "rate": "100Mi", "amount": "40Mi"})
    assert came_true(lambda: fill_node.node.filesystem.available_bytes() < MARK - 10 * MIB)
    for pid in helpers_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1, printed
    assert "the disk was not filled as planned" in printed
    assert fill_node.left_behind == []


def helpers_of(pid: int) -> set[int]:
    """The processes that a drill, or any of its threads, has started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


def test_a_pod_that_ends_meanwhile_is_a_failure(fill_node: FillNode) -> None:
    """A pod that is stopped during the drill is named, and the drill fails."""
    node = fill_node.node
    unused_images(node, 1)
    app = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
    node.kubelet.admit_pod("uid-victim")
    sandbox = node.kubelet.run_pod("victim", "uid-victim")
    node.kubelet.run_container(sandbox, "app", app, SLEEP_FOR_EVER)
    process = fill_node.started(pressure={"grows": "bytes", "rate": "2Mi", "amount": "10Mi"})
    assert came_true(lambda: node.filesystem.available_bytes() < MARK + 4 * MIB)
    node.kubelet.end_pod(sandbox)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1, printed
    assert "ended: default/victim" in printed
    time.sleep(0.1)
    assert checks(fill_node.report())["pods that ran"] is False
