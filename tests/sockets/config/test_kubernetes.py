"""config/kubernetes: the base, its overlays, and the components in any combination, rendered, with
the configuration as a kubelet mounts it; and the Helm chart that it is, too.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from eviction.cli.parser import command_of
from eviction.configuration.effective import Configuration, load
from eviction.configuration.fingerprint import USUAL_DIRECTORY, USUAL_FILE
from eviction.configuration.kubelet_ways import IdentityFiles
from eviction.surface.kubernetes_events import NAMESPACE
from tests.expected import expect
from tests.pages import DOCS, code_blocks
from tests.pure.configuration.test_told import OURS
from tests.reclaimd_process import reclaimd_here
from tests.repository import ROOT
from tests.sockets.config.stories import TOLD
from tests.tool import tool

pytestmark = pytest.mark.house(
    "config/Containerfile",
    "config/kubernetes",
    "config/manifests",
    "eviction/cli/manifests.py",
    "eviction/configuration",
)

TREE = ROOT / "config" / "kubernetes"
IMAGE = f"reclaimd:{metadata.version('reclaimd')}"
TABLE = yaml.safe_load((TOLD / "kubernetes.yaml").read_text())
COMPONENTS: dict[str, Any] = TABLE["components"]
"""What each one sets, whatever else is there; with which values of the chart; what its account may
do, where; and, of a runtime, where its images are. At most one runtime at a time."""
RUNTIMES = [name for name, component in COMPONENTS.items() if "images" in component]
OTHERS = [name for name in COMPONENTS if name not in RUNTIMES]

Objects = list[dict[str, Any]]
Components = tuple[str, ...]
SOME_RUNTIME: list[Components] = [(), *((runtime,) for runtime in RUNTIMES)]
ALL: list[Components] = [(*runtime, *OTHERS) for runtime in SOME_RUNTIME]
CASES: list[Components] = [(), *((name,) for name in COMPONENTS), *ALL]
"""Pairs add nothing, as no two share a field or a list."""


def rendered_directory(kustomization: Path) -> Objects:
    """The objects of a directory. Skips without a kubectl that can render."""
    kubectl = tool("kubectl", "kubernetes-client")
    known = subprocess.run([kubectl, "version", "--client"], capture_output=True, text=True)
    if "Kustomize" not in known.stdout:
        pytest.skip("this kubectl is older than 1.21: it knows no directories among resources")
    command = [kubectl, "kustomize", str(kustomization)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    return list(yaml.safe_load_all(process.stdout))


def overlay(components: Components, files: dict[str, str] | None = None, **fields: Any) -> Objects:
    """The objects of an overlay with these components, further fields and files, as an operator
    writes one."""
    with TemporaryDirectory() as name:
        directory = Path(name).resolve()
        tree = os.path.relpath(TREE, directory)
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{tree}/base"],
            "components": [f"{tree}/components/{component}" for component in components],
            **fields,
        }
        for file, text in {**(files or {}), "kustomization.yaml": json.dumps(document)}.items():
            (directory / file).write_text(text)
        return rendered_directory(directory)


@cache
def rendered(components: Components) -> Objects:
    """The objects of the base with these components, in this order; no test changes them."""
    return overlay(components)


def of_kind(objects: Objects, kind: str) -> Any:
    """The only object of a kind."""
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def pod_of(objects: Objects) -> Any:
    """The spec of the DaemonSet's pods, which have one container."""
    return of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]


def container_of(objects: Objects) -> Any:
    """The daemon's container."""
    (container,) = pod_of(objects)["containers"]
    return container


def config_map_at(objects: Objects, path: str) -> dict[str, str]:
    """The data of the ConfigMap that the container has mounted, read-only, at a path."""
    (mount,) = [one for one in container_of(objects)["volumeMounts"] if one["mountPath"] == path]
    (volume,) = [one for one in pod_of(objects)["volumes"] if one["name"] == mount["name"]]
    assert mount["readOnly"]
    (data,) = [
        one.get("data", {})
        for one in objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == volume["configMap"]["name"]
    ]
    return dict(data)


def effective(objects: Objects, root: Path) -> Configuration:
    """The pod's configuration as the program reads it, without this machine's kubelet.

    A ConfigMap volume holds symlinks into a directory; one that is mounted inside another gets its
    directory there (kubelet: `pkg/volume/util/nested_volumes.go`).
    """
    for place in (os.path.dirname(USUAL_FILE), USUAL_DIRECTORY):
        volume = root / place.lstrip("/")
        data = volume / "..2026_11_23"
        data.mkdir(parents=True)
        (volume / "..data").symlink_to(data.name)
        for name, text in config_map_at(objects, place).items():
            (data / name).write_text(text)
            (volume / name).symlink_to(f"..data/{name}")
    file, directory = (str(root / path.lstrip("/")) for path in (USUAL_FILE, USUAL_DIRECTORY))
    return load(file, {}, {"kubeletConfig": ""}, directory=directory)


