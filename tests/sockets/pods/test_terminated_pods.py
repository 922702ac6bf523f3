"""`terminatedPods: evidence` on a node with a real `/healthz`: what goes, and what the last look keeps."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from eviction.drill.runtime.faults import Hang
from eviction.node.hold_off import KubeletWatch
from eviction.node.node import Node
from reclaim.pods.kubelet_pods import KubeletDirectories
from reclaim.types import Reason
from signals.clock import SystemClock
from tests.nodes.small_node import CONTAINERS, Pod, SmallNode, reason_of, relieve
from tests.reclaimd_process import came_true

MINUTE = 60.0


class AheadClock(SystemClock):
    """A clock that goes on, and is ahead by what it was stepped."""

    ahead = 0.0

    def monotonic(self) -> float:
        """Ahead of the real time."""
        return super().monotonic() + self.ahead

    def wall(self) -> float:
        """Ahead of the real time."""
        return super().wall() + self.ahead

    def step(self, seconds: float) -> None:
        """Lets time pass."""
        self.ahead += seconds


class Healthz:
    """A kubelet's `/healthz` that keeps its connections open, as Go's server does. `restart` ends them all."""

    def __init__(self) -> None:
        self.status = 200
        self.slow_seconds = 0.0
        self._start(0)

    def _start(self, port: int) -> None:
        outer = self
        connections: list[Any] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                connections.append(self.connection)

            def do_GET(self) -> None:
                time.sleep(outer.slow_seconds)
                self.send_response(outer.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        self._connections = connections
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """The kubelet ends, and its connections with it."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def start_again(self) -> None:
        """Another one listens in its place."""
        self._start(self.port)

    def restart(self) -> None:
        """It ends, and another one listens in its place."""
        self.stop()
        self.start_again()


@pytest.fixture
def healthz() -> Iterator[Healthz]:
    """One that answers."""
    kubelet = Healthz()
    yield kubelet
    kubelet.stop()


def volume(node: SmallNode, pod: Pod, plugin: str = "kubernetes.io~projected", name: str = "token") -> None:
    """The kubelet has mounted a volume of the pod."""
    (node.root_directory / "pods" / pod.uid / "volumes" / plugin / name).mkdir(parents=True)


def terminate(node: SmallNode, pod: Pod, container: str) -> None:
    """The pod ends: its container, its sandbox, and then its volumes, of which the plugin's directory is left."""
    node.runtime.exit_container(container, 0)
    node.runtime.kill_sandbox(pod.sandbox_id)
    for plugin in (node.root_directory / "pods" / pod.uid / "volumes").iterdir():
        for mounted in plugin.iterdir():
            shutil.rmtree(mounted)


class Watching:
    """A node that counts evidence on a stepped clock, while its kubelet is watched for real."""

    def __init__(self, node: SmallNode, healthz: Healthz):
        self.small, self.clock = node, AheadClock()
        self.node: Node = node.node(
            clock=self.clock,
            terminatedPods="evidence",
            terminatedPodAge="10m",
            kubeletHealthzEndpoint=f"127.0.0.1:{healthz.port}",
        )
        self.node.kubelet_watch.start()
        assert came_true(lambda: self.node.kubelet_watch.healthy_since() is not None)

    def minutes(self, count: int) -> None:
        """So many comparisons, a minute apart; the kubelet goes on answering meanwhile."""
        for _ in range(count):
            self.clock.step(MINUTE)
            assert came_true(lambda: self.node.kubelet_watch.healthy_since() is not None)
            self.node.compare_pods()


def finished(node: SmallNode, watching: Watching, name: str = "job") -> tuple[Pod, str]:
    """A pod with a volume that was seen running, and has terminated since."""
    pod = node.run_pod(name)
    container = node.run(pod)
    volume(node, pod)
    watching.minutes(1)
    terminate(node, pod, container)
    return pod, container


def test_after_the_age_what_the_pod_holds_goes(small_node: SmallNode, healthz: Healthz) -> None:
    """Container and sandbox, with a reason of its own; a minute earlier they stay."""
    small_node.stands()
    watching = Watching(small_node, healthz)
    pod, container = finished(small_node, watching)
    watching.minutes(10)
    record = relieve(watching.node, CONTAINERS)
    assert reason_of(record, container) == Reason.NEWEST_OF_LIVE_POD
    watching.minutes(1)
    record = relieve(watching.node, CONTAINERS)
    assert reason_of(record, container) == Reason.TERMINATED_BY_EVIDENCE
    assert reason_of(record, pod.sandbox_id) == Reason.TERMINATED_BY_EVIDENCE
    assert small_node.containers() == set()
    assert [each for each in small_node.removed() if each in (container, pod.sandbox_id)] == [container, pod.sandbox_id]


def test_without_the_switch_nothing_is_seen(small_node: SmallNode) -> None:
    """By default the newest copy stays while the pod's directory does, and nobody watches the kubelet."""
    small_node.stands()
    pod = small_node.run_pod("job")
    container = small_node.run(pod)
    volume(small_node, pod)
    terminate(small_node, pod, container)
    clock = AheadClock()
    node = small_node.node(clock=clock)
    node.kubelet_watch.start()
    for _ in range(30):
        clock.step(MINUTE)
        node.compare_pods()
    assert reason_of(relieve(node, CONTAINERS), container) == Reason.NEWEST_OF_LIVE_POD
    assert node.kubelet_watch.healthy_since() is None


