"""Writes pods as the kubelet's Pods API does: protobuf by Kubernetes' own field numbers,
from the JSON of a v1.Pod.

Independent of `pods.proto`. Like Kubernetes' encoder, it also writes fields that are empty.

Source: staging/src/k8s.io/api/core/v1/generated.proto of Kubernetes 1.36.
"""

from collections.abc import Mapping
from typing import Any

import yaml

POD = "Pod"
# by message: each field's number, and what it is if it is a message itself; `inline`: a message whose
# fields stand in the JSON of the outer one
MESSAGES: dict[str, dict[str, str | int]] = yaml.safe_load("""
    Pod: {metadata: 1 ObjectMeta, spec: 2 PodSpec, status: 3 PodStatus}
    ObjectMeta: {name: 1, uid: 5, deletionTimestamp: 9 Time, labels: 11 map, annotations: 12 map}
    PodSpec:
      volumes: 1 Volume
      containers: 2 Container
      restartPolicy: 3
      initContainers: 20 Container
      ephemeralContainers: 34 EphemeralContainer
    Volume: {name: 1, inline: 2 VolumeSource}
    VolumeSource: {image: 30 ImageVolumeSource}
    ImageVolumeSource: {reference: 1, pullPolicy: 2}
    EphemeralContainer: {inline: 1 Container}
    Container: {name: 1, image: 2, command: 3}
    PodStatus:
      phase: 1
      message: 3
      reason: 4
      containerStatuses: 8 ContainerStatus
      initContainerStatuses: 10 ContainerStatus
      ephemeralContainerStatuses: 13 ContainerStatus
    ContainerStatus:
      name: 1
      state: 2 ContainerState
      lastState: 3 ContainerState
      ready: 4
      restartCount: 5
      image: 6
      imageID: 7
      containerID: 8
      started: 9
    ContainerState: {waiting: 1 Waiting, running: 2 Running, terminated: 3 Terminated}
    Waiting: {reason: 1}
    Running: {startedAt: 1 Time}
    Terminated: {exitCode: 1, reason: 3}
    Time: {seconds: 1}
""")
A_TIME = {"seconds": 1_700_000_000}  # whichever the JSON says


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


def message(document: Mapping[str, Any], kind: str) -> bytes:
    """The fields of a message that the document has, of those that are known here."""
    written = b""
    for name, field in MESSAGES[kind].items():
        number, _, of = str(field).partition(" ")
        value = document if name == "inline" else document.get(name)
        for each in value if isinstance(value, list) else [value]:
            written += b"" if each is None else _field(int(number), of, each)
    return written


def _field(number: int, of: str, value: Any) -> bytes:
    if of == "map":  # a list of keys and values
        pairs = (sized(1, key.encode()) + sized(2, text.encode()) for key, text in value.items())
        return b"".join(sized(number, pair) for pair in pairs)
    if of:
        return sized(number, message(A_TIME if of == "Time" else value, of))
    if isinstance(value, str):
        return sized(number, value.encode())
    return varint(number << 3) + varint(int(value))