every_case = pytest.mark.parametrize("components", CASES, ids=lambda each: "+".join(each) or "base")


def test_components_share_no_field_and_replace_no_list() -> None:
    """Then their order decides nothing, and no list of the operator's is lost; only the runtimes
    share a field. Each has an overlay of the same name that renders the same as it alone."""
    named: list[str] = []
    for directory in ("components", "overlays"):
        assert {path.name for path in (TREE / directory).iterdir()} == COMPONENTS.keys()
    for name, component in COMPONENTS.items():
        assert rendered_directory(TREE / "overlays" / name) == rendered((name,))
        (file,) = (TREE / "components" / name).glob("*.conf")
        assert re.fullmatch(rf"[2-4]0-{name}\.conf", file.name)
        document = yaml.safe_load(file.read_text())
        assert document.keys() - {"apiVersion", "kind"} == component["sets"].keys()
        assert not any(isinstance(value, list) for value in document.values())
        named += component["sets"] if name != "cri-o" else ()
    assert len(named) == len(set(named))


@every_case
def test_the_drop_ins_of_all_components_are_mounted_and_merged(
    components: Components, tmp_path: Path
) -> None:
    """Their values, and those alone, differ from the base's, and are told to be from them."""
    base = effective(rendered(()), tmp_path / "base").effective
    found = effective(rendered(components), tmp_path / "pod")
    values = {
        name: value for each in components for name, value in COMPONENTS[each]["sets"].items()
    }
    assert found.effective == {**base, "kubeletConfig": "", **values}
    drop_ins = f"{tmp_path}/pod{USUAL_DIRECTORY}/"
    of_drop_ins = {n for n, origin in found.origins.items() if origin.startswith(drop_ins)}
    assert of_drop_ins - {"apiVersion", "kind"} == values.keys() - {"kubeletConfig"}


def test_the_overlay_of_the_page_renders(tmp_path: Path) -> None:
    """It is one of ours but for where it lies, and its drop-in comes last."""
    (example,) = (
        yaml.safe_load(block)
        for block in code_blocks(DOCS / "install.md", "yaml")
        if "kind: Kustomization" in block
    )
    rest = {key: example[key] for key in example.keys() - {"apiVersion", "kind", "resources"}}
    assert example["resources"] == ["../../base"]
    components = tuple(path.removeprefix("../../components/") for path in rest.pop("components"))
    (name,) = rest["configMapGenerator"][0]["files"]
    text = f"{OURS}margin: 8%\nkeepImages: [registry.example/base/*]\n"
    objects = overlay(components, {name: text}, **rest)
    found = effective(objects, tmp_path).effective
    assert (found["margin"], found["dryRun"]) == ("8%", True)
    assert found["keepImages"] == ["registry.example/base/*"]
    assert container_of(objects)["image"] == f"registry.example/{IMAGE}"


