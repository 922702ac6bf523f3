"""The files in config/ are valid: they render, validate, evaluate, and name only what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.cli import COMMANDS
from eviction.configuration.effective import load
from eviction.telemetry.kubernetes_events import NAMESPACE
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.nodes.xfs_helper import PROGRAM as XFS_HELPER
from tests.nodes.xfs_helper import asked, running_helper
from tests.reclaimd_process import PROGRAM, Daemon, came_true, reclaimd, reclaimd_here
from tests.repository import ROOT
from tests.sockets.prometheus import Prometheus
from tests.sockets.telemetry.test_http_server import address_of

CONFIG = ROOT / "config"
TREE = CONFIG / "kubernetes"
KUSTOMIZATIONS = [TREE / "base", *sorted((TREE / "overlays").iterdir())]
KUBERNETES = "1.31"
RULES = TREE / "overlays" / "prometheus" / "rules.yaml"


def tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} (Debian package {package})")
    return found


@cache
def rendered(kustomization: Path) -> list[dict[str, Any]]:
    """The objects of a kustomization, the same for every test: none changes them."""
    kubectl = tool("kubectl", "kubernetes-client")
    process = subprocess.run([kubectl, "kustomize", str(kustomization)], capture_output=True, text=True, check=False)
    if "Kustomize" not in subprocess.run([kubectl, "version", "--client"], capture_output=True, text=True).stdout:
        pytest.skip("this kubectl is older than 1.21: its kustomize knows no directories among resources")
    assert (process.returncode, process.stderr) == (0, "")
    return list(yaml.safe_load_all(process.stdout))


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def name_of(path: Path) -> str:
    return path.name


def reclaimd_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The container of the daemon."""
    (container,) = [one for one in pod["containers"] if one["name"] == "reclaimd"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=name_of)
def test_the_kustomizations_render_and_are_valid(kustomization: Path) -> None:
    """Without a warning; every object of Kubernetes itself validates strictly against its schema."""
    validator = pytest.importorskip("kubernetes_validate")
    objects = rendered(kustomization)
    assert {"ServiceAccount", "ConfigMap", "DaemonSet"} <= {one["kind"] for one in objects}
    for one in objects:
        if one["apiVersion"] != "monitoring.coreos.com/v1":  # of the Prometheus operator: no schema of Kubernetes
            validator.validate(one, KUBERNETES, strict=True)


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=name_of)
def test_the_daemonset_has_no_power_that_it_does_not_need(kustomization: Path) -> None:
    """No capability, no privilege, a read-only root; only logs, state and the sockets are writable. A token only where
    it is used: for events, and to ask the kubelet."""
    pod = of_kind(rendered(kustomization), "DaemonSet")["spec"]["template"]["spec"]
    container = reclaimd_of(pod)
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is (kustomization.name in ("events", "kubelet"))
    assert not pod.get("hostPID")
    writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"runtime", "pod-logs", "container-logs", "state", "control"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert (len(pod["containers"]) == 2) is (kustomization.name == "xfs")
    assert pod["priorityClassName"] == "system-node-critical"
    assert {"operator": "Exists"} in pod["tolerations"]


