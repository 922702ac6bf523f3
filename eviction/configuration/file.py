"""The configuration file as written: its fields, their types and their defaults.

Durations and quantities are texts here; `effective` parses them, so that each error names its field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from eviction.configuration.models import Discriminator, Field, Tag
from eviction.configuration.sources import API_VERSION, KIND
from eviction.configuration.strict_yaml import StrictModel

POD_LOGS_DIR = "/var/log/pods"
CONTAINER_LOGS_DIR = "/var/log/containers"


class FilesystemEntry(StrictModel):
    """A filesystem of `filesystems`."""

    name: str
    path: str


class FunctionEntry(StrictModel):
    """A function of `reclaimFunctions`. Which fields it needs depends on what it is (`functions`)."""

    name: str
    exec: list[str] | None = None
    user: str | None = None
    plan: bool | None = None
    timeout: str | None = None
    plugin: str | None = None
    entryPoint: str | None = None  # noqa: N815
    options: dict[str, Any] | None = None
    file: str | None = None
    size: str | None = None
    keep: int | None = None
    frees: str | None = None
    cooldown: str | None = None


class RowEntryText(StrictModel):
    """An entry of a row of `reclaimTable` that has more than a name."""

    function: str
    below: str | None = None


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


class ConfigurationFile(StrictModel):
    """The file as written. Unknown fields and wrong types are refused."""

    apiVersion: str = API_VERSION  # noqa: N815 # the names of fields are the file's
    kind: str = KIND
    kubeletConfig: str | None = None  # noqa: N815
    kubeletConfigDir: str = ""  # noqa: N815
    rootDirectory: str = "/var/lib/kubelet"  # noqa: N815
    podLogsDir: str = POD_LOGS_DIR  # noqa: N815
    containerLogsDir: str = CONTAINER_LOGS_DIR  # noqa: N815
    containerRuntimeEndpoint: str = ""  # noqa: N815
    imageServiceEndpoint: str = ""  # noqa: N815
    kubeletEndpoint: str = ""  # noqa: N815
    kubeletTokenFile: str = ""  # noqa: N815
    kubeletCertificateFile: str = ""  # noqa: N815
    kubeletKeyFile: str = ""  # noqa: N815
    kubeletCAFile: str = ""  # noqa: N815
    kubeletServerName: str = ""  # noqa: N815
    kubeletInsecureSkipVerify: bool = False  # noqa: N815
    terminatedPods: Literal["kubelet", "evidence"] = "kubelet"  # noqa: N815
    terminatedPodAge: str = "10m"  # noqa: N815
    margin: str = "5%"
    evictionHard: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionSoft: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionSoftGracePeriod: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionMinimumReclaim: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionPressureTransitionPeriod: str = "5m"  # noqa: N815
    extent: Literal["enough", "all"] = "enough"
    dryRun: bool = False  # noqa: N815
    imageMinimumGCAge: str = "2m"  # noqa: N815
    imageMaximumGCAge: str = "0s"  # noqa: N815
    imageGCHighThresholdPercent: int = Field(85, ge=0, le=100)  # noqa: N815
    imageGCLowThresholdPercent: int = Field(80, ge=0, le=100)  # noqa: N815
    minimumContainerTTLDuration: str = "0s"  # noqa: N815
    maximumDeadContainersPerContainer: int = 1  # noqa: N815
    maximumDeadContainers: int = -1  # noqa: N815
    periodicGC: bool = False  # noqa: N815
    keepImages: list[str] = Field(default_factory=list)  # noqa: N815
    keepNewestPerRepository: int = Field(0, ge=0)  # noqa: N815
    holdOffAfterStart: str = "5m"  # noqa: N815
    kubeletHealthzEndpoint: str = "127.0.0.1:10248"  # noqa: N815 # kubelet: healthzBindAddress, healthzPort
    holdOffForNewPods: str = "1s"  # noqa: N815
    parallelRemovals: int = Field(2, ge=1, le=64)  # noqa: N815
    removalPatience: str = "30s"  # noqa: N815
    pollFloor: str = "10ms"  # noqa: N815
    pollCeiling: str = "10s"  # noqa: N815
    assumedFillRate: str = "500Mi"  # noqa: N815
    stateFile: str = "/var/lib/reclaimd/images.json"  # noqa: N815
    historyFile: str = "/var/lib/reclaimd/history"  # noqa: N815
    historySize: str = "16Mi"  # noqa: N815
    lockDirectory: str = "/run/reclaimd/lock"  # noqa: N815
    controlSocket: str = "/run/reclaimd/control.sock"  # noqa: N815
    metricsAddress: str = "127.0.0.1:9746"  # noqa: N815
    xfsHelperSocket: str = "/run/reclaimd-xfs/helper.sock"  # noqa: N815
    filesystems: list[FilesystemEntry] = Field(default_factory=list)
    reclaimFunctions: list[FunctionEntry] = Field(default_factory=list)  # noqa: N815
    reclaimTable: dict[str, list[RowEntryForms]] = Field(default_factory=dict)  # noqa: N815
    kubernetesEvents: bool = False  # noqa: N815
    kubeconfig: str = ""
    nodeName: str = ""  # noqa: N815


def as_written(configuration: ConfigurationFile) -> dict[str, Any]:
    """Every field as it would be written in a file; entries of lists without the fields that they leave out."""

    def shortened(value: Any) -> Any:
        if isinstance(value, list):
            return [shortened(each) for each in value]
        if isinstance(value, dict):
            return {key: shortened(each) for key, each in value.items() if each is not None}
        return value

    return {name: shortened(value) for name, value in configuration.model_dump().items()}
