"""`reclaimd plan --pods` beside a kubelet that answers as one of version 1.36: whom it would evict, in its order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signals.types import FsLayout, Signal
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import answer as document_of
from tests.reclaimd_process import reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.kubelet_server import BEARER, Authority, KubeletServer, answer, chunked, pod_list, serving

FORBIDDEN = "Forbidden (user=system:serviceaccount:default:reclaimd, verb=get, resource=nodes, subresource(s)=[{}])\n"
POD = {
    "rank", "namespace", "name", "uid", "verdict", "reason", "priority", "used", "request", "over_request", "usage",
    "deleted",
}  # fmt: skip


def pod(name: str, request: str = "", **fields: Any) -> dict[str, Any]:
    """A pod as the kubelet lists it, with a scratch volume of at most 1Gi; its UID is `uid-` and its name."""
    resources = {"requests": {"ephemeral-storage": request}} if request else {}
    annotations = {"kubernetes.io/config.seen": "2026-11-22T09:00:00Z", "kubernetes.io/config.source": "api"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {**annotations, **fields.pop("annotations", {})},
        },
        "spec": {
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [{"name": "app", "image": "registry.example/app:1", "resources": resources}],
            "nodeName": "node-1",
            "priority": 0,
            **fields,
        },
        "status": {"phase": "Running", "qosClass": "BestEffort"},
    }


def used(used_bytes: int, inodes_used: int) -> dict[str, Any]:
    """FsStats as the kubelet writes them."""
    return {"time": "2026-11-22T09:00:00Z", "usedBytes": used_bytes, "inodesUsed": inodes_used}


def statistics(name: str, layer: int = 0, logs: int = 0, scratch: int = 0, inodes: int = 0) -> dict[str, Any]:
    """What the summary says of a pod; all inodes are of its logs."""
    return {
        "podRef": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "startTime": "2026-11-22T09:00:00Z",
        "containers": [{"name": "app", "rootfs": used(layer, 0), "logs": used(logs, inodes)}],
        "volume": [{**used(scratch, 0), "name": "scratch"}],
        "ephemeral-storage": used(min(layer + logs + scratch, 2**64 - 1), inodes),
    }


def summary(*pods: dict[str, Any]) -> bytes:
    """The answer to `GET /stats/summary`."""
    return json.dumps({"node": {"nodeName": "node-1", "fs": used(1, 1)}, "pods": list(pods)}).encode()


class Kubelet:
    """A kubelet for the command, over HTTP."""

    def __init__(self, server: KubeletServer) -> None:
        self.server = server
        self.url = server.url
        self.tell(
            [
                pod("web", "1Mi"),
                pod("batch", priority=-10),
                pod("database", "1Gi", priority=1000),
                pod("etcd", annotations={"kubernetes.io/config.source": "file"}),
                pod("dns", priority=2_000_000_000),
                pod("new"),
            ],
            [
                statistics("web", layer=3 << 20, logs=1 << 20, inodes=5),
                statistics("batch", logs=1 << 10, inodes=2),
                statistics("database", scratch=900 << 20, inodes=7),
                statistics("etcd", logs=5 << 30),
                statistics("dns", logs=1),
            ],
        )

    def tell(self, pods: list[dict[str, Any]], told: list[dict[str, Any]]) -> None:
        """What it answers from now on: its pods in chunks, as Go sends a long answer."""
        listed = pod_list(*pods)
        self.server.by_path["/pods"] = [chunked(listed[:50], listed[50:])]
        self.server.by_path["/stats/summary"] = [answer(summary(*told))]


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    """A kubelet with six pods; of one the summary says nothing."""
    with KubeletServer(answer(b"404 page not found\n", 404)) as server:
        yield Kubelet(server)


def ranking(document: Any) -> list[tuple[int | None, str, str]]:
    """Rank, name and reason of each pod of the document."""
    return [(each["rank"], each["name"], each["reason"]) for each in document["pods"]]


IN_ORDER = [
    (1, "new", "no_statistics"),
    (2, "batch", "over_request"),
    (3, "web", "over_request"),
    (4, "database", "within_request"),
    (None, "etcd", "static"),
    (None, "dns", "critical_priority"),
]


def test_pods_in_the_kubelets_order_as_json(small_node: SmallNode, kubelet: Kubelet) -> None:
    """Each with rank, verdict, reason and usage; one request for each of the two answers; nothing is removed."""
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    process = reclaimd("plan", "--pods", "--signal", "nodefs.available", "--config", file, "-o", "json")
    assert (process.returncode, process.stderr) == (0, "")
    document = document_of(process)
    assert (document["signal"], document["met"], document["layout"]) == ("nodefs.available", False, "single")
    assert document["counted"] == ["writable_layers", "logs", "local_volumes"]
    assert document["threshold"]["value"] == "10%"
    assert document["observation"]["signal"] == "nodefs.available"
    assert ranking(document) == IN_ORDER
    assert all(set(each) == POD for each in document["pods"])
    assert [each["verdict"] for each in document["pods"]] == ["evict"] * 4 + ["keep"] * 2
    new, batch, web, *_ = document["pods"]
    assert (new["used"], new["usage"], new["over_request"]) == (None, None, None)
    assert (batch["priority"], batch["used"], batch["request"], batch["over_request"]) == (-10, 1024, 0, 1024)
    assert (web["used"], web["request"], web["over_request"]) == (4 << 20, 1 << 20, 3 << 20)
    assert web["usage"] == {"writable_layers": 3 << 20, "logs": 1 << 20, "local_volumes": 0}
    assert (web["namespace"], web["uid"], web["deleted"]) == ("default", "uid-web", False)
    assert document["over_limits"] == []
    assert [request.split()[1] for request in kubelet.server.requests] == ["/pods", "/stats/summary"]
    assert small_node.removed() == []


def test_pods_as_a_table(small_node: SmallNode, kubelet: Kubelet) -> None:
    """A line for the signal, what counts, a line for each pod, and how the kubelet goes on."""
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    process = reclaimd_here("plan", "--pods", "--signal", "nodefs.available", "--config", file)
    lines = process.stdout.splitlines()
    assert lines[0].startswith("nodefs.available: not met, so it evicts no pod now: ")
    assert lines[0].endswith("the kubelet's threshold 10% = 6.4MiB")
    assert lines[1] == "counted for it: writable layers, logs, local volumes (layout: single)"
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[3:10]]
    assert cells[0] == [
        "RANK", "POD", "USED", "REQUEST", "PRIORITY", "WRITABLE LAYERS", "LOGS", "LOCAL VOLUMES", "WHY",
    ]  # fmt: skip
    assert [row[:2] for row in cells[1:]] == [
        ["-" if rank is None else str(rank), f"default/{name}"] for rank, name, _ in IN_ORDER
    ]
    assert cells[1][2:] == ["-", "0B", "0", "-", "-", "-", "the kubelet has no statistics for it"]
    assert cells[3][2:] == ["4.0MiB", "1.0MiB", "0", "3.0MiB", "1.0MiB", "0B", "uses more than it requests"]
    assert cells[5][-1] == "never evicted: a static pod"
    assert lines[-1].startswith("at most one pod per pass, from the top")


def test_the_signal_that_is_met_is_chosen(small_node: SmallNode, kubelet: Kubelet) -> None:
    """By the kubelet's own thresholds: ours, which are higher by the margin, do not count."""
    small_node.fill(inodes=int(small_node.inodes_free() * 0.97))
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    document = document_of(reclaimd_here("plan", "--pods", "--config", file, "-o", "json"))
    assert (document["signal"], document["met"]) == ("nodefs.inodesFree", True)
    assert document["threshold"]["origin"] == "the kubelet's default"
    assert document["threshold"]["margin"] is None
    assert ranking(document)[1:4] == [
        (2, "batch", "over_request"),
        (3, "web", "over_request"),
        (4, "database", "over_request"),  # with an inode everybody exceeds the request of inodes
    ]
    assert document["pods"][2]["used"] == 5
    text = reclaimd_here("plan", "--pods", "--config", file).stdout
    assert text.startswith("nodefs.inodesFree: UNDER PRESSURE: ")
    assert "5 inodes" in text


