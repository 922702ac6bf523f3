"""Reads a scenario strictly from YAML: texts become amounts, and fields that must agree are checked.

Reading ends at the first problem with one sentence that names the file and the field. The fields are in `schema`; a
guide with an example is `eviction/drill/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eviction.configuration.effective import load
from eviction.configuration.models import ValidationError
from eviction.configuration.strict_yaml import ConfigurationError, first_problem, quoted, read_document
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from eviction.drill.scenario.amounts import ScenarioError, amount_of, refuse_duplicates, seconds_of, seconds_or_none
from eviction.drill.scenario.expectations import expectation_of
from eviction.drill.scenario.filesystem_types import refuse_too_small
from eviction.drill.scenario.schema import (
    FaultFields,
    FilesystemFields,
    ImageFields,
    NodeFields,
    PodFields,
    PressureFields,
    ScenarioFields,
)
from eviction.drill.scenario.types import (
    Fault,
    FaultAction,
    FileEnd,
    FilesystemSpec,
    FilesystemType,
    FunctionSpec,
    Grows,
    ImageSpec,
    NodeSpec,
    OwnFilesystemSpec,
    PodSpec,
    PodState,
    Pressure,
    ProgramKind,
    RestartPolicy,
    RuntimeSpec,
    Scenario,
)
from signals.types import KUBELET_ROLES, ROLE_NAME, ROLE_NAMES_ALLOWED, FilesystemRole, FsLayout

THRESHOLD_MAPS = ("evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim")
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
UNDER_NODE = {"filesystems": "node.filesystems", "reclaimFunctions": "node.functions"}
BY_THE_SCENARIO = (*THRESHOLD_MAPS, *UNDER_NODE)  # fields of the configuration that have a place of their own
# No periodic garbage collection and no hold-off, unless the scenario sets them.
DEFAULTS: Mapping[str, Any] = {"imageGCHighThresholdPercent": 100, "holdOffAfterStart": "0s"}
BALLAST = "ReleaseBallast"
LAYOUTS = {"single": FsLayout.SINGLE, "dedicated": FsLayout.DEDICATED_IMAGEFS, "split": FsLayout.SPLIT}


def read_scenario(path: str) -> Scenario:
    """The scenario in a file. Raises ScenarioError with one sentence that names the file and the field."""
    try:
        document = read_document(path, trusted_only=False)  # a scenario runs on a node of its own
    except ConfigurationError as error:
        raise ScenarioError(str(error)) from None
    return scenario_of(document, path)


def scenario_of(document: Mapping[str, Any], path: str) -> Scenario:
    """The scenario in a document. `path` names it in the error message. Raises ScenarioError."""
    single = isinstance(document.get("pressure"), dict)
    if single:
        document = {**document, "pressure": [document["pressure"]]}
    try:
        written = ScenarioFields.model_validate(document)
    except ValidationError as error:
        text = first_problem(error, path, ScenarioFields)
        raise ScenarioError(text.replace("pressure.0.", "pressure.") if single else text) from None
    try:
        return _scenario(written)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _scenario(written: ScenarioFields) -> Scenario:
    node = _node(written.node)
    pressures = tuple(
        _pressure(f"pressure.{number}" if len(written.pressure) > 1 else "pressure", pressure, node)
        for number, pressure in enumerate(written.pressure)
    )
    if pressures[0].beside:
        raise ScenarioError("pressure.0.beside: there is no pressure before it")
    return Scenario(
        name=written.name,
        why=written.why,
        node=node,
        pressures=pressures,
        faults=tuple(_fault(f"faults.{number}", fault) for number, fault in enumerate(written.faults)),
        expect=expectation_of(written.expect, node, len(written.faults)),
    )


# ---- the node


def _node(written: NodeFields) -> NodeSpec:
    layout = LAYOUTS[written.layout]
    if (layout is FsLayout.SINGLE) != (written.imagefs is None):
        rule = "has no imagefs of its own" if layout is FsLayout.SINGLE else "needs an imagefs"
        raise ScenarioError(f"node.imagefs: the layout {written.layout!r} {rule}")
    images = tuple(_image(f"node.images.{number}", image) for number, image in enumerate(written.images))
    pods = tuple(_pod(f"node.pods.{number}", pod) for number, pod in enumerate(written.pods))
    present = [name for image in images for name in image.names]
    refuse_duplicates("node.images", present)
    refuse_duplicates("node.pods", (name for pod in pods for name in pod.names))
    for pod in pods:
        if pod.image not in present:
            raise ScenarioError(f"node.pods: {pod.name}: the image {quoted(pod.image)} is not among node.images")
    own = FilesystemFields(size=written.size, inodes=written.inodes, type=written.type)
    return NodeSpec(
        nodefs=_filesystem("node", own),
        imagefs=None if written.imagefs is None else _filesystem("node.imagefs", written.imagefs),
        layout=layout,
        images=images,
        pods=pods,
        configuration=_configuration(written),
        runtime=RuntimeSpec(
            written.runtime.dialect,
            seconds_or_none("node.runtime.containerSpaceDelay", written.runtime.containerSpaceDelay),
            written.runtime.pinsSandboxImage,
            written.runtime.fillsImageId,
            amount_of("node.runtime.unreferenced", written.runtime.unreferenced),
        ),
        collectors=written.collectors,
        rebooted=written.rebooted,
        own=_own(written),
        functions=_functions(written),
    )


def _filesystem(field: str, written: FilesystemFields) -> FilesystemSpec:
    size = amount_of(f"{field}.size", written.size, at_least=1 << 20)
    spec = FilesystemSpec(size, written.inodes, FilesystemType(written.type))
    refuse_too_small(f"{field}.size", spec)
    return spec


def _image(field: str, written: ImageFields) -> ImageSpec:
    spec = ImageSpec(
        name=written.name,
        count=written.count,
        size_bytes=amount_of(f"{field}.size", written.size),
        files=written.files,
        shared_bytes=amount_of(f"{field}.shared", written.shared),
        age_seconds=seconds_of(f"{field}.age", written.age),
        pinned=written.pinned,
    )
    if spec.has_tag and spec.count > 1:
        raise ScenarioError(f"{field}.count: only one image can be {quoted(spec.name)}, but it was {spec.count}")
    return spec


def _pod(field: str, written: PodFields) -> PodSpec:
    state = PodState(written.state)
    policy = RestartPolicy.ON_FAILURE if state is PodState.COMPLETED else RestartPolicy.ALWAYS
    return PodSpec(
        name=written.name,
        image=written.image,
        state=state,
        count=written.count,
        dead_copies=int(state is PodState.CRASHED) if written.deadCopies is None else written.deadCopies,
        write_bytes=amount_of(f"{field}.writes", written.writes),
        log_bytes=amount_of(f"{field}.logs", written.logs),
        rotated_logs=written.rotatedLogs,
        dead_seconds=seconds_of(f"{field}.dead", written.dead),
        restart_policy=policy if written.restartPolicy is None else RestartPolicy(written.restartPolicy),
    )


def _configuration(written: NodeFields) -> dict[str, Any]:
    """The fields of the configuration file, checked by the reader of the configuration."""
    maps: dict[str, Any] = {name: dict(getattr(written, name)) for name in THRESHOLD_MAPS}
    for name in written.configuration:
        if name in SET_BY_THE_DRILL:
            raise ScenarioError(f"node.configuration.{name}: the drill sets it")
        if name in BY_THE_SCENARIO:
            where = UNDER_NODE.get(name, "node")
            raise ScenarioError(f"node.configuration.{name}: belongs directly under {where}")
    if not maps["evictionHard"] and not maps["evictionSoft"]:
        raise ScenarioError("node.evictionHard: at least one threshold is needed, here or in evictionSoft")
    # The kubelet's way to switch a default off.
    off: dict[str, str] = {str(signal): "0%" for signal in KUBELET_EVICTION_HARD}
    maps["evictionHard"] = {**off, **maps["evictionHard"]}
    fields = {**DEFAULTS, **written.configuration, **maps}
    made = configured_tables(_own(written), _functions(written), lambda name: f"/{name}")
    for where, document in (("node.", {**maps, **made}), ("node.configuration: ", {**fields, **made})):
        try:
            load(None, {}, {**document, "kubeletConfig": ""})
        except ConfigurationError as error:
            raise ScenarioError(f"{where}{str(error).removeprefix('flags: ')}") from None
    return fields


def _own(written: NodeFields) -> dict[FilesystemRole, OwnFilesystemSpec]:
    found: dict[FilesystemRole, OwnFilesystemSpec] = {}
    refuse_duplicates("node.filesystems", (entry.name for entry in written.filesystems))
    for number, entry in enumerate(written.filesystems):
        field = f"node.filesystems.{number}"
        if not ROLE_NAME.fullmatch(entry.name) or entry.name in KUBELET_ROLES:
            raise ScenarioError(f"{field}.name: must be {ROLE_NAMES_ALLOWED}, and none of the kubelet's")
        spec = _filesystem(field, entry)
        size = amount_of(f"{field}.fileSize", entry.fileSize)
        found[FilesystemRole(entry.name)] = OwnFilesystemSpec(
            spec.size_bytes, spec.inodes, spec.type, entry.files, size
        )
    return found


def _functions(written: NodeFields) -> tuple[FunctionSpec, ...]:
    refuse_duplicates("node.functions", (entry.name for entry in written.functions))
    return tuple(
        FunctionSpec(
            entry.name,
            None if entry.does is None else ProgramKind(entry.does),
            {
                name: getattr(entry, name)
                for name in ("frees", "timeout", "cooldown", "size", "keep")
                if getattr(entry, name) is not None
            },
        )
        for entry in written.functions
    )


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


# ---- pressures and faults


def _pressure(field: str, written: PressureFields, node: NodeSpec) -> Pressure:
    grows = Grows(written.grows)
    needed = {Grows.LOG: "pod", Grows.WRITABLE: "pod", Grows.PULL: "image"}.get(grows)
    for name in ("pod", "image"):
        if bool(getattr(written, name)) != (name == needed):
            raise ScenarioError(
                f"{field}.{name}: {'is missing' if name == needed else 'is not allowed'} if grows is {grows}"
            )
    if written.where is not None and grows not in (Grows.BYTES, Grows.INODES):
        raise ScenarioError(f"{field}.where: is not allowed if grows is {grows}")
    roles = (*KUBELET_ROLES, *node.own)
    if written.where is not None and written.where not in roles:
        raise ScenarioError(f"{field}.where: must be one of {', '.join(roles)}, but it was {quoted(written.where)}")
    _refuse_what_cannot_grow_so(field, written, grows)
    if needed == "pod" and written.pod not in {name for pod in node.pods for name in pod.names}:
        raise ScenarioError(f"{field}.pod: the pod {quoted(written.pod)} is not among node.pods")
    states = {name: pod.state for pod in node.pods for name in pod.names}
    if grows is Grows.WRITABLE and states[written.pod] not in (PodState.RUNNING, PodState.INITIALIZED):
        raise ScenarioError(f"{field}.pod: {written.pod} does not run, so it cannot write")
    if grows is Grows.LOG and states[written.pod] in (PodState.CREATED, PodState.VANISHED):
        raise ScenarioError(f"{field}.pod: {written.pod} has no container that has started, so nothing writes its log")
    if written.amount is None and written.for_ is None and grows is not Grows.PULL:
        raise ScenarioError(f"{field}.amount: is missing; allowed are a quantity, full, or a time in {field}.for")
    image = None if written.image is None else _image(f"{field}.image", written.image)
    if image is not None:
        refuse_duplicates(f"{field}.image", [n for spec in (*node.images, image) for n in spec.names])
    full = written.amount == "full"
    return Pressure(
        grows=grows,
        rate=amount_of(f"{field}.rate", written.rate, at_least=1),
        amount=None if written.amount is None or full else amount_of(f"{field}.amount", written.amount, at_least=1),
        until_full=full,
        for_seconds=seconds_or_none(f"{field}.for", written.for_),
        after_seconds=seconds_of(f"{field}.after", written.after),
        holds_seconds=seconds_of(f"{field}.holds", written.holds),
        remains=written.remains,
        where=FilesystemRole(written.where or "nodefs"),
        file_bytes=amount_of(f"{field}.fileSize", written.fileSize),
        pod=written.pod,
        image=image,
        file=FileEnd(written.file),
        beside=written.beside,
    )


def _refuse_what_cannot_grow_so(field: str, written: PressureFields, grows: Grows) -> None:
    if not written.remains and grows in (Grows.WRITABLE, Grows.PULL):
        what = "a container has written" if grows is Grows.WRITABLE else "was pulled"
        raise ScenarioError(f"{field}.remains: what {what} stays")
    if written.fileSize != "0" and grows is not Grows.INODES:
        raise ScenarioError(f"{field}.fileSize: is not allowed if grows is {grows}")
    if written.file != "closed" and grows not in (Grows.BYTES, Grows.LOG):
        raise ScenarioError(f"{field}.file: is not allowed if grows is {grows}")


def _fault(field: str, written: FaultFields) -> Fault:
    action = FaultAction(written.action)
    if (written.at is None) == (written.onCall is None):
        raise ScenarioError(f"{field}.at: exactly one of at and onCall must say when the fault is triggered")
    distorts, delays = action is FaultAction.DISTORT, action is FaultAction.DELAY
    for name, needed in (("method", action.of_one_method), ("by", delays), ("how", distorts)):
        if (getattr(written, name) is not None) != needed:
            raise ScenarioError(f"{field}.{name}: {'is missing' if needed else 'is not allowed'} in {action}")
    if written.lasts is None and action is FaultAction.AWAY:
        raise ScenarioError(f"{field}.lasts: is missing in away")
    return Fault(
        action=action,
        at_seconds=seconds_or_none(f"{field}.at", written.at),
        call_method="" if written.onCall is None else written.onCall.method,
        call_count=1 if written.onCall is None else written.onCall.count,
        method=written.method or "",
        times=written.times,
        lasts_seconds=seconds_or_none(f"{field}.lasts", written.lasts),
        delay_seconds=0.0 if written.by is None else seconds_of(f"{field}.by", written.by),
        code=written.code,
        message=written.message,
        how=written.how or "",
    )
