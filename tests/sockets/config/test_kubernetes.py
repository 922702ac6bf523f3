"""config/kubernetes: the base, its overlays, and the components in any combination."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.cli.parser import command_of
from eviction.configuration.effective import Configuration, load
from eviction.configuration.fingerprint import USUAL_DIRECTORY, USUAL_FILE
from eviction.configuration.kubelet_ways import IdentityFiles
from eviction.surface.kubernetes_events import NAMESPACE
from tests.pages import EVICTION as PAGE
from tests.pages import code_blocks
from tests.reclaimd_process import answer, reclaimd_here
from tests.sockets.config.kustomize import (
    ALL,
    CASES,
    OTHERS,
    RUNTIMES,
    TREE,
    Objects,
    case_name,
    config_map_at,
    container_of,
    mounted_configuration,
    of_kind,
    overlay,
    pod_of,
    rendered,
    rendered_directory,
)

pytestmark = pytest.mark.house(
    "config/Containerfile",
    "config/kubernetes",
    "config/manifests",
    "eviction/cli/manifests.py",
    "eviction/configuration",
    "tests/sockets/config/kustomize.py",
)

KUBERNETES = "1.31"
IMAGE = f"reclaimd:{metadata.version('reclaimd')}"
HEAD = "apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\n"

# The fields that each component sets, whatever else is there.
FIELDS: dict[str, dict[str, Any]] = {
    "cri-o": {"containerRuntimeEndpoint": "unix:///run/crio/crio.sock"},
    "k3s": {
        "containerRuntimeEndpoint": "unix:///run/k3s/containerd/containerd.sock",
        "kubeletConfig": "",
    },
    "events": {"kubernetesEvents": True},
    "kubelet": {"kubeletEndpoint": "auto"},
    "prometheus": {"metricsAddress": "0.0.0.0:9746"},
    "shadow": {"dryRun": True},
}
IMAGES = {"cri-o": "/var/lib/containers", "k3s": "/var/lib/rancher/k3s/agent"}  # else:
IMAGES_OF_CONTAINERD = "/var/lib/containerd"

every_case = pytest.mark.parametrize("components", CASES, ids=case_name)
all_together = pytest.mark.parametrize(
    "components", [(), *ALL, *(tuple(reversed(each)) for each in ALL)], ids=case_name
)


def effective(objects: Objects, root: Path) -> Configuration:
    """The pod's configuration as the program reads it, without this machine's kubelet."""
    file, directory = mounted_configuration(objects, root)
    return load(file, {}, {"kubeletConfig": ""}, directory=directory)


def files_of(component: str) -> dict[str, str]:
    """The drop-ins of a component, by name."""
    return {
        path.name: path.read_text() for path in (TREE / "components" / component).glob("*.conf")
    }


def expected_images(components: tuple[str, ...]) -> str:
    """Where the runtime's images are."""
    (path,) = {IMAGES[each] for each in components if each in IMAGES} or {IMAGES_OF_CONTAINERD}
    return path


# ---- the configuration


def test_every_component_is_in_the_table() -> None:
    """And there is an overlay of the same name with that component alone, which
    renders the same.
    """
    names = {path.name for path in (TREE / "components").iterdir()}
    assert (
        names
        == set(FIELDS)
        == {*OTHERS, *RUNTIMES}
        == {path.name for path in (TREE / "overlays").iterdir()}
    )
    for name in names:
        assert rendered_directory(TREE / "overlays" / name) == rendered((name,))


def test_components_share_no_field_and_replace_no_list() -> None:
    """Then their order decides nothing, and no list of the operator's is lost.

    Only the runtimes share a field.
    """
    seen: dict[str, str] = {}
    for component in (*OTHERS, *RUNTIMES):
        for name, text in files_of(component).items():
            assert re.fullmatch(rf"[2-4]0-{component}\.conf", name)
            document = yaml.safe_load(text)
            for field in document.keys() - {"apiVersion", "kind"}:
                assert not isinstance(document[field], list)
                assert seen.setdefault(field, component) == component or {
                    seen[field],
                    component,
                } == set(RUNTIMES)
        assert bool(files_of(component)) is bool(FIELDS[component])