def test_all_pods_of_a_node_that_has_booted_stay(small_node: SmallNode, healthz: Healthz) -> None:
    """Everything is dead for an hour beside a healthy kubelet whose network does not come up: the volumes are there."""
    small_node.stands()
    watching = Watching(small_node, healthz)
    pods = [small_node.run_pod(f"pod-{number}") for number in range(3)]
    containers = [small_node.run(pod) for pod in pods]
    for pod in pods[:2]:
        volume(small_node, pod)
    watching.minutes(1)
    small_node.runtime.reboot()
    watching.minutes(60)
    relieve(watching.node, CONTAINERS)
    assert small_node.containers() == set(containers)


def test_a_kubelet_that_restarts_starts_the_count_anew(small_node: SmallNode, healthz: Healthz) -> None:
    """It is seen by the connection that ends, although each question is answered."""
    small_node.stands()
    watching = Watching(small_node, healthz)
    _, container = finished(small_node, watching)
    watching.minutes(10)
    before = watching.node.kubelet_watch.healthy_since()
    healthz.restart()
    assert came_true(lambda: watching.node.kubelet_watch.healthy_since() not in (before, None))
    watching.minutes(10)
    assert reason_of(relieve(watching.node, CONTAINERS), container) == Reason.NEWEST_OF_LIVE_POD
    small_node.run_pod("another")  # this kubelet knows the pods of the API server
    watching.minutes(1)
    assert reason_of(relieve(watching.node, CONTAINERS), container) == Reason.TERMINATED_BY_EVIDENCE


def test_a_volume_that_is_mounted_again_keeps_the_container(small_node: SmallNode, healthz: Healthz) -> None:
    """Between the plan and the removal: the kubelet mounts before it makes anything of a pod."""
    small_node.stands()
    watching = Watching(small_node, healthz)
    pod, container = finished(small_node, watching)
    watching.minutes(11)
    small_node.failpoints["ContainerStatus"] = Hang()
    with small_node.relieving(watching.node, CONTAINERS) as passing:
        small_node.wait_for("ContainerStatus")
        (small_node.root_directory / "pods" / pod.uid / "volumes" / "kubernetes.io~projected" / "token").mkdir()
        small_node.failpoints.clear()
        record = passing.result(60.0)
    assert reason_of(record, container) == Reason.POD_ALIVE
    assert small_node.containers() == {container}


@pytest.mark.parametrize("lost", ["kubelet", "directories"])
def test_what_was_observed_holds_for_this_kubelet_in_these_directories(
    small_node: SmallNode, healthz: Healthz, lost: str
) -> None:
    """Right before a removal, an observation of another kubelet, or of directories that are not trusted, is none."""
    small_node.stands()
    watching = Watching(small_node, healthz)
    pod, _ = finished(small_node, watching)
    watching.minutes(11)
    assert watching.node.pods.shown_terminated(pod.uid)
    if lost == "kubelet":
        healthz.restart()
    else:
        directory = small_node.root_directory / "pods"
        directory.rename(directory.with_name("other"))
        directory.mkdir()
        watching.node.compare_pods()
    assert came_true(lambda: not watching.node.pods.shown_terminated(pod.uid))


@pytest.mark.parametrize("answer", ["unhealthy", "none"])
def test_a_kubelet_that_is_not_healthy_shows_nothing(healthz: Healthz, answer: str) -> None:
    """500, or nobody listens."""
    watch = KubeletWatch(("127.0.0.1", healthz.port), 600.0)
    watch.start()
    assert came_true(lambda: watch.healthy_since() is not None)
    if answer == "none":
        healthz.stop()
    healthz.status = 500
    assert came_true(lambda: watch.healthy_since() is None)
    if answer == "none":
        healthz.start_again()
    healthz.status = 200
    assert came_true(lambda: watch.healthy_since() is not None)
    watch.close()


def test_a_kubelet_that_answers_slowly_is_healthy(healthz: Healthz) -> None:
    """After 0.3 s, on a busy node; two seconds are waited for each answer."""
    healthz.slow_seconds = 0.3
    watch = KubeletWatch(("127.0.0.1", healthz.port), 600.0)
    watch.start()
    assert came_true(lambda: watch.healthy_since() is not None)
    watch.close()


def test_only_empty_plugin_directories_show_that_volumes_are_torn_down(small_node: SmallNode) -> None:
    """None at all shows nothing, and neither does what is no directory."""
    directories = KubeletDirectories(str(small_node.root_directory))
    for name in ("none", "bare", "mounted", "down", "odd"):
        small_node.admit(f"uid-{name}")
    pods = small_node.root_directory / "pods"
    (pods / "uid-bare" / "volumes").mkdir()
    for name in ("mounted", "down", "odd"):
        (pods / f"uid-{name}" / "volumes" / "kubernetes.io~empty-dir").mkdir(parents=True)
    (pods / "uid-mounted" / "volumes" / "kubernetes.io~empty-dir" / "scratch").mkdir()
    (pods / "uid-odd" / "volumes" / "kubernetes.io~csi").symlink_to(pods)
    uids = [f"uid-{name}" for name in ("none", "bare", "mounted", "down", "odd", "gone")] + ["../uid-down", ""]
    identity = directories.pod_states().identity
    assert identity is not None
    assert directories.torn_down(uids, identity) == {"uid-down"}
    assert directories.torn_down(uids, identity._replace(pods=(0, 0))) == frozenset()