def test_without_pressure_the_nearest_signal_is_chosen(small_node: SmallNode, kubelet: Kubelet, tmp_path: Path) -> None:
    """By the kubelet's configuration, where it is known: that a mark of ours is met changes nothing."""
    settings = tmp_path / "kubelet.yaml"
    settings.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'evictionHard: {nodefs.available: "60%", nodefs.inodesFree: "1%"}\n'
    )
    fields = {"kubeletEndpoint": kubelet.url, "kubeletConfig": str(settings)}
    file = small_node.configuration(Signal.NODEFS_INODES_FREE, above=100, **fields)
    document = document_of(reclaimd_here("plan", "--pods", "--config", file, "-o", "json"))
    assert (document["signal"], document["met"]) == ("nodefs.available", False)
    assert document["threshold"]["origin"] == str(settings)
    assert reclaimd_here("check", "--config", file).returncode == 1


def test_a_soft_threshold_says_its_grace_period(small_node: SmallNode, kubelet: Kubelet, tmp_path: Path) -> None:
    """The kubelet evicts for it only then."""
    settings = tmp_path / "kubelet.yaml"
    settings.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'evictionSoft: {nodefs.available: "100Gi"}\nevictionSoftGracePeriod: {nodefs.available: 90s}\n'
    )
    file = small_node.configuration(kubeletEndpoint=kubelet.url, kubeletConfig=str(settings))
    text = reclaimd_here("plan", "--pods", "--config", file).stdout
    assert "the kubelet's threshold 100Gi = 100.0GiB, after 1m30s of pressure" in text