@every_case
def test_the_drop_ins_of_all_components_are_mounted_and_merged(
    components: tuple[str, ...], tmp_path: Path
) -> None:
    """Each adds its own to the directory that the daemon is started with, and its values, and those
    alone, differ from the base's."""
    objects = rendered(components)
    expected = {
        name: text for component in components for name, text in files_of(component).items()
    }
    assert config_map_at(objects, USUAL_DIRECTORY) == expected
    base = effective(rendered(()), tmp_path / "base").effective
    values = {
        field: value for component in components for field, value in FIELDS[component].items()
    }
    assert effective(objects, tmp_path / "pod").effective == {**base, "kubeletConfig": "", **values}


@all_together
def test_the_command_config_shows_the_same(components: tuple[str, ...], tmp_path: Path) -> None:
    """Every value of a component, with its drop-in as the origin."""
    file, directory = mounted_configuration(rendered(components), tmp_path)
    told = answer(
        reclaimd_here("config", "-o", "json", "--config", file, "--config-dir", directory)
    )
    for component in components:
        for field, value in FIELDS[component].items():
            assert told["values"][field] == value
            assert told["origins"][field] in {f"{directory}/{name}" for name in files_of(component)}


@pytest.mark.parametrize("components", ALL, ids=case_name)
def test_an_operators_own_drop_in_is_added(components: tuple[str, ...], tmp_path: Path) -> None:
    """As the head of base/kustomization.yaml says; it comes last, and what
    the components set stays.
    """
    name = "90-ours.conf"
    generator = {
        "name": "reclaimd-conf-d",
        "namespace": "kube-system",
        "behavior": "merge",
        "files": [name],
    }
    text = f"{HEAD}margin: 8%\nkeepImages: [registry.example/base/*]\ndryRun: false\n"
    objects = overlay(components, {name: text}, configMapGenerator=[generator])
    found = effective(objects, tmp_path)
    assert (found.effective["margin"], found.keep_images.entries) == (
        "8%",
        ("registry.example/base/*",),
    )
    assert found.effective["dryRun"] is False
    assert found.effective["metricsAddress"] == "0.0.0.0:9746"


def test_the_overlay_of_the_page_renders(tmp_path: Path) -> None:
    """It is one of ours but for where it lies."""
    (example,) = (
        yaml.safe_load(block)
        for block in code_blocks(PAGE, "yaml")
        if "kind: Kustomization" in block
    )
    del example["apiVersion"], example["kind"]
    assert example.pop("resources") == ["../../base"]
    components = tuple(path.removeprefix("../../components/") for path in example.pop("components"))
    (name,) = example["configMapGenerator"][0]["files"]
    objects = overlay(components, {name: f"{HEAD}margin: 8%\n"}, **example)
    found = effective(objects, tmp_path).effective
    assert (found["margin"], found["dryRun"]) == ("8%", True)
    assert container_of(objects)["image"] == f"registry.example/{IMAGE}"


def test_a_command_in_the_pod_reads_the_daemons_files() -> None:
    """`kubectl exec … reclaimd reclaim` names none; with others the daemon would refuse."""
    options = dict(word.partition("=")[::2] for word in container_of(rendered(()))["args"])
    assert (options["--config"], options["--config-dir"]) == (USUAL_FILE, USUAL_DIRECTORY)


@every_case
def test_what_the_configuration_names_is_mounted(
    components: tuple[str, ...], tmp_path: Path
) -> None:
    """The socket, the images, state, logs; the lock and the control socket are the
    host's; probes use the address.
    """
    objects = rendered(components)
    configuration = effective(objects, tmp_path)
    container = container_of(objects)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert len(mounts) == len(container["volumeMounts"])
    assert configuration.runtime_endpoint.removeprefix("unix://").startswith(
        mounts["runtime"] + "/"
    )
    assert mounts["images"] == expected_images(components)
    assert configuration.root_directory == mounts["kubelet"]
    assert configuration.pod_logs_dir == mounts["pod-logs"]
    assert configuration.state_file.startswith(mounts["state"] + "/")
    assert configuration.history_file.startswith(mounts["state"] + "/")
    assert configuration.control_socket.startswith(mounts["control"] + "/")
    assert configuration.lock_directory.startswith(mounts["control"] + "/")
    hosts = {
        one["name"]: one["hostPath"]["path"]
        for one in pod_of(objects)["volumes"]
        if "hostPath" in one
    }
    assert hosts == {name: mounts[name] for name in hosts}, (
        "the same path on the host, as the runtime names it"
    )
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert configuration.metrics_address in (
            (asked["host"], asked["port"]),
            ("0.0.0.0", asked["port"]),
        )
    command, *options = container["args"]
    command_of(command)[0].parse_args(options)