def test_the_second_container_of_the_xfs_overlay_has_one_capability_and_what_it_needs(tmp_path: Path) -> None:
    """CAP_SYS_ADMIN alone, a read-only root, the daemon's mounts read-only at the same paths, which are all that it may
    be asked for; its socket is where the daemon looks for it. The program exists, and takes these arguments."""
    objects = rendered(TREE / "overlays" / "xfs")
    pod = of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    (helper,) = [one for one in pod["containers"] if one["name"] == "xfs-helper"]
    security = helper["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"] is True
    assert helper["image"] == reclaimd_of(pod)["image"]
    socket, *mount_points = helper["args"]
    daemon = {mount["name"]: mount for mount in reclaimd_of(pod)["volumeMounts"]}
    mounts = {mount["name"]: mount for mount in helper["volumeMounts"]}
    hosts = [mount for name, mount in mounts.items() if name != "xfs-helper"]
    assert mount_points == [mount["mountPath"] for mount in hosts]
    assert all(mount["readOnly"] and mount["mountPropagation"] == "HostToContainer" for mount in hosts)
    assert {name: mount["mountPath"] for name, mount in mounts.items()}.items() <= {
        name: mount["mountPath"] for name, mount in daemon.items()
    }.items()
    file = tmp_path / "reclaimd.yaml"
    file.write_text(of_kind(objects, "ConfigMap")["data"]["reclaimd.yaml"])
    assert socket == f"--socket={load(str(file), {}, {'kubeletConfig': ''}).xfs_helper_socket}"
    assert helper["command"] == ["/opt/reclaimd/bin/" + Path(XFS_HELPER).name]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "xfs-helper"]
    assert "emptyDir" in volume
    with running_helper(str(tmp_path / "s"), *mount_points):
        assert asked(str(tmp_path / "s"), b"check /etc") == b"not-listed"


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=name_of)
def test_only_with_events_the_daemonset_may_use_the_api_server(kustomization: Path, tmp_path: Path) -> None:
    """It may create and patch events where those about Nodes are, and nothing else; everywhere else there is no role.

    The configuration switches events on in that overlay alone, and the Node is named by the pod's own field.
    """
    objects = rendered(kustomization)
    roles = [one for one in objects if one["apiVersion"].startswith("rbac.")]
    file = tmp_path / "reclaimd.yaml"
    file.write_text(of_kind(objects, "ConfigMap")["data"]["reclaimd.yaml"])
    assert load(str(file), {}, {"kubeletConfig": ""}).kubernetes_events is (kustomization.name == "events")
    if kustomization.name == "kubelet":
        return  # its role is for the kubelet; the next test
    if kustomization.name != "events":
        assert roles == []
        return
    assert {one["kind"] for one in roles} == {"Role", "RoleBinding"}
    assert {one["metadata"]["namespace"] for one in roles} == {NAMESPACE}
    assert of_kind(roles, "Role")["rules"] == [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}
    ]
    (subject,) = of_kind(roles, "RoleBinding")["subjects"]
    account = of_kind(objects, "ServiceAccount")["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    daemonset = of_kind(objects, "DaemonSet")
    assert daemonset["metadata"]["namespace"] == account["namespace"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    assert (variable["name"], variable["valueFrom"]["fieldRef"]["fieldPath"]) == ("NODE_NAME", "spec.nodeName")


def test_the_overlay_that_asks_the_kubelet_may_get_pods_from_it_and_nothing_else(tmp_path: Path) -> None:
    """Not nodes/proxy, which would let it run commands in every pod; and the configuration finds the kubelet itself."""
    objects = rendered(TREE / "overlays" / "kubelet")
    assert of_kind(objects, "ClusterRole")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}
    ]
    binding = of_kind(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == of_kind(objects, "ClusterRole")["metadata"]["name"]
    account = of_kind(objects, "ServiceAccount")["metadata"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    file = tmp_path / "reclaimd.yaml"
    file.write_text(of_kind(objects, "ConfigMap")["data"]["reclaimd.yaml"])
    place = load(str(file), {}, {"kubeletConfig": ""}).kubelet_place
    assert place is not None
    (container,) = of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert place.root_directory in {mount["mountPath"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=name_of)
def test_the_configuration_of_the_daemonset_is_one(kustomization: Path, tmp_path: Path) -> None:
    """reclaimd accepts it; the socket and the images are below a mount; the probes use its address."""
    objects = rendered(kustomization)
    file = tmp_path / "reclaimd.yaml"
    file.write_text(of_kind(objects, "ConfigMap")["data"]["reclaimd.yaml"])
    configuration = load(str(file), {}, {"kubeletConfig": ""})
    container = reclaimd_of(of_kind(objects, "DaemonSet")["spec"]["template"]["spec"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert configuration.runtime_endpoint.removeprefix("unix://").startswith(mounts["runtime"] + "/")
    assert configuration.root_directory == mounts["kubelet"]
    assert configuration.pod_logs_dir == mounts["pod-logs"]
    assert configuration.state_file.startswith(mounts["state"] + "/")
    assert configuration.history_file.startswith(mounts["state"] + "/")
    assert configuration.control_socket.startswith(mounts["control"] + "/")
    assert configuration.lock_directory.startswith(mounts["control"] + "/")
    volumes = {
        volume["name"]: volume for volume in of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
    }
    assert volumes["control"]["hostPath"]["path"] == mounts["control"], "the lock is shared with a unit on the host"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert configuration.metrics_address in (f"{asked['host']}:{asked['port']}", f"0.0.0.0:{asked['port']}")
    command, *options = container["args"]
    help_text = reclaimd_here(command, "--help").stdout
    assert all(option.partition("=")[0] in help_text for option in options)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The directory of a rule file, from the spec of the PrometheusRule, with its tests beside it."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(yaml.safe_load(RULES.read_text())["spec"]))
    shutil.copy(CONFIG / "prometheus" / "rules.test.yaml", tmp_path)
    return tmp_path


def test_every_alert_is_sound_and_tested(rules: Path) -> None:
    """promtool checks the rules and runs their tests; every alert fires in one of them."""
    promtool = tool("promtool", "prometheus")
    for arguments in (("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")):
        process = subprocess.run([promtool, *arguments], cwd=rules, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
    alerts = {
        rule["alert"]
        for group in yaml.safe_load((rules / "rules.yaml").read_text())["groups"]
        for rule in group["rules"]
    }
    tests = yaml.safe_load((rules / "rules.test.yaml").read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == alerts
    assert 4 <= len(alerts) <= 9


def expressions() -> list[str]:
    """Of all panels and alerts, as Prometheus gets them."""
    dashboard = json.loads((CONFIG / "grafana" / "reclaimd.json").read_text())
    of_panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    of_alerts = [
        rule["expr"] for group in yaml.safe_load(RULES.read_text())["spec"]["groups"] for rule in group["rules"]
    ]
    return [e.replace("$instance", ".*").replace("$__rate_interval", "5m") for e in [*of_panels, *of_alerts]]


def test_every_expression_evaluates_against_a_scraped_daemon(small_node: SmallNode, tmp_path: Path) -> None:
    """A real Prometheus scrapes a daemon that relieved its node: no expression is refused, every metric exists."""
    program = tool("prometheus", "prometheus")
    small_node.add_images(3)
    marks = {"nodefs.inodesFree": "1%"}
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, metricsAddress="127.0.0.1:0", evictionHard=marks)
    with Daemon("--config", file) as daemon:
        address = address_of(daemon)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        with Prometheus(program, tmp_path, address) as prometheus:
            (built,) = prometheus.query("reclaimd_build_info")
            assert built["metric"]["instance"] == address

            def has_headroom() -> bool:
                small_node.fill(16 << 10)  # the time to a mark is known only while something fills
                return bool(prometheus.query("reclaimd_headroom_seconds"))

            assert came_true(has_headroom)
            for expression in expressions():
                prometheus.query(expression)
                for metric in set(re.findall(r"reclaimd_[a-z_]+", expression)):
                    assert prometheus.query(metric), f"{metric} of {expression} is not served"
            for expression in expressions()[:8]:
                if "increase" not in expression:  # needs two scrapes of a change
                    assert prometheus.query(expression), f"{expression} is empty"
            assert prometheus.query('reclaimd_passes_total{result="satisfied"} > 0')


def test_panels_do_not_overlap_and_name_what_they_show() -> None:
    """24 columns, no two panels on one place, ids differ, every panel has a title and a unit."""
    panels = json.loads((CONFIG / "grafana" / "reclaimd.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_plugin_of_node_problem_detector_runs_what_exists(small_node: SmallNode, tmp_path: Path) -> None:
    """Its command, with this program and this node: exit 0 when clear, 1 when a mark is met, within 80 characters. It
    names the files of the unit, or the daemon would not answer it."""
    monitor = json.loads((CONFIG / "node-problem-detector" / "reclaimd.json").read_text())
    (rule,) = monitor["rules"]
    assert rule["condition"] in {condition["type"] for condition in monitor["conditions"]}
    assert monitor["pluginConfig"]["max_output_length"] == 80
    assert " ".join(rule["args"][2:]) in (CONFIG / "systemd" / "reclaimd.service").read_text()
    drop_ins = tmp_path / "reclaimd.conf.d"
    drop_ins.mkdir()
    timeout_seconds = float(rule["timeout"].removesuffix("s")) * 4
    for above, code in ((-MIB, 0), (MIB, 1)):
        file = small_node.configuration(Signal.NODEFS_AVAILABLE, above)
        here = {"/etc/reclaimd/reclaimd.yaml": file, "/etc/reclaimd/reclaimd.conf.d": str(drop_ins)}
        arguments = [here.get(argument, argument) for argument in rule["args"]]
        process = reclaimd(*arguments, timeout_seconds=timeout_seconds) if code else reclaimd_here(*arguments)
        assert process.returncode == code
        assert len(process.stdout.rstrip("\n")) <= 80
    assert rule["path"].endswith("/bin/" + Path(PROGRAM).name)


def test_the_example_of_a_drop_in_is_one(tmp_path: Path) -> None:
    """Beside the annotated file: its values win."""
    configuration = load(str(CONFIG / "reclaimd.yaml"), {}, {"kubeletConfig": ""}, str(CONFIG / "reclaimd.conf.d"))
    assert configuration.effective["margin"] == "8%"
    assert configuration.keep_images == ("registry.example/base/*",)
    assert configuration.origins["evictionSoft.nodefs.available"].endswith("10-example.conf")


def test_the_containerfile_copies_what_the_package_needs() -> None:
    """Every path exists; all sources of the wheel are copied; the command exists."""
    lines = (CONFIG / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    copied = {
        source for line in lines if line.startswith("COPY ") and "--from" not in line for source in line.split()[1:-1]
    }
    assert all((ROOT / source).exists() for source in copied)
    assert {"pyproject.toml", "README.md", "LICENSE", "signals", "reclaim", "eviction", "config/scenarios"} == copied
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert command[0] in COMMANDS
