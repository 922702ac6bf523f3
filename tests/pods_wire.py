"""Writes pods as the kubelet's Pods API does: protobuf by Kubernetes' own field numbers,
from the JSON of a v1.Pod.

Independent of `pods.proto`. Like Kubernetes' encoder, it also writes fields that are empty.

Source: staging/src/k8s.io/api/core/v1/generated.proto of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

POD: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
IMAGE_SOURCE = 30  # the place of `image` in VolumeSource


def varint(value: int) -> bytes:
    """A number of any size; a negative one as 64 bits."""
    value &= 2**64 - 1
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def sized(number: int, content: bytes) -> bytes:
    """A field that says how long it is."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def pods_answer(*pods: Mapping[str, Any]) -> bytes:
    """A ListPodsResponse."""
    return b"".join(sized(1, message(pod, POD)) for pod in pods)


def message(document: Mapping[str, Any], fields: Mapping[str, Any]) -> bytes:
    """The fields of a message that the document has, of those that are known here."""
    written = b""
    for name, value in document.items():
        if value is None or name not in fields:
            continue
        number, *kind = fields[name]
        for each in value if isinstance(value, list) else [value]:
            written += _field(name, number, kind[0] if kind else {}, each)
    return written


def _field(name: str, number: int, kind: Any, value: Any) -> bytes:
    if name == "deletionTimestamp":
        value = {"seconds": 1_700_000_000}
    match value:
        case Mapping() if kind == "texts":  # a map is a list of keys and values
            return b"".join(
                sized(number, sized(1, key.encode()) + sized(2, text.encode()))
                for key, text in value.items()
            )
        case Mapping() if name == "ephemeralContainers":  # embedded in EphemeralContainer
            return sized(number, sized(1, message(value, kind)))
        case Mapping() if name == "image":  # embedded in Volume
            return sized(number, sized(IMAGE_SOURCE, message(value, kind)))
        case Mapping():
            return sized(
                number,
                message({key: each for key, each in value.items() if key != "startedAt"}, kind),
            )
        case str():
            return sized(number, value.encode())
    return varint(number << 3) + varint(int(value))