def test_on_k3s_the_files_by_which_the_kubelet_is_found_are_mounted() -> None:
    """Its certificate, without which `auto` asks nobody, and the node's own.

    The token comes with `kubelet`.
    """
    objects = rendered(("k3s", "kubelet"))
    mounts = {mount["mountPath"]: mount for mount in container_of(objects)["volumeMounts"]}
    mounted = mounts["/var/lib/rancher/k3s/agent"]
    assert mounted["readOnly"]
    files = IdentityFiles()
    of_k3s = [
        path
        for path in (*files.serving, *(each[0] for each in files.certificates))
        if "/k3s/" in path
    ]
    assert len(of_k3s) == 2
    assert all(path.startswith(mounted["mountPath"] + "/") for path in of_k3s)
    assert pod_of(objects)["automountServiceAccountToken"] is True


# ---- what the program prints


def objects_printed(*arguments: str) -> Objects:
    """The objects of `reclaimd manifests`."""
    process = reclaimd_here("manifests", *arguments)
    assert (process.returncode, process.stderr) == (0, "")
    return list(yaml.safe_load_all(process.stdout))


def test_the_program_prints_what_kustomize_renders() -> None:
    """The base, and each overlay by its name; `make manifests` would change nothing."""
    assert {path.stem for path in (TREE.parent / "manifests").iterdir()} == {"base", *FIELDS}
    assert objects_printed() == objects_printed("base") == rendered_directory(TREE / "base")
    for name in FIELDS:
        assert objects_printed(name) == rendered_directory(TREE / "overlays" / name)


def test_the_image_of_printed_manifests_can_be_named() -> None:
    """That of the only container; nothing else differs."""
    for name in ("base", *FIELDS):
        printed = objects_printed(name, "--image", "registry.example:5000/reclaimd@sha256:00")
        assert container_of(printed)["image"] == "registry.example:5000/reclaimd@sha256:00"
        container_of(printed)["image"] = IMAGE
        assert printed == objects_printed(name)


def test_an_overlay_of_ones_own_needs_no_checkout(tmp_path: Path) -> None:
    """The tree that `--kustomize` writes renders the same; a directory that is there is not
    touched.
    """
    directory = tmp_path / "kubernetes"
    assert reclaimd_here("manifests", "--kustomize", str(directory)).stdout == ""
    assert rendered_directory(directory / "overlays" / "k3s") == rendered(("k3s",))
    again = reclaimd_here("manifests", "--kustomize", str(directory))
    assert (again.returncode, str(directory) in again.stderr) == (1, True)


# ---- the objects


@all_together
def test_the_objects_are_valid(components: tuple[str, ...]) -> None:
    """Every object of Kubernetes itself validates strictly against its schema."""
    validator = pytest.importorskip("kubernetes_validate")
    objects = rendered(components)
    assert {"ServiceAccount", "ConfigMap", "DaemonSet"} <= {one["kind"] for one in objects}
    for one in objects:
        # of the Prometheus operator: no schema of Kubernetes
        if one["apiVersion"] != "monitoring.coreos.com/v1":
            validator.validate(one, KUBERNETES, strict=True)


@every_case
def test_the_image_has_one_name(components: tuple[str, ...]) -> None:
    """The base's, with this version as the tag, for every container."""
    assert {container["image"] for container in pod_of(rendered(components))["containers"]} == {
        IMAGE
    }


