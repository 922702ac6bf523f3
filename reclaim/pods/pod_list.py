"""Parses the kubelet's pod list, the answer to `GET /pods`, into a state for each pod.

The answer is a v1 PodList (`pkg/kubelet/server/server.go`, encodePods; `items` is null when there are none). An answer
that is incomplete or malformed anywhere is refused as a whole: the missing pods of half a list would count as gone.

What the list proves:

* *deleted*: `metadata.deletionTimestamp` is set.
* *evicted*: phase Failed with reason Evicted (`pkg/kubelet/eviction/helpers.go`, PodIsEvicted).
* *terminated*: phase Succeeded or Failed, which is final, and no container of any kind runs. The kubelet reports a
  final phase only once all containers have stopped (`pkg/kubelet/status/status_manager.go`, mergePodStatus). The
  containers are checked nevertheless: older kubelets report Failed for an evicted pod while they stop it, and a
  controller may write that phase for any pod. A container that waits but has run before counts as running.
* Aliases: a static pod's mirror in the API has another UID; the annotations `kubernetes.io/config.hash` and
  `kubernetes.io/config.mirror` name the static one, which is the one that containers carry
  (`pkg/kubelet/config/common.go`, applyDefaults; `pkg/kubelet/pod/mirror_client.go`). A UID in such an
  annotation exists, and nothing more follows: whoever creates a pod writes its annotations, so they never prove that
  another pod has terminated.
* *static*: of another source than the API server, by the annotation that the kubelet writes on every pod
  (`pkg/kubelet/types/pod_update.go`, IsStaticPod).
* *from_api_server*, that the API server has delivered its pods: only if one of them is listed. Right after a start the
  kubelet answers with static pods only, or with none (kubernetes/kubernetes#112119).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reclaim.pods.states import PodState
from reclaim.types import ReclaimError

CONFIG_SOURCE = "kubernetes.io/config.source"  # written by the kubelet on every pod (pkg/kubelet/config/config.go)
API_SERVER = "api"
ALIASES = ("kubernetes.io/config.hash", "kubernetes.io/config.mirror")
CONTAINER_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
STATES = ("running", "terminated", "waiting")
MOST_VALUES = 3_000_000  # 500 pods of 20 KiB hold below a million; each costs up to 100 bytes of memory and 0.3 µs
FINAL_PHASES = frozenset({"Succeeded", "Failed"})


class PodListError(ReclaimError):
    """An answer that is not a complete, well-formed v1 PodList. The message says where, and quotes no value."""


@dataclass(frozen=True, slots=True)
class PodList:
    """The pods that the kubelet knows, by UID and alias. `from_api_server`: at least one came from the API server."""

    states: Mapping[str, PodState]
    from_api_server: bool = False


def parse_pod_list(body: bytes) -> PodList:
    """The pods in an answer to `GET /pods`. Raises PodListError, and nothing else, for anything that is not one."""
    import json

    if sum(body.count(opening) for opening in (b",", b"{", b"[")) > MOST_VALUES:
        raise PodListError("it is too large to be a list of pods")
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError, MemoryError) as error:
        raise PodListError("it is not JSON, or cut short") from error
    top = _object(document, "it")
    if top.get("kind") != "PodList" or top.get("apiVersion") != "v1":
        raise PodListError("it is not a v1 PodList")
    if "items" not in top:
        raise PodListError("it has no items")
    if _text(_object(top.get("metadata"), "metadata"), "continue", "metadata"):
        raise PodListError("it is only a part of the list")
    own: dict[str, PodState] = {}
    aliases: dict[str, PodState] = {}
    from_api_server = False
    for where, item in _objects(top, "items", "it"):
        if item.get("kind", "Pod") != "Pod":
            raise PodListError(f"{where} is not a Pod")
        metadata = _object(item.get("metadata"), f"{where}.metadata")
        uid = _text(metadata, "uid", f"{where}.metadata")
        if not uid:
            raise PodListError(f"{where} has no metadata.uid")
        annotations = _object(metadata.get("annotations"), f"{where}.metadata.annotations")
        named = [_text(annotations, key, f"{where}.metadata.annotations") for key in ALIASES]
        aliases |= {alias: PodState() for alias in named if alias}
        source = _text(annotations, CONFIG_SOURCE, f"{where}.metadata.annotations")
        from_api_server |= source == API_SERVER
        state = replace(_state(metadata, item, where), static=source not in ("", API_SERVER))
        own[uid] = _may_still_run(own.get(uid, state), state)
    return PodList({**aliases, **own}, from_api_server)


def _state(metadata: Mapping[str, Any], item: Mapping[str, Any], where: str) -> PodState:
    status = _object(item.get("status"), f"{where}.status")
    phase = _text(status, "phase", f"{where}.status")
    reason = _text(status, "reason", f"{where}.status")
    may_run = [
        _may_run(container, at)
        for kind in CONTAINER_STATUSES
        for at, container in _objects(status, kind, f"{where}.status")
    ]
    return PodState(
        terminated=phase in FINAL_PHASES and not any(may_run),
        deleted=bool(_text(metadata, "deletionTimestamp", f"{where}.metadata")),
        evicted=phase == "Failed" and reason == "Evicted",
    )


def _may_run(container: Mapping[str, Any], where: str) -> bool:
    """Whether a container runs, or waits after it has run before. Without any state it waits."""
    state = _object(container.get("state"), f"{where}.state")
    for name in STATES:
        _object(state.get(name), f"{where}.state.{name}")
    running, ended = (state.get(name) is not None for name in ("running", "terminated"))
    last = _object(container.get("lastState"), f"{where}.lastState")
    restarts, started = container.get("restartCount"), container.get("started")
    if restarts is not None and type(restarts) is not int:
        raise PodListError(f"{where}.restartCount is not a number")
    if started is not None and not isinstance(started, bool):
        raise PodListError(f"{where}.started is not true or false")
    has_run = any((last, restarts, _text(container, "containerID", where), started))
    return running or (has_run and not ended)


def _may_still_run(one: PodState, other: PodState) -> PodState:
    """The state of a UID that is listed twice: only what both entries agree on."""
    return PodState(
        terminated=one.terminated and other.terminated,
        deleted=one.deleted and other.deleted,
        evicted=one.evicted and other.evicted,
        static=one.static or other.static,
    )


def _object(value: object, where: str) -> Mapping[str, Any]:
    """The value if it is an object; a missing value or null becomes an empty one. Raises PodListError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PodListError(f"{where} is not an object")
    return value


def _text(value: Mapping[str, Any], key: str, where: str) -> str:
    """The text at a key; a missing one or null becomes the empty text. Raises PodListError."""
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise PodListError(f"{where}.{key} is not a text")
    return text


def _objects(value: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of the list at a key, each with its path; a missing list or null is empty. Raises PodListError."""
    listed = value.get(key)
    if listed is None:
        return
    if not isinstance(listed, list):
        raise PodListError(f"{where}.{key} is not a list")
    for index, each in enumerate(listed):
        at = f"{key}[{index}]" if where == "it" else f"{where}.{key}[{index}]"
        if not isinstance(each, dict):
            raise PodListError(f"{at} is not an object")
        yield at, each
