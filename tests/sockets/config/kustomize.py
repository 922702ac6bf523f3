"""Renders config/kubernetes: the base with any components, and the configuration files
as a kubelet mounts them.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.repository import ROOT
from tests.tool import tool

TREE = ROOT / "config" / "kubernetes"
RUNTIMES = ("cri-o", "k3s")  # at most one of these
OTHERS = tuple(sorted({path.name for path in (TREE / "components").iterdir()} - set(RUNTIMES)))
ALL = tuple((*runtime, *OTHERS) for runtime in ((), *((each,) for each in RUNTIMES)))

Objects = list[dict[str, Any]]


def _cases() -> list[tuple[str, ...]]:
    """Without and with each runtime: nothing else, each other component, each pair of them, and all
    of them. What comes first there is last in the pairs, so that both orders are rendered."""
    few = [chosen for count in (0, 1, 2) for chosen in combinations(OTHERS, count)]
    some = [
        (*reversed(chosen), *runtime)
        for chosen in few
        for runtime in ((), *((each,) for each in RUNTIMES))
    ]
    return [*some, *ALL]


CASES = _cases()


def case_name(components: tuple[str, ...]) -> str:
    """For the id of a test."""
    return "+".join(components) or "base"


@cache
def kubectl() -> str:
    """Skips without a kubectl that can render."""
    found = tool("kubectl", "kubernetes-client")
    if (
        "Kustomize"
        not in subprocess.run([found, "version", "--client"], capture_output=True, text=True).stdout
    ):
        pytest.skip(
            "this kubectl is older than 1.21: its kustomize knows no directories among resources"
        )
    return found


def rendered_directory(kustomization: Path) -> Objects:
    """The objects of a directory. Fails with what kubectl said."""
    process = subprocess.run(
        [kubectl(), "kustomize", str(kustomization)], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")
    return list(yaml.safe_load_all(process.stdout))


@cache
def rendered(components: tuple[str, ...]) -> Objects:
    """The objects of the base with these components, in this order; the same for
    every test: none changes them.
    """
    return overlay(components)


def overlay(
    components: tuple[str, ...], files: dict[str, str] | None = None, **fields: Any
) -> Objects:
    """The objects of an overlay with these components, further fields and files,
    as an operator writes one.
    """
    with TemporaryDirectory() as name:
        directory = Path(name).resolve()
        tree = os.path.relpath(TREE, directory)
        for file, text in (files or {}).items():
            (directory / file).write_text(text)
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{tree}/base"],
            "components": [f"{tree}/components/{component}" for component in components],
            **fields,
        }
        (directory / "kustomization.yaml").write_text(json.dumps(document))
        return rendered_directory(directory)


def of_kind(objects: Objects, kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def pod_of(objects: Objects) -> dict[str, Any]:
    """The spec of the DaemonSet's pods."""
    found: dict[str, Any] = of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    return found


def container_of(objects: Objects, name: str = "reclaimd") -> dict[str, Any]:
    """A container of the pod, by default the daemon's."""
    (container,) = [one for one in pod_of(objects)["containers"] if one["name"] == name]
    found: dict[str, Any] = container
    return found


def config_map_at(objects: Objects, path: str) -> dict[str, str]:
    """The data of the ConfigMap that the daemon's container has mounted at a path."""
    (mount,) = [one for one in container_of(objects)["volumeMounts"] if one["mountPath"] == path]
    (volume,) = [one for one in pod_of(objects)["volumes"] if one["name"] == mount["name"]]
    assert mount["readOnly"]
    (found,) = [
        one
        for one in objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == volume["configMap"]["name"]
    ]
    assert found["metadata"]["namespace"] == of_kind(objects, "DaemonSet")["metadata"]["namespace"]
    data: dict[str, str] = found.get("data", {})
    return data


def mounted_configuration(objects: Objects, root: Path) -> tuple[str, str]:
    """Makes /etc/reclaimd below `root` as a kubelet does. The file and the directory that
    the container starts with.

    A ConfigMap volume holds symlinks into a directory, and is read-only for its pod. A volume that
    is mounted inside another one gets its directory there (kubelet:
    `pkg/volume/util/nested_volumes.go`).
    """
    options = dict(word.partition("=")[::2] for word in container_of(objects)["args"])
    file, directory = options["--config"], options["--config-dir"]
    for place in (os.path.dirname(file), directory):
        volume = root / place.lstrip("/")
        data = volume / "..2026_11_23"
        data.mkdir(parents=True)
        (volume / "..data").symlink_to(data.name)
        for name, text in config_map_at(objects, place).items():
            (data / name).write_text(text)
            (volume / name).symlink_to(f"..data/{name}")
    return str(root / file.lstrip("/")), str(root / directory.lstrip("/"))
