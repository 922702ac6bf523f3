"""`reclaimd drill --fill` on a real containerd: a real disk is filled, relieved, and given back, whatever happens."""

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
from tests.real_node.test_decide import spare_images
from tests.real_node.test_relief import MIB, configure
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true, reclaimd

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
    "pressure": {"grows": "bytes", "rate": "100Mi", "amount": "40Mi"},
    "expect": {"relievedWithin": "30s", "lowest": {"nodefs.available": "10%"}, "imagesLeftAtLeast": 2},
}


class Place:
    """A node with a directory to be filled, and what a drill on it is told."""

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
        """What the command is given."""
        return [
            "drill", self.scenario(**changes), "--config", self.configuration, "--fill", str(fill or self.directory),
            "--runtime", f"unix://{self.node.containerd.socket}", "--report", str(self._base / "report"), *more,
        ]  # fmt: skip

    def drill(self, *more: str, fill: Path | None = None, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Runs it to its end, with nobody at the terminal."""
        return reclaimd(*self.arguments(*more, fill=fill, **changes), timeout_seconds=100.0)

    def started(self, *more: str, **changes: Any) -> subprocess.Popen[str]:
        """Starts it."""
        arguments = [PROGRAM, *self.arguments("--yes", *more, **changes)]
        return subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def report(self, name: str = "small") -> Any:
        """The document that it wrote."""
        return json.loads((self._base / "report" / f"drill-{name}.json").read_text())

    @property
    def left_behind(self) -> list[str]:
        """What is in the directory."""
        return sorted(os.listdir(self.directory))


def checks(document: Any) -> dict[str, bool | None]:
    return {check["name"]: check["held"] for check in document["checks"]}


@pytest.fixture
def place(containerd_on_ext4: RealNode, tmp_path: Path) -> Place:
    """A node of 1 GiB with a mark at 300 MiB."""
    return Place(containerd_on_ext4, tmp_path)


def test_our_own_daemon_relieves_a_real_node_and_the_disk_is_given_back(place: Place) -> None:
    """The mark is crossed at the scenario's pace, the oldest image goes, what can be judged holds, and what was filled
    is free again."""
    images = spare_images(place.node, 3)
    before = place.node.filesystem.available_bytes()
    process = place.drill("--yes")
    assert process.returncode == 0, process.stdout + process.stderr
    document = place.report()
    assert [removal["id"] for removal in document["removals"] if removal["kind"] == "image"] == images[:1]
    assert MARK - 21 * MIB <= document["lowest"]["nodefs.available"] < MARK
    assert document["passes"][0]["result"] == "satisfied"
    judged = checks(document)
    assert judged["relieved"] is judged["lowest nodefs.available"] is judged["pods that ran"] is True
    assert judged["DiskPressure"] is True, "our own daemon reports it"
    assert judged["images left"] is judged["new pod"] is None, "said to be not judged, never passed"
    assert "2 of 6 could not be judged" in process.stdout
    assert place.left_behind == []
    assert place.node.filesystem.available_bytes() > before
    assert place.node.cri.image_ids() >= set(images[1:])


def test_whoever_is_there_responds_while_the_drill_fills_and_observes(place: Place) -> None:
    """Another process is the daemon; the drill removes nothing itself, and the condition is not its to judge."""
    images = spare_images(place.node, 2)
    with Daemon("--config", place.configuration):
        process = place.drill("--yes", "--observe", "--with-margin", "--quiet", "500ms")
    assert process.returncode == 0, process.stdout + process.stderr
    document = place.report("small-observed")
    assert (document["response"], document["passes"]) == ("observed", [])
    assert [removal["id"] for removal in document["removals"] if removal["kind"] == "image"] == images[:1]
    assert checks(document)["relieved"] is True
    assert checks(document)["DiskPressure"] is None
    assert place.left_behind == []


def test_pressure_that_nobody_relieves_does_not_hold_and_is_given_back(place: Place) -> None:
    """Nothing can go: 1, relief is said to be missing, and the disk is as it was."""
    before = place.node.filesystem.available_bytes()
    process = place.drill("--yes", "--for", "2s", pressure={"grows": "bytes", "rate": "400Mi", "amount": "40Mi"})
    assert process.returncode == 1, process.stdout + process.stderr
    assert checks(place.report())["relieved"] is False
    assert abs(place.node.filesystem.available_bytes() - before) < 2 * MIB
    assert place.left_behind == []


def test_inodes_of_a_real_node_are_pressed_and_given_back(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """The prefill comes near the mark, the pressure crosses it, and all files are removed at the end."""
    node = containerd_on_ext4
    mark = node.filesystem.inodes_free() - 3000
    place = Place(node, tmp_path, evictionHard={"nodefs.inodesFree": str(mark)}, evictionMinimumReclaim={})
    before = node.filesystem.inodes_free()
    pressure = {"grows": "inodes", "rate": "10000", "amount": "400"}
    process = place.drill("--yes", "--for", "2s", pressure=pressure, expect={"relievedWithin": "never"})
    assert process.returncode == 0, process.stdout + process.stderr
    document = place.report()
    assert mark - 250 <= document["lowest"]["nodefs.inodesFree"] < mark
    assert checks(document)["pressure"] is None
    assert abs(node.filesystem.inodes_free() - before) < 20
    assert place.left_behind == []


def test_a_pressure_that_has_a_time_ends_with_it(place: Place) -> None:
    """Half a second at 20 MiB a second is 10 MiB, half of them below the mark, and not the whole disk. Ten times
    as much is allowed for, as the machine is shared."""
    process = place.drill("--yes", "--for", "1500ms", pressure={"grows": "bytes", "rate": "20Mi", "for": "500ms"})
    assert process.returncode == 1, process.stdout + process.stderr
    assert place.report()["lowest"]["nodefs.available"] > MARK - 120 * MIB
    (period,) = place.report()["pressures"]
    assert 0.5 <= period["to_seconds"] - period["from_seconds"] < 5.0


@pytest.mark.parametrize("grows", ["bytes", "inodes"])
def test_a_drill_that_is_killed_gives_everything_back(containerd_on_ext4: RealNode, tmp_path: Path, grows: str) -> None:
    """SIGKILL in the middle of the fill: its helper notices, and the disk is as it was a moment later."""
    node = containerd_on_ext4
    inodes = grows == "inodes"
    hard = (
        {"nodefs.inodesFree": str(node.filesystem.inodes_free() - 3000)} if inodes else {"nodefs.available": str(MARK)}
    )
    place = Place(node, tmp_path, evictionHard=hard, evictionMinimumReclaim={})

    def free() -> int:
        return node.filesystem.inodes_free() if inodes else node.filesystem.available_bytes()

    before, slack = free(), 20 if inodes else 2 * MIB
    pressure = {"grows": grows, "rate": "100" if inodes else "1Mi", "amount": "400" if inodes else "40Mi"}
    process = place.started(pressure=pressure)
    filled = 2500 if inodes else before - MARK - 30 * MIB
    assert came_true(lambda: free() < before - filled), "it fills"
    process.kill()
    process.communicate()
    assert came_true(lambda: abs(free() - before) < slack), f"{before - free()} are missing"
    assert came_true(lambda: place.left_behind == [])


def test_a_drill_that_is_killed_with_its_helper_is_tidied_up_by_the_next_one(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Bytes are gone with the last process that holds them; files stay until the next drill finds and removes them."""
    node = containerd_on_ext4
    place = Place(node, tmp_path, evictionHard={"nodefs.inodesFree": str(node.filesystem.inodes_free() - 3000)})
    pressure = {"grows": "inodes", "rate": "5", "amount": "400"}  # it takes longer than the test to cross the mark
    process = place.started(pressure=pressure)
    assert came_true(lambda: len(place.left_behind) == 2), "the prefill, and the pressure"
    helpers = [int(name.removeprefix(".reclaimd-drill-").partition("-")[0]) for name in place.left_behind]
    second = place.drill("--yes", pressure=pressure)
    assert (second.returncode, "another" in second.stderr) == (75, True), "while it lives it is not disturbed"
    for number in (signal.SIGSTOP, signal.SIGKILL):  # all at one moment: none of them sees another one die
        for pid in (*helpers, process.pid):
            os.kill(pid, number)
    process.communicate()
    assert len(place.left_behind) == 2
    (place.directory / "somebody-elses").write_text("stays")
    third = place.drill("--yes", "--for", "100ms", pressure=pressure, expect={})
    assert third.returncode == 1, "in a tenth of a second no mark is crossed"
    assert "an earlier drill was killed" in third.stdout
    assert place.left_behind == ["somebody-elses"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drill_that_is_told_to_stop_gives_everything_back(place: Place, number: signal.Signals) -> None:
    """130, a sentence, and the disk is as it was before the process has ended."""
    before = place.node.filesystem.available_bytes()
    process = place.started(pressure={"grows": "bytes", "rate": "2Mi", "amount": "400Mi"})
    assert came_true(lambda: place.node.filesystem.available_bytes() < MARK + 199 * MIB), "in the pressure itself"
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 130, printed
    assert "given back" in printed
    assert abs(place.node.filesystem.available_bytes() - before) < 2 * MIB


def test_every_refusal_touches_nothing(place: Place, tmp_path: Path) -> None:
    """Each has one sentence that says why, and leaves images and disk as they are."""
    images = spare_images(place.node, 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before = place.node.filesystem.available_bytes(), place.node.cri.image_ids()
    pull = {"grows": "pull", "rate": "1Mi", "image": {"name": "registry.example/new", "size": "1Mi"}}
    fault = [{"action": "restart", "at": "1s"}]
    on_imagefs = {"grows": "bytes", "rate": "1Mi", "amount": "900Mi"}
    refused: dict[str, tuple[int, list[str], dict[str, Any]]] = {
        "there is no terminal to ask on": (2, [], {}),
        "is no directory": (2, ["--yes"], {"fill": tmp_path / "absent"}),
        "on none of the node's filesystems": (2, ["--yes"], {"fill": elsewhere}),
        "only bytes and inodes can grow": (2, ["--yes"], {"pressure": pull}),
        "faults, which only the embedded runtime can have": (2, ["--yes"], {"faults": fault}),
        "have to stay": (2, ["--yes"], {"pressure": on_imagefs}),
        "several collectors": (2, ["--yes"], {"node": {**NODE, "collectors": 2}}),
        "no threshold counts inodes": (2, ["--yes"], {"pressure": {"grows": "inodes", "rate": "1", "amount": "2"}}),
        "under pressure already": (2, ["--yes", "--eviction-hard", "nodefs.available<1000Mi"], {}),
        "--fill takes one scenario": (2, ["--yes", "--all"], {}),
        "held off": (2, ["--yes", "--config-dir", str(_conf(tmp_path, holdOffAfterStart="100000h"))], {}),
    }
    for said, (code, more, changes) in refused.items():
        process = place.drill(*more, **changes)
        assert (process.returncode, said in process.stderr) == (code, True), (said, process.stderr)
        assert process.stderr.count("\n") == 1, process.stderr
        assert "nothing was changed" in process.stderr
    with Daemon("--config", place.configuration):
        assert place.drill("--yes").returncode == 75, "a daemon of ours holds the node"
    (place.node.mountpoint / "database").write_text("somebody else's")
    process = place.drill("--yes")
    assert (process.returncode, "holds other data" in process.stderr) == (2, True), process.stderr
    assert "database" in process.stderr
    assert abs(place.node.filesystem.available_bytes() - before[0]) < MIB
    assert place.node.cri.image_ids() == before[1] >= set(images)
    assert place.drill("--yes", "--allow-other-data").returncode == 0
    assert (place.node.mountpoint / "database").read_text() == "somebody else's"


def _conf(directory: Path, **fields: object) -> Path:
    """A directory with one drop-in."""
    made = directory / "conf.d"
    made.mkdir(exist_ok=True)
    head = {"apiVersion": "reclaimd.io/v1alpha1", "kind": "ReclaimdConfiguration"}
    (made / "10.conf").write_text(json.dumps({**head, **fields}))
    return made


def test_whoever_sits_at_the_terminal_is_asked(place: Place) -> None:
    """Only a yes fills; the plan stands above the question."""
    spare_images(place.node, 1)
    before = place.node.filesystem.available_bytes()
    for answer, code in (("n", 1), ("", 1), ("y", 0)):
        leader, follower = os.openpty()
        command = [PROGRAM, *place.arguments()]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=ENVIRONMENT, stdin=follower, stdout=pipe, stderr=pipe, text=True)
        os.write(leader, f"{answer}\n".encode())
        printed, said = process.communicate(timeout=60.0)
        os.close(leader)
        os.close(follower)
        assert process.returncode == code, printed + said
        assert "continue? [y/N]" in said
        assert "everything that was filled is given back" in printed
        assert ("nothing was changed" in said) == bool(code)
        assert (abs(place.node.filesystem.available_bytes() - before) < MIB) == bool(code)


def test_a_ctrl_c_at_the_question_is_a_no(place: Place) -> None:
    """It ends the command at once, and nothing was changed."""
    before = place.node.filesystem.available_bytes()
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [PROGRAM, *place.arguments()],
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
    assert abs(place.node.filesystem.available_bytes() - before) < MIB  # containerd writes a page now and then
    assert place.left_behind == []


def test_a_fill_that_is_lost_is_no_relief(place: Place) -> None:
    """Somebody kills the process that holds the pressure: the disk has room again, and nobody is praised for it."""
    process = place.started(pressure={"grows": "bytes", "rate": "100Mi", "amount": "40Mi"})
    assert came_true(lambda: place.node.filesystem.available_bytes() < MARK - 10 * MIB)
    for pid in helpers_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1, printed
    assert "the disk was not filled as planned" in printed
    assert place.left_behind == []


def helpers_of(pid: int) -> set[int]:
    """The processes that a drill, or any of its threads, has started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


def test_a_pod_that_ends_meanwhile_is_a_failure(place: Place) -> None:
    """Pods that ran have to go on; one that was stopped during the drill is named, and the drill does not hold."""
    node = place.node
    spare_images(node, 1)
    app = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
    node.kubelet.admit_pod("uid-victim")
    sandbox = node.kubelet.run_pod("victim", "uid-victim")
    node.kubelet.run_container(sandbox, "app", app, SLEEP_FOR_EVER)
    process = place.started(pressure={"grows": "bytes", "rate": "5Mi", "amount": "40Mi"})
    assert came_true(lambda: node.filesystem.available_bytes() < MARK + 15 * MIB)
    node.kubelet.end_pod(sandbox)
    printed, _ = process.communicate(timeout=60.0)
    assert process.returncode == 1, printed
    assert "ended: default/victim" in printed
    time.sleep(0.1)
    assert checks(place.report())["pods that ran"] is False