def test_the_patch_for_selinux_applies() -> None:
    """That of the page on distributions, for OpenShift."""
    (example,) = code_blocks(DOCS / "distributions.md", "yaml")
    objects = overlay(("cri-o", "kubelet"), {}, **yaml.safe_load(example))
    assert pod_of(objects)["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}


@every_case
def test_what_the_configuration_names_is_mounted(components: Components, tmp_path: Path) -> None:
    """The socket, the images, state, logs; the lock and the control socket are the host's; probes
    use the address. A command in the pod reads the daemon's files."""
    objects = rendered(components)
    configuration, container = effective(objects, tmp_path), container_of(objects)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert len(mounts) == len(container["volumeMounts"])
    given = [COMPONENTS[each]["images"] for each in components if each in RUNTIMES]
    (images,) = given or ["/var/lib/containerd"]
    assert (mounts["images"], mounts["kubelet"]) == (images, configuration.root_directory)
    assert mounts["pod-logs"] == configuration.pod_logs_dir
    for name, path in (
        ("runtime", configuration.runtime_endpoint.removeprefix("unix://")),
        ("state", configuration.state_file),
        ("state", configuration.history_file),
        ("control", configuration.control_socket),
        ("control", configuration.lock_directory),
    ):
        assert path.startswith(mounts[name] + "/")
    for volume in pod_of(objects)["volumes"]:  # the same path on the host, as the runtime names it
        if "hostPath" in volume:
            assert volume["hostPath"]["path"] == mounts[volume["name"]]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert configuration.metrics_address in (
            (asked["host"], asked["port"]),
            ("0.0.0.0", asked["port"]),
        )
    command, *options = container["args"]
    arguments = command_of(command)[0].parse_args(options)
    assert (arguments.config, arguments.config_dir) == (USUAL_FILE, USUAL_DIRECTORY)


def test_on_k3s_the_files_by_which_the_kubelet_is_found_are_mounted() -> None:
    """Its certificate, without which `auto` asks nobody, and the node's own; with the images."""
    k3s, files = COMPONENTS["k3s"]["images"], IdentityFiles()
    named = [*files.serving, *(each[0] for each in files.certificates)]
    of_k3s = [path for path in named if "/k3s/" in path]
    assert [path.startswith(f"{k3s}/") for path in of_k3s] == [True, True]


def test_the_program_prints_what_kustomize_renders(tmp_path: Path) -> None:
    """The base, and each overlay by its name; the image can be named, and nothing else differs
    then. An overlay of one's own needs no checkout: the tree that `--kustomize` writes renders the
    same, and a directory that is there is not touched."""

    def printed(*arguments: str) -> Objects:
        process = reclaimd_here("manifests", *arguments)
        assert (process.returncode, process.stderr) == (0, "")
        return list(yaml.safe_load_all(process.stdout))

    assert {path.stem for path in (TREE.parent / "manifests").iterdir()} == {"base", *COMPONENTS}
    assert printed() == printed("base") == rendered_directory(TREE / "base")
    for name in COMPONENTS:
        objects = rendered((name,))
        assert printed(name) == objects
        other = printed(name, "--image", "registry.example:5000/reclaimd@sha256:00")
        assert container_of(other)["image"] == "registry.example:5000/reclaimd@sha256:00"
        container_of(other)["image"] = IMAGE
        assert other == objects
    directory = str(tmp_path / "kubernetes")
    assert printed("--kustomize", directory) == []
    assert rendered_directory(Path(directory, "overlays", "k3s")) == rendered(("k3s",))
    again = reclaimd_here("manifests", "--kustomize", directory)
    assert (again.returncode, directory in again.stderr) == (1, True)


def test_the_objects_are_valid() -> None:
    """Every object of Kubernetes itself validates strictly against its schema, in both orders."""
    validator = pytest.importorskip("kubernetes_validate")
    for components in ((), *ALL, *(each[::-1] for each in ALL)):
        objects = rendered(components)
        assert {"ServiceAccount", "ConfigMap", "DaemonSet"} <= {one["kind"] for one in objects}
        for one in objects:
            # of the Prometheus operator: no schema of Kubernetes
            if one["apiVersion"] != "monitoring.coreos.com/v1":
                validator.validate(one, "1.31", strict=True)


@every_case
def test_the_daemon_has_no_power_that_it_does_not_need(components: Components) -> None:
    """No capability, no privilege, a read-only root; only logs, state and the sockets are writable.
    A token, and a role, only where it is used: for events, and to ask the kubelet. A monitor and its
    port only for Prometheus."""
    objects = rendered(components)
    pod, container = pod_of(objects), container_of(objects)
    mounts, named = container["volumeMounts"], {"volumes", "containers"}
    chosen = [COMPONENTS[each] for each in components]
    token = any("Role" in str(each) for each in chosen)
    assert {name: value for name, value in pod.items() if name not in named} == {
        **TABLE["pod"],
        "automountServiceAccountToken": token,
    }
    assert (container["image"], container["securityContext"]) == (IMAGE, TABLE["security"])
    for name in ("env", "ports"):
        assert container.get(name, []) == [one for each in chosen for one in each.get(name, ())]
    writable = {mount["name"] for mount in mounts if not mount.get("readOnly")}
    assert writable == {"runtime", "pod-logs", "container-logs", "state", "control"}
    assert {mount["name"] for mount in mounts} == {volume["name"] for volume in pod["volumes"]}
    usual = ("ServiceAccount", "ConfigMap", "DaemonSet", "PrometheusRule")
    others = [one for one in objects if one["kind"] not in usual]
    wanted = [one for each in chosen for one in each.get("objects", ())]
    assert sorted(others, key=str) == sorted(wanted, key=str)
    for one in (of_kind(objects, "ServiceAccount"), of_kind(objects, "DaemonSet")):
        assert (one["metadata"]["name"], one["metadata"]["namespace"]) == (
            "reclaimd",
            "kube-system",
        )
    template = of_kind(objects, "DaemonSet")["spec"]["template"]
    assert template["metadata"]["labels"] == {"app.kubernetes.io/name": "reclaimd"}


def test_events_are_written_where_the_role_allows_it() -> None:
    """In the namespace where the program writes those about its node."""
    assert {one["metadata"]["namespace"] for one in COMPONENTS["events"]["objects"]} == {NAMESPACE}


# ---- the Helm chart


def helm(*arguments: str, values: dict[str, Any] | None = None) -> tuple[int, str, str]:
    """Exit code, output and errors of a command of Helm. Skips without one."""
    program = shutil.which(os.environ.get("HELM", "helm"))
    if program is None:
        pytest.skip("no helm on the PATH, and HELM= names none")
    process = subprocess.run(
        [program, *arguments, *(["--values", "-"] if values else [])],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


def charted(chart: Path, namespace: str = "kube-system", **values: Any) -> Objects:
    """The objects that the chart makes of values."""
    template = ("template", "reclaimd", str(chart), "--namespace", namespace)
    code, text, errors = helm(*template, values=values)
    assert code == 0, errors
    return [one for one in yaml.safe_load_all(text) if one]


def alike(objects: Objects) -> dict[tuple[str, str], Any]:
    """Objects by kind and name, without what has pods start anew when their configuration changes:
    kustomize has it in the names of ConfigMaps, the chart in an annotation."""
    text = re.sub(r"\b(reclaimd(?:-conf-d)?)-[a-z0-9]{10}\b", r"\1", json.dumps(objects))
    text = re.sub(r'"checksum/configuration": "\w+", ', "", text)
    return {(one["kind"], one["metadata"]["name"]): one for one in json.loads(text)}


@every_case
def test_the_chart_makes_what_kustomize_renders(components: Components) -> None:
    """Object by object, and list by list."""
    values = {
        name: value for each in components for name, value in COMPONENTS[each]["values"].items()
    }
    assert alike(charted(TREE, **values)) == alike(rendered(components))


def test_the_chart_is_packed_and_takes_values(tmp_path: Path) -> None:
    """`helm lint` finds nothing. Of the archive: another namespace, image, configuration, and a
    patch of the DaemonSet, all of them valid; the configuration is read last, and starts the pods
    anew."""
    code, told, errors = helm("lint", str(TREE), "--strict")
    assert code == 0, told + errors
    helm("package", str(TREE), "--destination", str(tmp_path))
    (archive,) = tmp_path.iterdir()
    values = TABLE["charted"]
    objects = charted(archive, "disks", **values)
    before, after = (
        yaml.safe_dump_all(alike(each).values()).splitlines() for each in (charted(TREE), objects)
    )
    changes = difflib.unified_diff(before, after, "defaults", "values", n=1)
    text = "\n".join([*map(str.rstrip, changes), ""])
    expect(TOLD / "charted.txt", text.replace(IMAGE, "reclaimd:VERSION"))
    assert effective(objects, tmp_path).effective["dryRun"] is False, "the configuration comes last"
    sums = re.findall(
        r'"checksum/configuration": "(\w+)"',
        json.dumps([objects, charted(TREE), charted(TREE, dryRun=True)]),
    )
    assert len(sums) == len(set(sums)) == 3
    for one in objects:
        pytest.importorskip("kubernetes_validate").validate(one, "1.31", strict=True)


@pytest.mark.parametrize(("text", "named"), TABLE["refused"].items())
def test_helm_refuses_wrong_values_by_their_names(text: str, named: str) -> None:
    """By the schema, before anything reaches the cluster."""
    values = yaml.safe_load(text)
    schema = json.loads((TREE / "values.schema.json").read_text())
    assert not Draft7Validator(schema).is_valid(values)
    code, _, errors = helm("template", str(TREE), values=values)
    assert (code, named in errors) == (1, True), errors


def test_values_of_the_chart_are_described() -> None:
    """Without Helm: its version is the program's, each component has a value, and the schema takes
    the defaults and each of those."""
    chart = yaml.safe_load((TREE / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {metadata.version("reclaimd")}
    schema = json.loads((TREE / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    defaults = yaml.safe_load((TREE / "values.yaml").read_text())
    assert schema["properties"].keys() - {"global"} == defaults.keys()
    for component in COMPONENTS.values():
        assert Draft7Validator(schema).is_valid({**defaults, **component["values"]})
