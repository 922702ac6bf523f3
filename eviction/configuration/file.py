"""The configuration file as written: its fields, their types and their defaults.

Durations and quantities are texts here; `effective` parses them, so that each error names its field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from eviction.configuration.models import ConfigDict, Discriminator, Field, Tag
from eviction.configuration.sources import KIND
from eviction.configuration.strict_yaml import StrictModel
from eviction.configuration.text_forms import (
    AbsolutePath,
    Amount,
    Duration,
    GracePeriods,
    Lead,
    Marks,
    PathOrEmpty,
    Quantity,
    QuantityOrPercentage,
    Schema,
    map_by_signal,
    or_null,
)
from eviction.types import API_VERSION
from signals.types import ROLE_NAME

POD_LOGS_DIR = "/var/log/pods"
CONTAINER_LOGS_DIR = "/var/log/containers"


class FilesystemEntry(StrictModel):
    """A filesystem of `filesystems`."""

    name: str = Field(json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"})
    """Its signals are NAME.available and NAME.inodesFree. None of the kubelet's names."""
    path: AbsolutePath
    """A directory on it."""


class FunctionEntry(StrictModel):
    """A function of `reclaimFunctions`. Which fields it needs depends on what it is (`functions`)."""

    name: str
    """ReleaseBallast (needs file and size), DeleteRotatedLogs, CollectContainerdGarbage, or a name of your own, with
    exec or plugin."""
    exec: list[str] | None = None
    """A program: its absolute path and its arguments. There is no shell. Needs frees."""
    user: str | None = None
    """Whom the program runs as; left out: as reclaimd."""
    plan: bool | None = None
    """False: a dry run does not start the program, as it ignores the argument `plan`."""
    timeout: Duration | None = None
    """After so long the program gets TERM, and KILL for its whole process group: 1s to 10m."""
    plugin: str | None = None
    """A Python distribution that has the function as an entry point. Needs frees."""
    entryPoint: str | None = None  # noqa: N815
    """The name of that entry point; left out: the name of the function."""
    options: dict[str, Any] | None = None
    """Of the plugin."""
    file: AbsolutePath | None = None
    """The ballast."""
    size: Quantity | None = None
    """Of the ballast, in bytes: at least 1Mi."""
    keep: int | None = Field(None, json_schema_extra={"minimum": 0})
    """How many rotated logs of each container stay."""
    frees: str | None = None
    """The filesystem on which it frees: nodefs, imagefs, containerfs, or one of `filesystems`."""
    cooldown: Duration | None = None
    """How long it rests after a call."""


class RowEntryText(StrictModel):
    """An entry of a row of `reclaimTable` that has more than a name."""

    function: str
    """The name of the function."""
    below: QuantityOrPercentage | None = None
    """It is called only while the signal is below this mark."""


def _form(entry: Any) -> str | None:
    return "<name>" if isinstance(entry, str) else "<entry>" if isinstance(entry, dict | RowEntryText) else None


RowEntryForms = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[RowEntryText, Tag("<entry>")],
    Discriminator(
        _form,
        custom_error_type="row_entry",
        custom_error_message="must be a function's name, or function and below",
    ),
]
"""An entry of a row. A tag in angle brackets is not part of a field's name (`strict_yaml.first_problem`)."""


def _as_in_a_file(schema: Schema) -> None:
    """What holds for a file beyond the model: it says what it is, and any of its values may be null."""
    properties = schema["properties"]
    for name, value in (("apiVersion", API_VERSION), ("kind", KIND)):
        properties[name] = {"const": value, **properties[name]}
    for name in properties.keys() - {"apiVersion", "kind"}:
        properties[name] = or_null(properties[name])
    schema["required"] = ["apiVersion", "kind"]


