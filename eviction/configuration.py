"""The configuration: defaults, our file, environment, flags -> one validated value. A home of pydantic.

Names, grammar and meaning of the eviction fields are the kubelet's
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/). A later source wins: defaults, file,
environment, flags. The first problem ends the reading with one sentence that names the file, the field, and what is
allowed; nothing is taken from a configuration that has a problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, ValidationError

from eviction.documents import DocumentError, StrictModel, read_document, sentence
from eviction.types import EvictionError, Threshold, ThresholdValue
from signals.quantity import (
    PERCENTAGE_FORMS,
    QUANTITY_FORMS,
    QuantityError,
    parse_duration,
    parse_percentage,
    parse_quantity,
    whole,
)
from signals.types import Signal

API_VERSION = "reclaimd.io/v1alpha1"
KIND = "ReclaimdConfiguration"

# kubelet, pkg/kubelet/eviction/defaults_linux.go
KUBELET_EVICTION_HARD: Mapping[Signal, str] = {
    Signal.NODEFS_AVAILABLE: "10%",
    Signal.NODEFS_INODES_FREE: "5%",
    Signal.IMAGEFS_AVAILABLE: "15%",
    Signal.IMAGEFS_INODES_FREE: "5%",
}
DEFAULT_MINIMUM_RECLAIM: Mapping[Signal, str] = {Signal.NODEFS_AVAILABLE: "2%", Signal.IMAGEFS_AVAILABLE: "2%"}

USUAL_ENDPOINTS = (
    "unix:///run/containerd/containerd.sock",
    "unix:///run/crio/crio.sock",
    "unix:///run/cri-dockerd.sock",
    "unix:///run/k3s/containerd/containerd.sock",
)


class ConfigurationError(EvictionError):
    """A configuration that is refused. The message is one sentence."""


class Extent(StrEnum):
    """How far a pass goes: until the thresholds are clear, or to the end of the row as the kubelet does."""

    ENOUGH = "enough"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The effective configuration. Durations in seconds, sizes in bytes, rates in bytes a second."""

    root_directory: str
    runtime_endpoint: str
    image_endpoint: str
    thresholds: tuple[Threshold, ...]
    transition_period_seconds: float
    extent: Extent
    image_minimum_gc_age_seconds: float
    image_gc_high_threshold_percent: int
    image_gc_low_threshold_percent: int
    minimum_container_ttl_seconds: float
    maximum_dead_containers_per_container: int
    hold_off_seconds: float
    parallel_removals: int
    poll_floor_seconds: float
    poll_ceiling_seconds: float
    assumed_fill_rate: int


class _File(StrictModel):
    """The file as written: texts are read into amounts afterwards, so that each sentence names its field."""

    apiVersion: str = API_VERSION  # noqa: N815 # the names of fields are the file's
    kind: str = KIND
    rootDirectory: str = "/var/lib/kubelet"  # noqa: N815
    containerRuntimeEndpoint: str = ""  # noqa: N815
    imageServiceEndpoint: str = ""  # noqa: N815
    margin: str = "5%"
    evictionHard: dict[str, str] | None = None  # noqa: N815
    evictionMinimumReclaim: dict[str, str] | None = None  # noqa: N815
    evictionPressureTransitionPeriod: str = "5m"  # noqa: N815
    extent: Literal["enough", "all"] = "enough"
    imageMinimumGCAge: str = "2m"  # noqa: N815
    imageGCHighThresholdPercent: int = Field(85, ge=0, le=100)  # noqa: N815
    imageGCLowThresholdPercent: int = Field(80, ge=0, le=100)  # noqa: N815
    minimumContainerTTLDuration: str = "0s"  # noqa: N815
    maximumDeadContainersPerContainer: int = 1  # noqa: N815
    holdOffAfterStart: str = "5m"  # noqa: N815
    parallelRemovals: int = Field(2, ge=1, le=64)  # noqa: N815
    pollFloor: str = "10ms"  # noqa: N815
    pollCeiling: str = "10s"  # noqa: N815
    assumedFillRate: str = "500Mi"  # noqa: N815


