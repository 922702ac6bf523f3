"""What `reclaimd manifests` prints, with a node's directories, as the variants for
other runtimes have theirs.

Nothing but paths and the configuration differs from what is shipped: each volume and mount keeps
its type, its propagation and whether it is read-only. The socket, the images, the kubelet's root
and the logs are mounted where the node has them; records, lock and control socket where the shipped
manifest has them, from directories of the test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.kubelet.node import KubeletNode
from tests.kubelet.program_image import REFERENCE
from tests.reclaimd_process import reclaimd_here


def manifests_for(node: KubeletNode, state: Path, control: Path) -> str:
    """A stream for kubectl.

    `state`, `control`: the node's directories for the volumes of these names.
    """
    printed = reclaimd_here("manifests", "--image", REFERENCE)
    assert (printed.returncode, printed.stderr) == (0, "")
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(printed.stdout))
    (pod,) = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "DaemonSet"]
    (configuration,) = [each["data"] for each in objects if "reclaimd.yaml" in each.get("data", ())]
    fields = node.reclaimd_fields()
    fields |= {"containerRuntimeEndpoint": f"unix://{node.runtime.socket}"}
    configuration["reclaimd.yaml"] = json.dumps(
        {**yaml.safe_load(configuration["reclaimd.yaml"]), **fields}
    )
    _move(pod, fields, node, {"state": str(state), "control": str(control)})
    return yaml.safe_dump_all(objects)


def _move(
    pod: dict[str, Any], fields: dict[str, Any], node: KubeletNode, elsewhere: dict[str, str]
) -> None:
    """Puts volumes where they are on the node, and mounts them there, but for those `elsewhere`."""
    mounted_as_on_the_node = {
        "runtime": str(node.runtime.run_directory),
        "images": str(node.runtime.root),
        "kubelet": fields["rootDirectory"],
        "pod-logs": fields["podLogsDir"],
        "container-logs": fields["containerLogsDir"],
    }
    hosts = mounted_as_on_the_node | elsewhere
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes.keys() == {"configuration", "conf-d", *hosts}
    for name, path in hosts.items():
        volumes[name]["hostPath"]["path"] = path
    (container,) = pod["containers"]
    for mount in container["volumeMounts"]:
        mount["mountPath"] = mounted_as_on_the_node.get(mount["name"], mount["mountPath"])
