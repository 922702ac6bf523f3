"""`reclaimd manifests`: the objects of the DaemonSet, as `kubectl kustomize` renders them, without a checkout.

Covers the part of kustomize that `config/kubernetes` uses, whose base and components are read: resources, an image,
ConfigMaps of files, whose names change with their content, and patches of the DaemonSet.

Does not cover: an overlay of your own, for which there is kustomize.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from eviction.cli.options import exit_with
from eviction.exit_codes import EXIT_OK, EXIT_USAGE
from eviction.shipped import shipped

RUNTIMES = ("cri-o", "k3s")  # components that each name another runtime than the base
MERGED_BY = {"containers": "name", "env": "name", "ports": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""List -> the field by which a patch means one of its elements."""
LETTERS = str.maketrans("013ae", "ghkmt")  # so that no hash makes a word

Object = dict[str, Any]


def component_names() -> tuple[str, ...]:
    """The names of all components."""
    return tuple(sorted(path.name for path in shipped("kubernetes/components").iterdir()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(component_names())
    parser.add_argument("components", nargs="*", type=_component, metavar="COMPONENT", help=f"what to add: {known}")
    parser.add_argument(
        "--image", metavar="IMAGE", help="the image of the pods, with its tag; default: reclaimd:VERSION"
    )


def _component(name: str) -> str:
    if name not in component_names():
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(component_names())}, but it was {name!r}")
    return name


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 for unknown components, or two runtimes."""
    if set(RUNTIMES) <= set(arguments.components):
        exit_with(EXIT_USAGE, f"a node has one runtime: choose one of {' and '.join(RUNTIMES)}")
    yaml.dump_all(rendered(arguments.components, arguments.image), sys.stdout, _Dumper, sort_keys=False, width=1000)
    return EXIT_OK


class _Dumper(yaml.SafeDumper):
    """Writes files in ConfigMaps as people do, line by line."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_str)


def rendered(components: Sequence[str], image: str | None = None) -> list[Object]:
    """The objects of the base with components. `image`: None for the base's own."""
    tree = shipped("kubernetes")
    (base,) = _read(tree / "base" / "kustomization.yaml")
    objects: list[Object] = []
    texts: dict[str, dict[str, str]] = {}
    patches: list[Object] = []
    for directory in (tree / "base", *(tree / "components" / name for name in dict.fromkeys(components))):
        (kustomization,) = _read(directory / "kustomization.yaml")
        for path in kustomization.get("resources", ()):
            objects += _read(directory / path)
        for generator in kustomization["configMapGenerator"]:
            files = {path: (directory / path).read_text() for path in generator.get("files", ())}
            texts.setdefault(generator["name"], {}).update(files)
        for patch in kustomization.get("patches", ()):
            patches += _read(directory / patch["path"])
    (daemonset,) = (each for each in objects if each["kind"] == "DaemonSet")
    daemonset |= reduce(_patched, patches, daemonset)
    pod = daemonset["spec"]["template"]["spec"]
    for container, named in zip(pod["containers"], base["images"], strict=True):
        container["image"] = image or f"{named['name']}:{named['newTag']}"
    maps = {name: _config_map(name, files) for name, files in texts.items()}
    for volume in pod["volumes"]:
        if mounted := volume.get("configMap"):
            mounted["name"] = maps[mounted["name"]]["metadata"]["name"]
    for each in (*maps.values(), *objects):
        if not each["kind"].startswith("Cluster"):
            each["metadata"].setdefault("namespace", base["namespace"])
    return [*maps.values(), *objects]


def _read(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text()))


def _patched(value: Any, patch: Any, field: str = "") -> Any:
    """A value after a strategic merge patch: maps are merged by key, lists by what names their elements."""
    if isinstance(value, dict):
        return value | {key: _patched(value.get(key), new, key) for key, new in patch.items()}
    if not isinstance(value, list):
        return patch
    key = MERGED_BY[field]
    elements = {each[key]: each for each in value}
    for each in patch:
        if each.get("$patch") == "delete":
            del elements[each[key]]
        else:
            elements[each[key]] = _patched(elements.get(each[key]), each)
    return list(elements.values())


def _config_map(name: str, files: dict[str, str]) -> Object:
    """A ConfigMap, named with the hash that kustomize gives it, so that pods start anew when a file changes.

    Source: `encodeConfigMap` of api/hasher in https://github.com/kubernetes-sigs/kustomize.
    """
    content = {"data": files or "", "kind": "ConfigMap", "name": ""}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10].translate(LETTERS)
    made: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{digest}"}}
    return made | ({"data": files} if files else {})
