"""Directories that are not the kubelet's make no pod gone: empty ones, another root, one exchanged
meanwhile; and that is told in plan, status, doctor, log and metrics, in one sentence.
"""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.private_mounts import unmount
from reclaim.evidence.states import Why
from tests.nodes.small_node import (
    AN_HOUR,
    CONTAINERS,
    EVERYTHING,
    MIB,
    Pod,
    SmallNode,
    reason_of,
    relieve,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as served
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.passes import interrupted


class Populated:
    """A pod that runs, one that has crashed, one that is over, one that is gone, each with logs."""

    def __init__(self, node: SmallNode):
        self.node = node
        self.web, self.job = node.run_pod("web"), node.run_pod("job")
        self.running = node.run(self.web)
        self.crashed, self.newer = (
            node.exited(self.web, name="side", attempt=attempt) for attempt in range(2)
        )
        self.over = node.exited(self.job)
        self.gone = node.gone_pod("gone")
        for name, each in (("web", self.running), ("job", self.over), ("gone", self.gone)):
            node.log(name, each)
        (self.image,) = node.add_images(1)

    def moves(self, *made: str) -> None:
        """Something else is in the place of the kubelet's root, with these directories."""
        self.node.root_directory.rename(self.node.disk / "unmounted")
        for name in ("", *made):
            (self.node.root_directory / name).mkdir()

    def empty(self) -> None:
        """The kubelet's disk is not mounted, and a CSI driver has made an empty `pods` below its
        mount point."""
        self.moves("pods")

    def foreign(self) -> None:
        """The kubelet runs with another `--root-dir`; here are directories of pods that are long
        forgotten."""
        self.moves("pods", "pods/uid-forgotten")

    def missing(self) -> None:
        """The kubelet's disk is not mounted, and nobody has made anything below its mount point."""
        self.moves()

    def back(self) -> None:
        """The kubelet's own directories are back."""
        shutil.rmtree(self.node.root_directory)
        (self.node.disk / "unmounted").rename(self.node.root_directory)

    def copied(self) -> None:
        """The kubelet's directories are on another disk now: the same names, other inodes."""
        self.node.root_directory.rename(self.node.disk / "old")
        shutil.copytree(self.node.disk / "old", self.node.root_directory)

    def boots(self) -> None:
        """The machine boots again: nothing runs."""
        self.node.runtime.reboot()

    def copied_and_boots(self) -> None:
        """Both."""
        self.copied()
        self.boots()

    def settled(self) -> None:
        """What runs has done so for an hour."""
        for each in (self.running, self.web.sandbox_id):
            self.node.runtime.age(each, AN_HOUR)

    def runs_again(self) -> None:
        """A pod has just begun."""
        self.again = self.node.run_pod("again")

    def for_an_hour(self) -> None:
        """And has run for an hour."""
        self.node.runtime.age(self.again.sandbox_id, AN_HOUR)

    def looks(self) -> None:
        """Nothing happens."""


Damage = Callable[[Populated], None]
DAMAGES = [Populated.empty, Populated.foreign, Populated.missing]


@pytest.fixture
def populated(small_node: SmallNode) -> Populated:
    """A small node with pods in all states."""
    return Populated(small_node)


@pytest.mark.regression
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("booted", [True, False])
def test_without_the_kubelets_directories_nothing_is_gone(
    populated: Populated, damage: Damage, booted: bool
) -> None:
    """No container, sandbox or log of a pod goes, after a boot or without one; an older copy and an
    image do."""
    node = populated.node
    if booted:
        populated.boots()
    damage(populated)

    def logs() -> list[Path]:
        return sorted(path for path in node.pod_logs_dir.rglob("*") if path.is_file())

    before = logs()
    relieve(node.node(), EVERYTHING)
    assert node.removed("container") == [populated.crashed]
    assert node.removed("sandbox") == []
    assert populated.image not in node.images()
    assert logs() == before


@pytest.mark.regression
@pytest.mark.parametrize("damage", [*DAMAGES, Populated.copied])
def test_a_root_that_is_exchanged_after_the_plan_removes_nothing(
    populated: Populated, damage: Damage
) -> None:
    """Neither the container that is being checked, nor the next one, nor their sandboxes."""
    node, other = populated.node, populated.node.gone_pod("gone-too")
    record = interrupted(
        node, node.node(), CONTAINERS, "ContainerStatus", lambda: damage(populated)
    )
    assert {populated.gone, other} <= node.containers()
    assert node.removed("sandbox") == []
    assert reason_of(record, other) == "pod_unknown"


@pytest.mark.regression
@pytest.mark.parametrize(
    "story",
    [
        pytest.param("boots yes", id="nothing runs, and pods have their directories"),
        pytest.param("missing no, back yes", id="the same directories come back"),
        pytest.param("settled yes, copied yes", id="mounted anew, they explain what runs"),
        pytest.param(
            "looks yes, copied_and_boots no, runs_again no, for_an_hour yes",
            id="they may be of long ago until a pod has run in them for a while",
        ),
        pytest.param("copied_and_boots yes", id="a new process has believed in none before"),
    ],
)
def test_another_root_is_not_believed_while_nothing_runs(populated: Populated, story: str) -> None:
    """And whether a pass removes what is gone after each step."""
    node, product, gone = populated.node, populated.node.node(), populated.gone
    for number, step in enumerate(story.split(", ")):
        what, goes = step.split()
        if gone not in node.containers():
            gone = node.gone_pod(f"gone-{number}")
        getattr(populated, what)()
        relieve(product, CONTAINERS)
        assert (gone not in node.containers()) is (goes == "yes"), step


FOREIGN = "uid-of-another-node"
DISGUISES = {
    "pods empty": "pods directory",
    "pods missing": "pods nothing",
    "pods foreign": f"pods directory {FOREIGN}",
    "pods mounted over": "pods mount",
    "root missing": ". nothing",
    "root empty": ". directory",
    "root without pods": ". directory pods",
    "root foreign": f". directory pods pods/{FOREIGN}",
    "root mounted over": ". mount",
    "root mounted over, without pods": ". mount pods",
}
"""What is in the place of the kubelet's directories: at which path, how, and what it contains."""


@contextmanager
def disguised(node: SmallNode, disguise: str) -> Iterator[None]:
    """Meanwhile something else is in the place of the kubelet's directories, in which nothing is
    changed."""
    where, kind, *content = DISGUISES[disguise].split()
    target, aside = node.root_directory / where, node.disk / "aside"
    if kind == "mount":
        mounted_tmpfs(str(target), MIB, 64)
    else:
        target.rename(aside)
    if kind == "directory":
        target.mkdir()
    for name in content:
        (target / name).mkdir()
    try:
        yield
        assert all((target / name).is_dir() for name in content)
    finally:
        if kind == "mount":
            unmount(str(target))
        else:
            shutil.rmtree(target, ignore_errors=True)
            aside.rename(target)


@pytest.mark.regression
@pytest.mark.parametrize("disguise", DISGUISES)
def test_nothing_of_a_pod_goes_while_something_else_is_in_the_place_of_its_directory(
    small_node: SmallNode, disguise: str
) -> None:
    """A pod whose container has ended and whose sandbox has died, beside one that runs: nor when
    the right ones are back. When it is deleted it goes."""
    pod = small_node.run_pod("ended")
    container = small_node.exited(pod)
    log = small_node.log("ended", container)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    running = small_node.run_pod("web")
    for each in (pod.sandbox_id, running.sandbox_id, small_node.run(running)):
        small_node.runtime.age(each, AN_HOUR)
    product = small_node.node()
    for meanwhile in (disguised(small_node, disguise), nullcontext()):
        with meanwhile:
            relieve(product, EVERYTHING)
    assert small_node.removed("container") == small_node.removed("sandbox") == []
    assert log.exists()
    small_node.forget(pod.uid)
    relieve(product, EVERYTHING)
    assert small_node.removed("container") == [container]
    assert small_node.removed("sandbox") == [pod.sandbox_id]
    assert not log.exists()


# ---- beside the kubelet's list


def listed(pod: Pod, phase: str = "Running") -> dict[str, object]:
    """A pod as the kubelet lists it, from the API server."""
    annotations = {"kubernetes.io/config.source": "api"}
    return {"metadata": {"uid": pod.uid, "annotations": annotations}, "status": {"phase": phase}}


@pytest.mark.regression
@pytest.mark.parametrize("told", [False, True])
def test_a_drained_node_keeps_its_remains(small_node: SmallNode, told: bool) -> None:
    """Nothing has a directory any more, which looks as if the directories were not the kubelet's;
    unless its list, which is complete as it has a pod of the API server, has none that would need
    one. Images go."""
    pod = small_node.run_pod("last")
    dead = small_node.exited(pod)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.forget(pod.uid)
    (image,) = small_node.add_images(1)
    rejected = listed(Pod("rejected", "uid-rejected", ""), "Failed")
    with KubeletServer(served(pod_list(rejected))) as kubelet:
        endpoint = kubelet.url if told else ""
        record = relieve(small_node.node(kubeletEndpoint=endpoint), EVERYTHING)
    assert reason_of(record, dead) == ("pod_gone" if told else "pod_unknown")
    assert (dead in small_node.containers()) is not told
    assert image not in small_node.images()


@pytest.mark.regression
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("extent", ["all", "enough"])
def test_the_kubelets_list_replaces_no_directories(
    populated: Populated, damage: Damage, extent: str
) -> None:
    """What it does not list is not gone; what it lists as terminated goes as ever, if directories
    can be read."""
    node = populated.node
    damage(populated)
    pods = pod_list(listed(populated.web), listed(populated.job, "Succeeded"))
    with KubeletServer(served(pods)) as kubelet:
        relieve(node.node(kubeletEndpoint=kubelet.url, extent=extent), CONTAINERS)
    assert {populated.running, populated.newer, populated.gone} <= node.containers()
    assert (populated.over in node.containers()) is (damage is Populated.missing)
    assert node.logs_of("gone").exists()


# ---- where it is told


class Doubtful:
    """A small node on which a pod runs, whose directory can go."""

    def __init__(self, node: SmallNode):
        self.node = node
        self.dead = node.gone_pod("gone")
        node.run(node.run_pod("web"))
        self.pods = node.root_directory / "pods"
        self.sentence = (
            f"the pod default/web runs without a directory in {self.pods}, so which pods are gone is"
            " not known"
        )

    def file(self, **fields: str) -> str:
        """A configuration."""
        marks = {"nodefs.available": "1Ki", "imagefs.available": "1Ki"}
        return self.node.configuration(None, 0, evictionHard=marks, **fields)


@pytest.fixture
def doubtful(small_node: SmallNode) -> Doubtful:
    """The node, with the directory still there."""
    return Doubtful(small_node)


def said(command: str, file: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    found: dict[str, Any] = answer(reclaimd_here(command, "--config", file, "-o", "json"))
    return found


def findings(file: str) -> dict[str, str]:
    """The evidence of each finding of `doctor` that is no note, by check."""
    found = said("doctor", file)["findings"]
    return {each["check"]: each["evidence"] for each in found if each["level"] != "note"}


def reclaim(file: str, *how: str) -> None:
    """A pass on request."""
    reclaimd_here("reclaim", "--config", file, "--signal", "nodefs.available", *how)


@pytest.mark.regression
def test_the_plan_says_why_nothing_is_gone(doubtful: Doubtful) -> None:
    """In the line before its verdict, in JSON, and as the reason of each object; without a doubt there is no such
    line. To `doctor` it is a problem, as are a directory that cannot be read and a directory of logs
    that is a symlink."""
    file = doubtful.file()
    believed = {"believed": True, "why": None, "sentence": None}
    assert said("plan", file)["pods"]["directories"] == believed
    assert findings(file) == {}
    doubtful.node.forget("uid-web")
    document = said("plan", file)
    assert document["pods"]["directories"] == {
        "believed": False,
        "why": "runs_without",
        "sentence": doubtful.sentence,
    }
    (kept,) = [each for each in document["kept"] if each["id"] == doubtful.dead]
    assert kept["reason"] == "pod_unknown"
    process = reclaimd_here("plan", "--config", file)
    assert process.stdout.splitlines()[-2] == f"pods: {doubtful.sentence}"
    assert process.returncode == 0
    assert findings(file) == {"pod-directories": doubtful.sentence}
    doubtful.pods.rename(doubtful.pods.with_name("away"))
    assert findings(file)["pod-directories"].startswith(f"{doubtful.pods} cannot be read (")
    doubtful.pods.with_name("away").rename(doubtful.pods)
    doubtful.node.admit("uid-web")
    logs = doubtful.node.pod_logs_dir
    logs.rename(logs.with_name("elsewhere"))
    logs.symlink_to(logs.with_name("elsewhere"))
    assert findings(file) == {"log-symlink": f"podLogsDir: {logs}"}


@pytest.mark.regression
def test_a_daemon_tells_it_everywhere_and_takes_it_back(doubtful: Doubtful, tmp_path: Path) -> None:
    """Status, doctor, log and metrics after a pass on request; all is well again after another."""
    control = str(tmp_path / "control" / "socket")
    file = doubtful.file(controlSocket=control, metricsAddress="127.0.0.1:0")
    with Daemon("--config", file) as daemon:
        address = daemon.wait_for(lambda event: "address" in event)["address"]
        assert came_true(lambda: believed(file)), "the first comparison needs no pass"
        assert doubts(address) == set()
        doubtful.node.forget("uid-web")
        reclaim(file, "--dry-run")
        assert said("status", file)["pod_directories"]["sentence"] == doubtful.sentence
        printed = reclaimd_here("status", "--config", file).stdout.splitlines()
        assert f"pods: {doubtful.sentence}" in printed
        assert findings(file) == {"pod-directories": doubtful.sentence}
        assert doubts(address) == {"runs_without"}
        reclaim(file, "--all", "--now")
        event = daemon.wait_for(lambda event: event["message"] == doubtful.sentence)
        assert event["why"] == "runs_without"
        assert doubtful.dead in doubtful.node.containers()
        doubtful.node.admit("uid-web")
        reclaim(file, "--all", "--now")
        assert daemon.wait_for(lambda event: "are trusted again" in event["message"])
        assert believed(file)
        assert doubts(address) == set()
        assert doubtful.dead not in doubtful.node.containers()


def test_doctor_asks_the_daemon_whether_the_directories_were_others_before(
    doubtful: Doubtful, tmp_path: Path
) -> None:
    """A command by itself has seen no others."""
    file = doubtful.file(controlSocket=str(tmp_path / "control" / "socket"))
    for each in doubtful.node.containers():
        doubtful.node.runtime.age(each, AN_HOUR)
    with Daemon("--config", file):
        assert came_true(lambda: believed(file))
        doubtful.node.runtime.reboot()
        shutil.copytree(doubtful.pods, doubtful.pods.with_name("copied"))
        doubtful.pods.rename(doubtful.pods.with_name("old"))
        doubtful.pods.with_name("copied").rename(doubtful.pods)
        reclaim(file, "--all", "--now")
        assert "is another directory than before" in findings(file)["pod-directories"]
    assert findings(file) == {}


def believed(file: str) -> bool:
    """Whether a daemon answers, and believes the directories."""
    process = reclaimd_here("status", "--config", file, "-o", "json")
    return process.returncode == 0 and bool(answer(process)["pod_directories"]["believed"])


def doubts(address: str) -> set[str]:
    """The words of the gauge that are 1."""
    connection = http.client.HTTPConnection(address, timeout=30.0)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    gauge = 'reclaimd_pod_directories_doubted{why="'
    rows = [line for line in text.splitlines() if line.startswith(gauge)]
    assert len(rows) == len(Why)
    return {row.removeprefix(gauge).partition('"')[0] for row in rows if row.endswith(" 1.0")}