def test_a_kubelet_without_thresholds(small_node: SmallNode, kubelet: Kubelet, tmp_path: Path) -> None:
    """Then a signal has to be named, and the answer says that nobody is evicted for it."""
    off = {f"{name}.{unit}": "0%" for name in ("nodefs", "imagefs") for unit in ("available", "inodesFree")}
    settings = tmp_path / "kubelet.yaml"
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    settings.write_text(json.dumps({**head, "evictionHard": off}))
    file = small_node.configuration(kubeletEndpoint=kubelet.url, kubeletConfig=str(settings))
    unnamed = reclaimd_here("plan", "--pods", "--config", file)
    assert (unnamed.returncode, unnamed.stdout) == (4, "")
    assert "name a signal with --signal" in unnamed.stderr
    named = reclaimd_here("plan", "--pods", "--signal", "nodefs.available", "--config", file)
    assert named.stdout.startswith("nodefs.available: the kubelet has no threshold for it, so it evicts no pod\n")
    document = document_of(
        reclaimd_here("plan", "--pods", "--signal", "nodefs.available", "--config", file, "-o", "json")
    )
    assert (document["met"], document["threshold"], len(document["pods"])) == (None, None, 6)


def test_what_counts_with_an_image_filesystem(make_small_node: SmallNodeFactory, kubelet: Kubelet) -> None:
    """imagefs counts writable layers, nodefs logs and local volumes."""
    file = make_small_node(FsLayout.DEDICATED_IMAGEFS).configuration(kubeletEndpoint=kubelet.url)
    plan = ("plan", "--pods", "--config", file, "-o", "json", "--signal")
    images = document_of(reclaimd_here(*plan, "imagefs.available"))
    kubelets = document_of(reclaimd_here(*plan, "nodefs.available"))
    assert (images["layout"], images["counted"]) == ("dedicated-imagefs", ["writable_layers"])
    assert kubelets["counted"] == ["logs", "local_volumes"]
    assert {each["name"]: each["used"] for each in images["pods"]}["web"] == 3 << 20
    assert {each["name"]: each["used"] for each in kubelets["pods"]}["web"] == 1 << 20


def test_where_nothing_of_a_pod_counts(make_small_node: SmallNodeFactory, kubelet: Kubelet) -> None:
    """Split layout, imagefs: the kubelet counts images, and of a pod it counts none."""
    file = make_small_node(FsLayout.SPLIT).configuration(kubeletEndpoint=kubelet.url)
    text = reclaimd_here("plan", "--pods", "--signal", "imagefs.available", "--config", file).stdout
    assert "counted for it: nothing of a pod, so priority and request decide (layout: split)" in text


