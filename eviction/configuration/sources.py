"""The sources of a configuration: files, drop-ins, the environment, flags, the kubelet.

Covers: reading each source, the effect of a null in a later one, and which source a value comes from. Does not cover:
what the values mean (`effective`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eviction.configuration.kubelet import drop_ins
from eviction.configuration.strict_yaml import ConfigurationError, read_document_of
from eviction.types import API_VERSION
from signals.quantity import QuantityError, parse_duration

KIND = "ReclaimdConfiguration"
DEFAULT = "default"  # the origin of a value that no source has
_BESIDE = {
    "imageGCLowThresholdPercent": "imageGCHighThresholdPercent",
    "imageMaximumGCAge": "imageMinimumGCAge",
    "pollFloor": "pollCeiling",
}  # fields that must agree with another one


@dataclass(frozen=True, slots=True)
class Source:
    """One source of values, and its name in messages."""

    name: str
    document: Mapping[str, Any]


class Origins:
    """Which source each value comes from. `sources`: the first is overridden by the later ones."""

    def __init__(self, sources: Sequence[Source]):
        self._sources = sources

    def of(self, name: str, key: str | None = None) -> str:
        """The name of the last source that has a field, or a key of a map; DEFAULT if none has."""
        for source in reversed(self._sources):
            value = source.document.get(name)
            if value is not None and (key is None or (isinstance(value, Mapping) and key in value)):
                return source.name
        return DEFAULT

    def error(self, name: str, problem: str, key: str | None = None) -> ConfigurationError:
        """The error about a field: its source, its name, and `problem`, the end of the sentence.

        A default is wrong only beside another field: then the source of that one is named.
        """
        source = self.of(name, key)
        if source == DEFAULT and name in _BESIDE:
            source = self.of(_BESIDE[name])
        return ConfigurationError(f"{source}: {name}: {problem}")


def own_sources(path: str | None, directory: str | None) -> list[Source]:
    """The file, then the drop-ins in the order of their names. Raises ConfigurationError."""
    try:
        files = [path] if path is not None else []
        files += drop_ins(directory) if directory is not None else []
        return [Source(name, read_document_of(API_VERSION, KIND, name)) for name in files]
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be read: {error.strerror}") from None


def apply_nulls(sources: list[Source]) -> list[Source]:
    """The sources without their nulls, and without the values that a null in a later source removes."""

    def remaining(document: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: remaining(value, later[key])
            if isinstance(value, Mapping) and isinstance(later.get(key), Mapping)
            else value
            for key, value in document.items()
            if value is not None and later.get(key, value) is not None
        }

    documents = [source.document for source in sources]
    for number in range(len(documents)):
        for later in (documents[number], *documents[number + 1 :]):
            documents[number] = remaining(documents[number], later)
    return [Source(source.name, document) for source, document in zip(sources, documents, strict=True)]


def zero_means_unset(source: Source) -> Source:
    """The source; a transition period of 0 counts as not set, as in the kubelet (`pkg/kubelet/apis/config/v1beta1`)."""
    text = source.document.get("evictionPressureTransitionPeriod")
    try:
        if not isinstance(text, str) or parse_duration(text) != 0:
            return source
    except QuantityError:
        return source  # refused when it is parsed
    return Source(source.name, {**source.document, "evictionPressureTransitionPeriod": None})


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The fields that environment variables set; an empty variable counts as not set."""
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
