"""Where the values of a configuration come from: files, drop-ins, the environment, flags, the kubelet.

Covers: reading each source by itself, and what a null in a later one takes away. Does not cover: what the values mean
(`configuration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eviction.configuration.kubelet import KubeletConfiguration, drop_ins
from eviction.configuration.strict_yaml import DocumentError, read_document, shown
from eviction.types import EvictionError
from signals.quantity import QuantityError, parse_duration

API_VERSION = "reclaimd.io/v1alpha1"
KIND = "ReclaimdConfiguration"


class ConfigurationError(EvictionError):
    """A configuration that is refused. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source of values, and how it is named to people."""

    name: str
    document: Mapping[str, Any]


def own_sources(path: str | None, directory: str | None) -> list[Source]:
    """The file, then the drop-ins in the order of their names. Raises ConfigurationError."""
    sources: list[Source] = []
    try:
        files = [path] if path is not None else []
        files += drop_ins(directory) if directory is not None else []
        for name in files:
            document = read_document(name)
            for key, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
                if document.get(key) != allowed:
                    raise ConfigurationError(
                        f"{name}: {key} must be {allowed!r}, but it was {shown(document.get(key))}"
                    )
            sources.append(Source(name, document))
    except DocumentError as error:
        raise ConfigurationError(str(error)) from None
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be read: {error.strerror}") from None
    return sources


def without_what_is_taken_away(sources: list[Source]) -> list[Source]:
    """The sources without their nulls, and without what a null in a later one takes away: it has no origin any more."""

    def left(document: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: left(value, later[key])
            if isinstance(value, Mapping) and isinstance(later.get(key), Mapping)
            else value
            for key, value in document.items()
            if value is not None and later.get(key, value) is not None
        }

    documents = [source.document for source in sources]
    for number in range(len(documents)):
        for later in (documents[number], *documents[number + 1 :]):
            documents[number] = left(documents[number], later)
    return [Source(source.name, document) for source, document in zip(sources, documents, strict=True)]


def with_0_as_not_set(source: Source) -> Source:
    """A transition period of 0 counts as not set, as in the kubelet (`pkg/kubelet/apis/config/v1beta1/defaults.go`)."""
    text = source.document.get("evictionPressureTransitionPeriod")
    try:
        if not isinstance(text, str) or parse_duration(text) != 0:
            return source
    except QuantityError:
        return source  # refused where it is read
    return Source(source.name, {**source.document, "evictionPressureTransitionPeriod": None})


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The fields that environment variables set; an empty variable says nothing."""
    variables = {
        "CONTAINER_RUNTIME_ENDPOINT": "containerRuntimeEndpoint",
        "IMAGE_SERVICE_ENDPOINT": "imageServiceEndpoint",
        "KUBELET_HEALTHZ_ENDPOINT": "kubeletHealthzEndpoint",
        "NODE_NAME": "nodeName",
    }
    return {name: environment[variable] for variable, name in variables.items() if environment.get(variable)}


def parse_pairs(flag: str, text: str, operator: str) -> dict[str, str]:
    """The flag form `signal<value,signal<value` (`=` for grace periods and minimum reclaim).

    Raises ConfigurationError.
    """
    pairs: dict[str, str] = {}
    for statement in filter(None, text.split(",")):
        name, found, value = (part.strip() for part in statement.partition(operator))
        if not found or not name or not value:
            shown = repr(statement if len(statement) <= 60 else statement[:60] + "…")
            raise ConfigurationError(
                f"--{flag}: {shown} is not of the form signal{operator}value, "
                f"for example nodefs.available{operator}{'1m30s' if 'grace' in flag else '10%'}"
            )
        pairs[name] = value
    return pairs


def inherited_from(kubelet: KubeletConfiguration) -> dict[str, Any]:
    """The fields that come from the kubelet unless our own sources say otherwise; maps are laid together later."""
    values: dict[str, Any] = {
        "evictionPressureTransitionPeriod": _duration(kubelet.transition_period_seconds),
        "imageMinimumGCAge": _duration(kubelet.image_minimum_gc_age_seconds),
        "imageMaximumGCAge": _duration(kubelet.image_maximum_gc_age_seconds),
        "imageGCHighThresholdPercent": kubelet.image_gc_high_threshold_percent,
        "imageGCLowThresholdPercent": kubelet.image_gc_low_threshold_percent,
        "containerRuntimeEndpoint": kubelet.runtime_endpoint,
        "imageServiceEndpoint": kubelet.image_endpoint,
        "podLogsDir": kubelet.pod_logs_dir,
    }
    return {name: value for name, value in values.items() if name in kubelet.written}


def _duration(seconds: float) -> str:
    """Seconds as Go reads them: no exponent, nothing finer than a nanosecond."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