def test_a_limit_of_its_own_is_told_apart(small_node: SmallNode, kubelet: Kubelet) -> None:
    """An emptyDir above its sizeLimit evicts whatever the signal."""
    kubelet.tell([pod("web")], [statistics("web", scratch=(1 << 30) + 1)])
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    document = document_of(reclaimd_here("plan", "--pods", "--config", file, "-o", "json"))
    clause = "its emptyDir scratch is above its sizeLimit"
    assert document["over_limits"] == [{"namespace": "default", "name": "web", "uid": "uid-web", "reason": clause}]
    text = reclaimd_here("plan", "--pods", "--config", file).stdout
    assert f"evicted whatever the signal: default/web: {clause}" in text


def test_pods_of_one_rank_and_pods_that_are_deleted(small_node: SmallNode, kubelet: Kubelet) -> None:
    """The kubelet leaves the order of equals open, and a pod that is being deleted is still ranked."""
    deleted = pod("b")
    deleted["metadata"]["deletionTimestamp"] = "2026-11-22T09:30:00Z"
    kubelet.tell([deleted, pod("a")], [statistics("a", logs=5), statistics("b", logs=5)])
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    document = document_of(reclaimd_here("plan", "--pods", "--config", file, "-o", "json"))
    assert [(each["rank"], each["name"], each["deleted"]) for each in document["pods"]] == [
        (1, "a", False),
        (1, "b", True),
    ]
    text = reclaimd_here("plan", "--pods", "--config", file).stdout
    assert "uses more than it requests, being deleted" in text
    assert "the kubelet does not define their order" in text


def test_a_node_without_pods(small_node: SmallNode, kubelet: Kubelet) -> None:
    """`items` is null then; static pods alone are nobody to evict either."""
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    for pods in ([], [pod("etcd", annotations={"kubernetes.io/config.source": "file"})]):
        kubelet.tell(pods, [])
        process = reclaimd_here("plan", "--pods", "--config", file)
        assert process.returncode == 0
        assert process.stdout.splitlines()[-1] == "the kubelet has no pod to evict"


def test_hostile_names_and_huge_numbers(small_node: SmallNode, kubelet: Kubelet) -> None:
    """Control characters are escaped in the table; 2**63 bytes and more are negative, as in the kubelet."""
    name = "web\x1b[2J\nroot"
    kubelet.tell(
        [pod(name), pod("huge", "9223372036854775807")],
        [statistics("huge", layer=2**63 - 1, logs=2**63 - 1, scratch=2**64 - 1), statistics(name, logs=1)],
    )
    file = small_node.configuration(kubeletEndpoint=kubelet.url)
    process = reclaimd_here("plan", "--pods", "--signal", "nodefs.available", "--config", file)
    assert process.returncode == 0
    assert process.stdout.replace("\n", "").isprintable()
    assert "default/web\\x1b[2J\\nroot" in process.stdout
    document = document_of(
        reclaimd_here("plan", "--pods", "--signal", "nodefs.available", "--config", file, "-o", "json")
    )
    huge, hostile = document["pods"]
    assert (huge["used"], huge["over_request"]) == (2 * (2**63 - 1) - 1, 2**63 - 2)
    assert hostile["name"] == name


def test_over_https_with_a_token(small_node: SmallNode, kubelet: Kubelet, tmp_path: Path) -> None:
    """Both requests carry it."""
    if not Authority.available():
        pytest.skip("certificates for the test are made with the openssl command, which is not there")
    authority = Authority(tmp_path)
    token = tmp_path / "token"
    token.write_text(BEARER)
    loopback = authority.identity("loopback", "IP:127.0.0.1")
    with KubeletServer(tls=serving(loopback), bearer=BEARER) as secure:
        secure.by_path = kubelet.server.by_path
        file = small_node.configuration(
            kubeletEndpoint=secure.url, kubeletTokenFile=str(token), kubeletCAFile=str(authority.certificate)
        )
        plan = ("plan", "--pods", "--signal", "nodefs.available", "--config", file, "-o", "json")
        assert ranking(document_of(reclaimd_here(*plan))) == IN_ORDER
        token.write_text("another")
        refused = reclaimd_here(*plan)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "401 Unauthorized: it accepts tokens only with authentication.webhook.enabled" in refused.stderr
    assert "another" not in refused.stderr


