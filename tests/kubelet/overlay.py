"""An overlay of config/kubernetes that names a node's directories and the image, as the components for runtimes do.

Nothing but paths differs from what is shipped: each volume and mount keeps its type, its propagation and whether it is
read-only. The socket, the images, the kubelet's root and the logs are mounted where the node has them; records, lock
and control socket where the shipped manifest has them, from directories of the test.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from tests.kubelet.node import KubeletNode
from tests.kubelet.program_image import REFERENCE
from tests.repository import ROOT

SHIPPED = ROOT / "config" / "kubernetes"


def write_overlay(directory: Path, node: KubeletNode, state: Path, control: Path) -> Path:
    """Copies the shipped tree to `directory` and adds an overlay, whose directory is returned. `state`, `control`: the
    node's directories for the volumes of these names."""
    shutil.copytree(SHIPPED, directory)
    overlay = directory / "overlays" / "test"
    overlay.mkdir()
    fields = node.reclaimd_fields()
    mounted_as_on_the_node = {
        "runtime": str(node.runtime.run_directory),
        "images": str(node.runtime.root),
        "kubelet": fields["rootDirectory"],
        "pod-logs": fields["podLogsDir"],
        "container-logs": fields["containerLogsDir"],
    }
    name, _, tag = REFERENCE.rpartition(":")
    files = {
        "kustomization.yaml": {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "kube-system",
            "resources": ["../../base"],
            "images": [{"name": "reclaimd", "newName": name, "newTag": tag}],
            "configMapGenerator": [{"name": "reclaimd", "behavior": "replace", "files": ["reclaimd.yaml"]}],
            "patches": [{"path": "paths.yaml", "target": {"kind": "DaemonSet"}}],
        },
        "reclaimd.yaml": {
            "apiVersion": "reclaimd.io/v1alpha1",
            "kind": "ReclaimdConfiguration",
            "containerRuntimeEndpoint": f"unix://{node.runtime.socket}",
            **fields,
        },
        "paths.yaml": _paths(mounted_as_on_the_node, {"state": str(state), "control": str(control)}),
    }
    for file, content in files.items():
        (overlay / file).write_text(json.dumps(content))
    return overlay


def _paths(mounted_as_on_the_node: dict[str, str], elsewhere: dict[str, str]) -> list[dict[str, str]]:
    """A JSON patch of the shipped DaemonSet: where volumes are on the node, and where some are mounted."""
    pod = yaml.safe_load((SHIPPED / "base" / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    hosts = mounted_as_on_the_node | elsewhere
    assert {volume["name"] for volume in pod["volumes"]} == {"configuration", "conf-d", *hosts}
    places = [
        (f"volumes/{index}/hostPath/path", hosts[volume["name"]])
        for index, volume in enumerate(pod["volumes"])
        if volume["name"] in hosts
    ]
    places += [
        (f"containers/0/volumeMounts/{index}/mountPath", mounted_as_on_the_node[mount["name"]])
        for index, mount in enumerate(container["volumeMounts"])
        if mount["name"] in mounted_as_on_the_node
    ]
    return [{"op": "replace", "path": f"/spec/template/spec/{place}", "value": value} for place, value in places]