def load(path: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Configuration:
    """The effective configuration from a file (None: defaults), the environment and flags (field -> value).

    Raises ConfigurationError with one sentence.
    """
    try:
        document = read_document(path) if path is not None else {}
    except DocumentError as error:
        raise ConfigurationError(str(error)) from None
    from_environment = {
        field: environment[variable]
        for variable, field in (
            ("CONTAINER_RUNTIME_ENDPOINT", "containerRuntimeEndpoint"),
            ("IMAGE_SERVICE_ENDPOINT", "imageServiceEndpoint"),
        )
        if environment.get(variable)
    }
    name = path or "configuration"
    if path is not None:
        for field, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
            if document.get(field) != allowed:
                raise ConfigurationError(f"{name}: {field} must be {allowed!r}, but it was {document.get(field)!r}")
    try:
        _File.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(sentence(error, name, _File)) from None
    try:
        _File.model_validate({**from_environment, **flags})  # alone, so that the sentence names what is wrong
        written = _File.model_validate({**document, **from_environment, **flags})
    except ValidationError as error:
        raise ConfigurationError(sentence(error, "flags", _File)) from None
    return _Reader(written, name, document, flags).configuration()


class _Reader:
    """Reads the texts of a file into amounts; every sentence names where the text stood."""

    def __init__(self, written: _File, name: str, document: Mapping[str, Any], flags: Mapping[str, Any]):
        self._written = written
        self._name = name
        self._document = document
        self._flags = flags

    def configuration(self) -> Configuration:
        written = self._written
        if written.imageGCLowThresholdPercent >= written.imageGCHighThresholdPercent:
            raise self._error(
                "imageGCLowThresholdPercent",
                f"must be below imageGCHighThresholdPercent ({written.imageGCHighThresholdPercent}), "
                f"but it was {written.imageGCLowThresholdPercent}",
            )
        if not written.rootDirectory.startswith("/"):
            raise self._error("rootDirectory", f"must be an absolute path, but it was {written.rootDirectory!r}")
        poll_floor, poll_ceiling = self._seconds("pollFloor"), self._seconds("pollCeiling")
        if not 0.001 <= poll_floor <= poll_ceiling:
            raise self._error("pollFloor", "must be at least 1ms and not above pollCeiling")
        return Configuration(
            root_directory=written.rootDirectory,
            runtime_endpoint=written.containerRuntimeEndpoint,
            image_endpoint=written.imageServiceEndpoint,
            thresholds=self._thresholds(),
            transition_period_seconds=self._seconds("evictionPressureTransitionPeriod"),
            extent=Extent(written.extent),
            image_minimum_gc_age_seconds=self._seconds("imageMinimumGCAge"),
            image_gc_high_threshold_percent=written.imageGCHighThresholdPercent,
            image_gc_low_threshold_percent=written.imageGCLowThresholdPercent,
            minimum_container_ttl_seconds=self._seconds("minimumContainerTTLDuration"),
            maximum_dead_containers_per_container=written.maximumDeadContainersPerContainer,
            hold_off_seconds=self._seconds("holdOffAfterStart"),
            parallel_removals=written.parallelRemovals,
            poll_floor_seconds=poll_floor,
            poll_ceiling_seconds=poll_ceiling,
            assumed_fill_rate=self._rate("assumedFillRate"),
        )

    def _origin(self, field: str) -> str:
        if field in self._flags:
            return "flag"
        return self._name if field in self._document else "default"

    def _error(self, field: str, problem: str) -> ConfigurationError:
        where = "flags" if field in self._flags else self._name
        return ConfigurationError(f"{where}: {field}: {problem}")

    def _seconds(self, field: str) -> float:
        text = getattr(self._written, field)
        try:
            seconds = parse_duration(text)
        except QuantityError as error:
            raise self._error(field, str(error)) from None
        if seconds < 0:
            raise self._error(field, f"must not be negative, but it was {text!r}")
        return seconds

    def _rate(self, field: str) -> int:
        text = getattr(self._written, field)
        try:
            amount = whole(parse_quantity(text))
        except QuantityError as error:
            raise self._error(field, str(error)) from None
        if amount <= 0:
            raise self._error(field, f"must be above 0 bytes a second, but it was {text!r}")
        return amount

    def _thresholds(self) -> tuple[Threshold, ...]:
        own = self._written.evictionHard
        reclaims = self._reclaims()
        values: dict[Signal, tuple[ThresholdValue, str]] = {}
        margin = self._margin()
        for signal, text in KUBELET_EVICTION_HARD.items():
            raised = Decimal(text.rstrip("%")) + margin
            values[signal] = (
                ThresholdValue(percentage=parse_percentage(f"{raised}%")),
                f"the kubelet's default {text} plus margin {margin}%",
            )
        for name, text in (own or {}).items():
            signal = self._signal("evictionHard", name)
            values.pop(signal, None)
            if text not in ("0%", "100%"):  # the kubelet's way to switch a signal off
                values[signal] = (self._value("evictionHard", name, text), self._origin("evictionHard"))
        return tuple(
            Threshold(signal, *values[signal][:1], min_reclaim=reclaims.get(signal), origin=values[signal][1])
            for signal in Signal
            if signal in values
        )

    def _margin(self) -> Decimal:
        text = self._written.margin
        try:
            parse_percentage(text)
        except QuantityError as error:
            raise self._error("margin", str(error)) from None
        margin = Decimal(text.rstrip("%"))
        if not 0 <= margin <= 50:
            raise self._error("margin", f"must be between 0% and 50%, but it was {text!r}")
        return margin

    def _reclaims(self) -> dict[Signal, ThresholdValue]:
        own = self._written.evictionMinimumReclaim
        reclaims = {
            signal: ThresholdValue(percentage=parse_percentage(text))
            for signal, text in DEFAULT_MINIMUM_RECLAIM.items()
        }
        for name, text in (own or {}).items():
            signal = self._signal("evictionMinimumReclaim", name)
            reclaims[signal] = self._value("evictionMinimumReclaim", name, text, reclaim=True)
        return reclaims

    def _signal(self, field: str, name: str) -> Signal:
        allowed = ", ".join(KUBELET_EVICTION_HARD)
        if name in KUBELET_EVICTION_HARD:
            return Signal(name)
        raise self._error(field, f"unknown signal {name!r}; allowed are {allowed}")

    def _value(self, field: str, name: str, text: str, *, reclaim: bool = False) -> ThresholdValue:
        try:
            return read_value(field, name, text, reclaim=reclaim)
        except ConfigurationError as error:
            where = "flags" if field in self._flags else self._name
            raise ConfigurationError(f"{where}: {error}") from None


def read_value(field: str, name: str, text: str, *, reclaim: bool = False) -> ThresholdValue:
    """The value of a threshold, or with `reclaim` of a minimum reclaim, which may be 0 and above 100%.

    Raises ConfigurationError with `field: name: problem`. Rules: kubelet, `pkg/kubelet/eviction/helpers.go`,
    parseThresholdStatement and parseMinimumReclaims.
    """
    try:
        value = (
            ThresholdValue(percentage=parse_percentage(text))
            if text.endswith("%")
            else ThresholdValue(quantity=parse_quantity(text))
        )
    except QuantityError:
        raise ConfigurationError(
            f"{field}: {name}: {_shown(text)} is neither {QUANTITY_FORMS} nor {PERCENTAGE_FORMS}"
        ) from None
    if value.percentage is not None:
        if value.percentage.fraction < 0 or (value.percentage.fraction > 1 and not reclaim):
            raise ConfigurationError(f"{field}: {name}: must be between 0% and 100%, but it was {_shown(text)}")
    elif value.quantity is not None and (value.quantity < 0 or (value.quantity == 0 and not reclaim)):
        hint = "must not be negative" if reclaim else "must be above 0 (0% switches the signal off)"
        raise ConfigurationError(f"{field}: {name}: {hint}, but it was {_shown(text)}")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def parse_pairs(field: str, text: str, operator: str) -> dict[str, str]:
    """The flag form `signal<value,signal<value` (`=` for minimum reclaim). Raises ConfigurationError."""
    pairs: dict[str, str] = {}
    for statement in filter(None, text.split(",")):
        name, found, value = (part.strip() for part in statement.partition(operator))
        if not found or not name or not value:
            raise ConfigurationError(
                f"--{field}: {_shown(statement)} is not of the form signal{operator}value, "
                f"for example nodefs.available{operator}10%"
            )
        pairs[name] = value
    return pairs
