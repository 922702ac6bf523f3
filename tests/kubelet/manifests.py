"""Pods for a node without network plug-in, scheduler and controllers: on the host's network, bound
to the node, without a token; and never pulled, as no registry can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kubelet.api import Fields
from tests.kubelet.kubelet import NODE

APP = "reclaimd.test/app:1"
"""The image of most pods; a test imports it."""
SLEEP = ("/bin/sleep", "1000000000")
SHELL = ("/bin/sh", "-c")


def container(name: str, image: str, command: Sequence[str] = SLEEP, **fields: Any) -> Fields:
    """A container of a pod."""
    return {
        "name": name,
        "image": image,
        "command": list(command),
        "imagePullPolicy": "Never",
        **fields,
    }


def pod(name: str, *containers: Fields, restart: str = "Always", **fields: Any) -> Fields:
    """A pod that runs these; `fields` of its specification replace those here."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": list(containers),
            **fields,
        },
    }


def running(name: str, image: str) -> Fields:
    """A pod that only runs and serves."""
    return pod(name, container("serves", image))


def completed(name: str, image: str) -> Fields:
    """A pod whose work is done, as of a Job."""
    return pod(name, container("works", image, (*SHELL, f"echo {name} is done")), restart="Never")


def with_init(name: str, image: str, init_image: str) -> Fields:
    """A running pod whose init container has finished."""
    first = container("prepares", init_image, (*SHELL, f"echo {name} is prepared"))
    return pod(name, container("serves", image), initContainers=[first])


def crashing(name: str, image: str) -> Fields:
    """A pod whose container fails again and again."""
    return pod(name, container("fails", image, (*SHELL, f"echo {name} fails; exit 3")))