class ConfigurationFile(StrictModel):
    """The file as written. Unknown fields and wrong types are refused."""

    model_config = ConfigDict(title=KIND, json_schema_extra=_as_in_a_file)

    apiVersion: str = API_VERSION  # noqa: N815 # the names of fields are the file's
    """The version of this format."""
    kind: str = KIND
    """What the file is."""
    kubeletConfig: str | None = None  # noqa: N815
    """The kubelet's configuration, read only. Null: as its command line says, else the usual file, where it exists.
    Empty: none."""
    kubeletConfigDir: str = ""  # noqa: N815
    """Its drop-in directory."""
    rootDirectory: AbsolutePath = "/var/lib/kubelet"  # noqa: N815
    """The kubelet's root directory; nodefs is the filesystem it is on."""
    podLogsDir: AbsolutePath = POD_LOGS_DIR  # noqa: N815
    """Where the kubelet keeps the logs of pods. A symlink in its place is not followed."""
    containerLogsDir: AbsolutePath = CONTAINER_LOGS_DIR  # noqa: N815
    """Where the symlinks to the logs of containers are."""
    containerRuntimeEndpoint: str = ""  # noqa: N815
    """The runtime's socket: unix:///path. Empty: the first of the usual sockets that exists. none: there is no runtime
    on this machine."""
    imageServiceEndpoint: str = ""  # noqa: N815
    """The socket of the image service, where it is another one."""
    kubeletEndpoint: str = ""  # noqa: N815
    """Where the kubelet is asked for its pods, such as https://127.0.0.1:10250; auto: found by itself; empty: not
    asked."""
    kubeletTokenFile: PathOrEmpty = ""  # noqa: N815
    """The bearer token for the kubelet."""
    kubeletCertificateFile: PathOrEmpty = ""  # noqa: N815
    """The client certificate for the kubelet, in PEM."""
    kubeletKeyFile: PathOrEmpty = ""  # noqa: N815
    """Its key; empty where it is in the same file."""
    kubeletCAFile: PathOrEmpty = ""  # noqa: N815
    """The authorities whose certificates the kubelet may show, in PEM."""
    kubeletServerName: str = ""  # noqa: N815
    """The name in the kubelet's certificate, where that is not the address."""
    kubeletInsecureSkipVerify: bool = False  # noqa: N815
    """True: whoever listens at that address is believed, and gets the token."""
    terminatedPods: Literal["kubelet", "evidence"] = "kubelet"  # noqa: N815
    """How it is known that a pod which still exists has terminated: by the kubelet's word alone, or also by what was
    seen for terminatedPodAge."""
    terminatedPodAge: Duration = "10m"  # noqa: N815
    """For how long that must have been seen; at least 10s."""
    margin: Amount = "5%"
    """How far above the inherited marks reclaimd acts: 0% to 50% of the capacity, or bytes with a unit (5Gi), which
    raise the available signals only."""
    evictionHard: Marks = Field(default_factory=dict)  # noqa: N815
    """Signal -> mark, in place of the inherited one and without the margin. 0% switches a signal off."""
    evictionSoft: Marks = Field(default_factory=dict)  # noqa: N815
    """Signal -> mark that acts after a grace period; needs one in evictionSoftGracePeriod."""
    evictionSoftGracePeriod: GracePeriods = Field(default_factory=dict)  # noqa: N815
    """Signal -> how long its soft mark must have been crossed."""
    evictionMinimumReclaim: Marks = Field(default_factory=dict)  # noqa: N815
    """Signal -> how far above its mark it must rise before relief is declared; 2% where nothing else is said of an
    available signal."""
    evictionPressureTransitionPeriod: Duration = "5m"  # noqa: N815
    """How long DiskPressure is reported after it was last seen. 0s counts as not set."""
    extent: Literal["enough", "all"] = "enough"
    """enough: a pass stops when the thresholds are clear. all: it goes to the end of the row, as the kubelet does."""
    dryRun: bool = False  # noqa: N815
    """True: everything but removals."""
    imageMinimumGCAge: Duration = "2m"  # noqa: N815
    """How long an image must have been known before it may go."""
    imageMaximumGCAge: Duration = "0s"  # noqa: N815
    """How long an image may stay unused before the periodic collection takes it; 0s: for ever."""
    imageGCHighThresholdPercent: int = Field(85, ge=0, le=100)  # noqa: N815
    """Of the periodic image collection, in percent of the disk used: it begins there. 100: never."""
    imageGCLowThresholdPercent: int = Field(80, ge=0, le=100)  # noqa: N815
    """It ends there; below imageGCHighThresholdPercent."""
    minimumContainerTTLDuration: Duration = "0s"  # noqa: N815
    """How old a dead container must be to go, counted from its creation."""
    maximumDeadContainersPerContainer: int = 1  # noqa: N815
    """How many dead copies of each container stay; negative: all."""
    maximumDeadContainers: int = -1  # noqa: N815
    """How many dead containers stay on the node; negative: no limit."""
    periodicGC: bool = False  # noqa: N815
    """True: the kubelet's own periodic loops too; for a machine on which no kubelet runs them."""
    keepImages: list[str] = Field(default_factory=list)  # noqa: N815
    """Images that always stay: references, repositories, digests, globs."""
    keepNewestPerRepository: int = Field(0, ge=0)  # noqa: N815
    """How many images of each repository always stay, the newest ones. 0: none."""
    holdOffAfterStart: Duration = "5m"  # noqa: N815
    """Nothing is removed for so long after a start, unless the kubelet answers healthy before."""
    kubeletHealthzEndpoint: str = "127.0.0.1:10248"  # noqa: N815 # kubelet: healthzBindAddress, healthzPort
    """Where the kubelet's /healthz is asked: address and port, or unix:///path; empty: nowhere."""
    holdOffForNewPods: Duration = "1s"  # noqa: N815
    """No image goes for so long after a pod began: 0s to 10s."""
    parallelRemovals: int = Field(2, ge=1, le=64)  # noqa: N815
    """Removals side by side."""
    removalPatience: Duration = "30s"  # noqa: N815
    """How long a removal that was sent is waited for before the pass goes on without it; at least 500ms."""
    lead: Lead = "auto"
    """auto: a pass begins before its mark is reached, where removals have lately taken longer than there is time until
    the kubelet's; 0s: never."""
    pollFloor: Duration = "10ms"  # noqa: N815
    """The shortest time between two observations; at least 1ms, and not above pollCeiling."""
    pollCeiling: Duration = "10s"  # noqa: N815
    """The longest time between two observations."""
    assumedFillRate: Quantity = "500Mi"  # noqa: N815
    """Bytes a second that a fill may always have."""
    stateFile: PathOrEmpty = "/var/lib/reclaimd/images.json"  # noqa: N815
    """When each image was first seen and last used. Empty: nowhere."""
    historyFile: PathOrEmpty = "/var/lib/reclaimd/history"  # noqa: N815
    """Every pass and every removal of the last weeks. Empty: no history."""
    historySize: Quantity = "16Mi"  # noqa: N815
    """Bytes of that file, allocated at the start: 1Mi to 1Gi."""
    lockDirectory: AbsolutePath = "/run/reclaimd/lock"  # noqa: N815
    """A directory of mode 0700 that the one instance of the node locks."""
    controlSocket: PathOrEmpty = "/run/reclaimd/control.sock"  # noqa: N815
    """Where commands ask the daemon. Empty: nowhere."""
    metricsAddress: str = "127.0.0.1:9746"  # noqa: N815
    """Where metrics and health are served: an address of this machine and a port. Empty: nowhere."""
    filesystems: list[FilesystemEntry] = Field(default_factory=list, json_schema_extra={"maxItems": 8})
    """Filesystems of your own, beside the kubelet's."""
    reclaimFunctions: list[FunctionEntry] = Field(default_factory=list)  # noqa: N815
    """Functions of your own, off until a row of reclaimTable names them."""
    reclaimTable: Annotated[dict[str, list[RowEntryForms]], map_by_signal()] = Field(default_factory=dict)  # noqa: N815
    """Signal -> functions, in order. A signal that is not named keeps its built-in row."""
    kubernetesEvents: bool = False  # noqa: N815
    """True: events go to the API server too, not only to the log."""
    kubeconfig: PathOrEmpty = ""
    """Who asks the API server; empty: the pod's service account."""
    nodeName: str = ""  # noqa: N815
    """The name of the Node in events; empty: $NODE_NAME, else the host's name."""


def as_written(configuration: ConfigurationFile) -> dict[str, Any]:
    """Every field as it would be written in a file; entries of lists without the fields that they leave out."""

    def shortened(value: Any) -> Any:
        if isinstance(value, list):
            return [shortened(each) for each in value]
        if isinstance(value, dict):
            return {key: shortened(each) for key, each in value.items() if each is not None}
        return value

    return {name: shortened(value) for name, value in configuration.model_dump().items()}
