"""Reads a scenario strictly from YAML, finds the built-in ones, and checks fields that must agree.

Reading ends at the first problem with one sentence that names the file and the field. The fields are in `types`; a
guide with an example is `eviction/drill/README.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from eviction.configuration.effective import load
from eviction.configuration.models import ValidationError
from eviction.configuration.strict_yaml import ConfigurationError, first_problem, quoted, read_document
from eviction.drill.scenario.amounts import ScenarioError
from eviction.drill.scenario.types import (
    LAYOUTS,
    ON_LOOP_DEVICES,
    Fault,
    FaultAction,
    FileEnd,
    FilesystemSpec,
    FilesystemType,
    FunctionSpec,
    Grows,
    ImageSpec,
    NodeSpec,
    Part,
    PodState,
    Pressure,
    Scenario,
)
from signals.quantity import format_bytes
from signals.types import KUBELET_ROLES, FilesystemRole, FsLayout

# Set by the drill, since it makes the node.
SET_BY_THE_DRILL = frozenset(
    {"apiVersion", "kind", "kubeletConfig", "kubeletConfigDir", "rootDirectory", "podLogsDir", "containerLogsDir"}
    | {
        "containerRuntimeEndpoint",
        "imageServiceEndpoint",
        "stateFile",
        "historyFile",
        "historySize",
        "lockDirectory",
        "controlSocket",
        "metricsAddress",
    }
    | {"kubeletEndpoint", "kubeletTokenFile", "kubeletCertificateFile", "kubeletKeyFile", "kubeletCAFile"}
    | {"kubeletServerName", "kubeletInsecureSkipVerify", "kubernetesEvents", "kubeconfig", "nodeName"}
)
UNDER_NODE = {
    **dict.fromkeys(("evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"), "node"),
    "filesystems": "node.filesystems",
    "reclaimFunctions": "node.functions",
}
"""Fields of the configuration that have a place of their own in a scenario, and where that is."""
BALLAST = "ReleaseBallast"
NEEDED = {Grows.LOG: "pod", Grows.WRITABLE: "pod", Grows.PULL: "image"}
"""What a pressure has to name, by what grows."""

_Part = TypeVar("_Part", bound=Part)
_Filesystem = TypeVar("_Filesystem", bound=FilesystemSpec)


def library() -> dict[str, str]:
    """The built-in scenarios: name -> path."""
    packaged = Path(str(resources.files("eviction.drill"))) / "library"  # in an installed package
    source = Path(__file__).parents[3] / "config" / "scenarios"  # in a checkout
    folder = packaged if packaged.is_dir() else source
    return {path.stem: str(path) for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Scenario:
    """Reads a built-in scenario by name, or a file by path. Raises ScenarioError."""
    known = library()
    if name in known:
        return read_scenario(known[name])
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return read_scenario(name)
    raise ScenarioError(f"unknown scenario {name!r}; allowed are {', '.join(known)} and paths of files")


def read_scenario(path: str) -> Scenario:
    """The scenario in a file. Raises ScenarioError with one sentence that names the file and the field."""
    try:
        document = read_document(path, trusted_only=False)  # a scenario runs on a node of its own
    except ConfigurationError as error:
        raise ScenarioError(str(error)) from None
    return scenario_of(document, path)


def scenario_of(document: Mapping[str, Any], path: str) -> Scenario:
    """The scenario in a document. `path` names it in the error message. Raises ScenarioError."""
    if isinstance(document.get("pressure"), dict):
        try:
            return scenario_of({**document, "pressure": [document["pressure"]]}, path)
        except ScenarioError as error:
            raise ScenarioError(str(error).replace("pressure.0.", "pressure.", 1)) from None
    scenario = part_of(Scenario, document, path)
    for problem in _contradictions(scenario):
        raise ScenarioError(f"{path}: {problem}")
    return scenario


def part_of(part: type[_Part], document: Mapping[str, Any], path: str) -> _Part:
    """A part of a scenario by itself, not yet beside the others. Raises ScenarioError."""
    try:
        return part.model_validate(document)
    except ValidationError as error:
        raise ScenarioError(first_problem(error, path, part)) from None


def on_filesystems(scenario: Scenario, fstype: FilesystemType) -> Scenario:
    """The scenario with filesystems of this type where it has tmpfs. Raises ScenarioError if one is too small."""

    def changed(name: str, spec: _Filesystem) -> _Filesystem:
        if spec.type is not FilesystemType.TMPFS:
            return spec
        found = spec.model_copy(update={"type": fstype})
        for problem in _too_small(f"{scenario.name}: the size of {name}", found):
            raise ScenarioError(problem)
        return found

    node = changed("nodefs", scenario.node)
    others = {
        "imagefs": None if node.imagefs is None else changed("imagefs", node.imagefs),
        "own_filesystems": tuple(changed(spec.name, spec) for spec in node.own_filesystems),
    }
    return scenario.model_copy(update={"node": node.model_copy(update=others)})


def configured_tables(
    own: Iterable[FilesystemRole], functions: Iterable[FunctionSpec], path_of: Callable[[str], str]
) -> dict[str, Any]:
    """`filesystems` and `reclaimFunctions` of the configuration. `path_of`: where the node has a filesystem, the
    program of a function, or the ballast, by name."""
    entries: list[dict[str, Any]] = []
    for function in functions:
        made: dict[str, Any] = {} if function.does is None else {"exec": [path_of(function.name)]}
        if function.does is None and function.name == BALLAST:
            made = {"file": path_of(BALLAST)}
        entries.append({"name": function.name, **function.fields, **made})
    return {
        "filesystems": [{"name": str(role), "path": path_of(role)} for role in own],
        "reclaimFunctions": entries,
    }


# ---- fields that must agree: each problem is a sentence that begins with the field


def _contradictions(scenario: Scenario) -> Iterator[str]:
    node = scenario.node
    yield from _of_node(node)
    for number, pressure in enumerate(scenario.pressures):
        yield from _of_pressure(f"pressure.{number}" if len(scenario.pressures) > 1 else "pressure", pressure, node)
    if scenario.pressures[0].beside:
        yield "pressure.0.beside: there is no pressure before it"
    for number, fault in enumerate(scenario.faults):
        yield from _of_fault(f"faults.{number}", fault)
    for name in scenario.expect.lowest:
        if name not in node.signals:
            yield f"expect.lowest: unknown signal {name!r}; allowed are {', '.join(node.signals)}"


def _of_node(node: NodeSpec) -> Iterator[str]:
    if node.layout is FsLayout.SINGLE and node.imagefs is not None:
        yield "node.imagefs: the layout 'single' has no imagefs of its own"
    if node.layout is not FsLayout.SINGLE and node.imagefs is None:
        written = next(word for word, layout in LAYOUTS.items() if layout is node.layout)
        yield f"node.imagefs: the layout {written!r} needs an imagefs"
    places = {f"node.filesystems.{number}": spec for number, spec in enumerate(node.own_filesystems)}
    for field, spec in {"node": node, "node.imagefs": node.imagefs, **places}.items():
        if spec is not None:
            yield from _too_small(f"{field}.size", spec)
    for number, image in enumerate(node.images):
        yield from _several_of_a_tag(f"node.images.{number}", image)
    images = [name for image in node.images for name in image.names]
    yield from _twice("node.images", images)
    yield from _twice("node.pods", [name for pod in node.pods for name in pod.names])
    yield from _twice("node.filesystems", [spec.name for spec in node.own_filesystems])
    yield from _twice("node.functions", [function.name for function in node.functions])
    for pod in node.pods:
        if pod.image not in images:
            yield f"node.pods: {pod.name}: the image {quoted(pod.image)} is not among node.images"
    yield from _of_configuration(node)


def _of_configuration(node: NodeSpec) -> Iterator[str]:
    for name in node.other_fields:
        if name in SET_BY_THE_DRILL:
            yield f"node.configuration.{name}: the drill sets it"
        if name in UNDER_NODE:
            yield f"node.configuration.{name}: belongs directly under {UNDER_NODE[name]}"
    if not node.eviction_hard and not node.eviction_soft:
        yield "node.evictionHard: at least one threshold is needed, here or in evictionSoft"
    made = configured_tables(node.own, node.functions, lambda name: f"/{name}")
    for where, fields in (("node.", node.thresholds), ("node.configuration: ", node.configuration)):
        try:
            load(None, {}, {**fields, **made, "kubeletConfig": ""})
        except ConfigurationError as error:
            yield f"{where}{str(error).removeprefix('flags: ')}"


def _too_small(field: str, spec: FilesystemSpec) -> Iterator[str]:
    """If no filesystem of that type can be so small."""
    least = ON_LOOP_DEVICES.get(spec.type, 0)
    if spec.size_bytes < least:
        is_, was = format_bytes(least), format_bytes(spec.size_bytes)
        yield f"{field}: must be at least {is_} for {spec.type}, but it was {was}"


def _several_of_a_tag(field: str, image: ImageSpec) -> Iterator[str]:
    if image.has_tag and image.count > 1:
        yield f"{field}.count: only one image can be {quoted(image.name)}, but it was {image.count}"


def _twice(field: str, names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"{field}: the name {quoted(name)} occurs twice"
        seen.add(name)


def _of_pressure(field: str, pressure: Pressure, node: NodeSpec) -> Iterator[str]:
    grows = pressure.grows
    for name in ("pod", "image"):
        needed = NEEDED.get(grows) == name
        if bool(getattr(pressure, name)) != needed:
            yield f"{field}.{name}: {'is missing' if needed else 'is not allowed'} if grows is {grows}"
    allowed = {
        "where": (pressure.written_where is None, (Grows.BYTES, Grows.INODES)),
        "fileSize": (pressure.file_bytes == 0, (Grows.INODES,)),
        "file": (pressure.file is FileEnd.CLOSED, (Grows.BYTES, Grows.LOG)),
    }
    for name, (left_out, kinds) in allowed.items():
        if not left_out and grows not in kinds:
            yield f"{field}.{name}: is not allowed if grows is {grows}"
    roles = (*KUBELET_ROLES, *node.own)
    if pressure.written_where is not None and pressure.written_where not in roles:
        was = quoted(pressure.written_where)
        yield f"{field}.where: must be one of {', '.join(roles)}, but it was {was}"
    if not pressure.remains and grows in (Grows.WRITABLE, Grows.PULL):
        what = "a container has written" if grows is Grows.WRITABLE else "was pulled"
        yield f"{field}.remains: what {what} stays"
    states = {name: pod.state for pod in node.pods for name in pod.names}
    if pressure.pod and pressure.pod not in states:
        yield f"{field}.pod: the pod {quoted(pressure.pod)} is not among node.pods"
    if grows is Grows.WRITABLE and states[pressure.pod] not in (PodState.RUNNING, PodState.INITIALIZED):
        yield f"{field}.pod: {pressure.pod} does not run, so it cannot write"
    if grows is Grows.LOG and states[pressure.pod] in (PodState.CREATED, PodState.VANISHED):
        yield f"{field}.pod: {pressure.pod} has no container that has started, so nothing writes its log"
    if pressure.limit is None and pressure.for_seconds is None and grows is not Grows.PULL:
        yield f"{field}.amount: is missing; allowed are a quantity, full, or a time in {field}.for"
    if pressure.image is not None:
        yield from _several_of_a_tag(f"{field}.image", pressure.image)
        yield from _twice(f"{field}.image", [name for spec in (*node.images, pressure.image) for name in spec.names])


def _of_fault(field: str, fault: Fault) -> Iterator[str]:
    action = fault.action
    if (fault.at_seconds is None) == (fault.on_call is None):
        yield f"{field}.at: exactly one of at and onCall must say when the fault is triggered"
    for name, given, needed in (
        ("method", bool(fault.method), action.of_one_method),
        ("by", fault.by_seconds is not None, action is FaultAction.DELAY),
        ("how", bool(fault.how), action is FaultAction.DISTORT),
    ):
        if given != needed:
            yield f"{field}.{name}: {'is missing' if needed else 'is not allowed'} in {action}"
    if fault.lasts_seconds is None and action is FaultAction.AWAY:
        yield f"{field}.lasts: is missing in away"