@pytest.mark.parametrize(
    ("path", "told", "words"),
    [
        ("/pods", answer(FORBIDDEN.format("pods proxy").encode(), 403), "get nodes/proxy (from Kubernetes 1.33 on"),
        ("/stats/summary", answer(FORBIDDEN.format("stats").encode(), 403), "get nodes/stats"),
        ("/stats/summary", answer(b"404 page not found\n", 404), "404 Not Found: is this the kubelet's port?"),
        ("/stats/summary", answer(b"failed to list pod stats", 500), "500 Internal Server Error"),
        ("/stats/summary", answer(b"{}"), "the kubelet's summary is not used: node is not there"),
        ("/stats/summary", answer(b"{"), "the kubelet's summary is not used: it is not JSON, or cut short"),
        ("/pods", answer(b"{}"), "the kubelet's list of pods is not used: it is not a v1 PodList"),
        (
            "/pods",
            answer(pod_list(pod("web", priority="high"))),
            "the kubelet's list of pods is not used: items[0].spec.priority is not a whole number",
        ),
    ],
)
def test_a_kubelet_that_does_not_tell(
    small_node: SmallNode, kubelet: Kubelet, path: str, told: bytes, words: str
) -> None:
    """Exit 4, one sentence with what to check, and no document."""
    kubelet.server.by_path[path] = [told]
    process = reclaimd_here(
        "plan", "--pods", "--config", small_node.configuration(kubeletEndpoint=kubelet.url), "-o", "json"
    )
    assert (process.returncode, process.stdout) == (4, "")
    assert words in process.stderr
    assert process.stderr.count("\n") == 1


def test_without_a_kubelet_to_ask(small_node: SmallNode) -> None:
    """Exit 2 says what to configure, exit 4 that nobody listens, exit 3 that the runtime is away."""
    unset = reclaimd_here("plan", "--pods", "--config", small_node.configuration())
    assert (unset.returncode, unset.stdout) == (2, "")
    assert "set kubeletEndpoint to auto, or to https://127.0.0.1:10250 with kubeletTokenFile" in unset.stderr
    assert "nodes/pods and nodes/stats" in unset.stderr
    with KubeletServer() as ended:
        file = small_node.configuration(kubeletEndpoint=ended.url)
    away = reclaimd_here("plan", "--pods", "--config", file)
    assert (away.returncode, away.stdout) == (4, "")
    assert "refuses connections" in away.stderr
    small_node.server.stop()
    alone = reclaimd_here("plan", "--pods", "--config", file)
    assert (alone.returncode, alone.stdout) == (3, "")
    assert "the container runtime cannot be reached" in alone.stderr


def test_the_kubelet_is_found_by_itself(small_node: SmallNode, kubelet: Kubelet, tmp_path: Path) -> None:
    """With auto: here by its read-only port. Where no way is found, exit 4 and what was tried."""
    port = int(kubelet.url.rpartition(":")[2])
    settings = tmp_path / "kubelet.yaml"
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "port": port}
    settings.write_text(json.dumps({**head, "readOnlyPort": port}))
    file = small_node.configuration(kubeletEndpoint="auto", kubeletConfig=str(settings))
    plan = ("plan", "--pods", "--signal", "nodefs.available", "--config", file, "-o", "json")
    assert len(document_of(reclaimd_here(*plan))["pods"]) == 6
    settings.write_text(json.dumps(head))
    process = reclaimd_here(*plan)
    assert (process.returncode, process.stdout) == (4, "")
    assert "no way was found to ask the kubelet for /pods: as " in process.stderr


def test_options_that_do_not_fit(small_node: SmallNode) -> None:
    """`--signal` is one of the kubelet's disk signals, and `--until` belongs to a plan of removals."""
    file = small_node.configuration()
    until = reclaimd_here("plan", "--pods", "--signal", "nodefs.available", "--until", "1Gi", "--config", file)
    assert (until.returncode, until.stdout) == (2, "")
    assert "--until has no effect with --pods" in until.stderr
    unknown = reclaimd_here("plan", "--pods", "--signal", "memory.available", "--config", file)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "'memory.available' is none of nodefs.available, nodefs.inodesFree" in unknown.stderr