def test_the_image_is_named_in_one_place() -> None:
    """Its tag is written once, and `images` of an overlay changes it everywhere."""
    tagged = [
        path
        for path in TREE.rglob("*.yaml")
        if re.search(r"newTag|newName|image: *\S+:", path.read_text())
    ]
    assert tagged == [TREE / "base" / "kustomization.yaml"]
    containerfile = (TREE.parent / "Containerfile").read_text()
    assert re.findall(r"buildah build .*-t (\S+) dist", containerfile) == [IMAGE], "how it is made"
    other = [{"name": "reclaimd", "newName": "registry.example/reclaimd", "newTag": "2"}]
    for components in ALL:
        containers = pod_of(overlay(components, images=other))["containers"]
        assert [container["image"] for container in containers] == ["registry.example/reclaimd:2"]


@every_case
def test_the_daemon_has_no_power_that_it_does_not_need(components: tuple[str, ...]) -> None:
    """No capability, no privilege, a read-only root; only logs, state and the sockets are writable.
    A token only where it is used: for events, and to ask the kubelet. Linux only."""
    pod, container = pod_of(rendered(components)), container_of(rendered(components))
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is bool({"events", "kubelet"} & set(components))
    assert not pod.get("hostPID")
    writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"runtime", "pod-logs", "container-logs", "state", "control"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    assert len(pod["containers"]) == 1
    assert pod["priorityClassName"] == "system-node-critical"
    assert {"operator": "Exists"} in pod["tolerations"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}


@every_case
def test_each_role_is_of_the_component_that_needs_it(components: tuple[str, ...]) -> None:
    """Events: to create and patch events where those about Nodes are. Kubelet: to get pods from it;
    not nodes/proxy, which would let it run commands in every pod. No other role, each in its own
    namespace, for this account."""
    objects = rendered(components)
    roles = {one["kind"]: one for one in objects if one["apiVersion"].startswith("rbac.")}
    account = of_kind(objects, "ServiceAccount")["metadata"]
    expected: dict[str, tuple[str | None, list[dict[str, list[str]]]]] = {}
    if "events" in components:
        expected["Role"] = (
            NAMESPACE,
            [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}],
        )
    if "kubelet" in components:
        expected["ClusterRole"] = (
            None,
            [
                {
                    "apiGroups": [""],
                    "resources": ["nodes/pods", "nodes/configz", "nodes/metrics"],
                    "verbs": ["get"],
                }
            ],
        )
    assert roles.keys() == expected.keys() | {f"{kind}Binding" for kind in expected}
    for kind, (namespace, rules) in expected.items():
        role, binding = roles[kind], roles[f"{kind}Binding"]
        assert role["rules"] == rules
        assert (role["metadata"].get("namespace"), binding["metadata"].get("namespace")) == (
            namespace,
            namespace,
        )
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
            kind,
            role["metadata"]["name"],
        )
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    daemonset = of_kind(objects, "DaemonSet")
    assert daemonset["metadata"]["namespace"] == account["namespace"] == "kube-system"
    variables = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in container_of(objects).get("env", ())
    }
    assert variables == ({"NODE_NAME": "spec.nodeName"} if "events" in components else {})


@every_case
def test_the_pod_monitor_finds_the_port(components: tuple[str, ...], tmp_path: Path) -> None:
    """By its name, on pods with these labels, in this namespace; it is the configured one.

    Without it, no port.
    """
    objects = rendered(components)
    ports = container_of(objects).get("ports", [])
    monitors = [one for one in objects if one["apiVersion"] == "monitoring.coreos.com/v1"]
    if "prometheus" not in components:
        assert (ports, monitors) == ([], [])
        return
    monitor, daemonset = of_kind(objects, "PodMonitor"), of_kind(objects, "DaemonSet")
    assert {one["metadata"]["namespace"] for one in monitors} == {
        daemonset["metadata"]["namespace"]
    }
    assert (
        monitor["spec"]["selector"]["matchLabels"]
        == daemonset["spec"]["template"]["metadata"]["labels"]
    )
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    named = {rule["targetLabel"]: rule["sourceLabels"] for rule in endpoint["relabelings"]}
    assert named["instance"] == ["__meta_kubernetes_pod_node_name"], (
        "what alerts and dashboards go by"
    )
    (port,) = ports
    assert port["name"] == endpoint["port"]
    address = effective(objects, tmp_path).metrics_address
    assert address is not None
    assert address[1] == port["containerPort"]
