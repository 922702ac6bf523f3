"""Parses the kubelet's pod list, the answer to `GET /pods`, into a state for each pod.

`Field` reads the answer, a v1 PodList (`pkg/kubelet/server/server.go`, encodePods; `items` is null
if there are none), field by field, and trusts nothing. What is not in the expected form raises
KubeletAnswerError, whose message says where but quotes no value. An answer that is incomplete or
malformed anywhere is rejected as a whole: the pods missing from half a list would count as gone.

* *deleted*: `metadata.deletionTimestamp` is set.
* *evicted*: phase Failed with reason Evicted (`pkg/kubelet/eviction/helpers.go`, PodIsEvicted).
* *terminated*: phase Succeeded or Failed, which is final, and no container of any kind runs. A
  waiting container that has run before counts as running.
* *static*: from a source other than the API server, by the annotation that the kubelet writes on
  every pod (`pkg/kubelet/types/pod_update.go`, IsStaticPod).
* *images*: what a pod that has not terminated needs, whether or not a container has been made of
  it: the images of all containers in its spec and of its image volumes, and the ids in its
  container statuses. A pod that is being deleted still needs them.
* *from_api_server*: the API server has delivered its pods; true only if one of them is listed, or
  if the list comes from a kubelet that gives none before (`reclaim.kubelet.pods_api`). Right after
  a start, `GET /pods` answers with static pods only, or with none (kubernetes/kubernetes#112119).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from reclaim.evidence.states import PodState
from reclaim.types import ReclaimError

# 500 pods of 20 KiB hold less than a million; each costs up to 100 bytes of memory and 0.3 µs
MOST_VALUES = 3_000_000

# written by the kubelet on every pod (pkg/kubelet/config/config.go)
CONFIG_SOURCE = "kubernetes.io/config.source"
API_SERVER = "api"
# a field of ours: whether the kubelet gives a list only once all sources are ready
ALL_SOURCES = "allSources"
ALIASES = ("kubernetes.io/config.hash", "kubernetes.io/config.mirror")
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
CONTAINER_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
STATES = ("running", "terminated", "waiting")
FINAL_PHASES = frozenset({"Succeeded", "Failed"})

Value = TypeVar("Value")


class KubeletUnavailable(ReclaimError):
    """The kubelet gave no complete answer. The message is one sentence with a hint at what to
    check.
    """


class KubeletLate(KubeletUnavailable):
    """The deadline passed, so another request may take as long again."""


class WayRefused(KubeletUnavailable):
    """The identity was not accepted, or could not be used: another way may work."""


class NotYet(KubeletUnavailable):
    """The same request may succeed soon, and no other."""


class KubeletAnswerError(ReclaimError):
    """An answer not in the expected form. The message is a clause that says where."""


KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    bool: "true or false",
}


class Field(NamedTuple):
    """A value in an answer, and its path, which is empty for the whole answer.

    Missing values and null are the same: empty.
    """

    value: Any
    path: str = ""

    def read(self, kind: type[Value]) -> Value:
        """The value, or an empty one if there is none.

        Raises KubeletAnswerError unless it has exactly this type (a bool is not an int).
        """
        if self.value is None:
            return kind()
        if type(self.value) is not kind:
            raise self.error(f"is not {KINDS[kind]}")
        value: Value = self.value
        return value

    def get(self, key: str) -> "Field":
        """A field of an object."""
        return Field(self.read(dict).get(key), f"{self.path}.{key}" if self.path else key)

    def text(self, key: str) -> str:
        """A field of an object that is a text; empty if there is none."""
        return self.get(key).read(str)

    def elements(self, key: str) -> "Iterator[Field]":
        """The elements of a list in an object, none of which may be null."""
        values = self.get(key)
        for index, value in enumerate(values.read(list)):
            field = Field(value, f"{values.path}[{index}]")
            if value is None:
                raise field.error("is null")
            yield field

    def error(self, problem: str) -> KubeletAnswerError:
        """An error about this field."""
        return KubeletAnswerError(f"{self.path or 'it'} {problem}")


def _parsed(body: bytes) -> Field:
    """The answer as a field.

    Raises KubeletAnswerError, and nothing else, for anything that is not a JSON object.
    """
    import json

    if sum(body.count(opening) for opening in (b",", b"{", b"[")) > MOST_VALUES:
        raise KubeletAnswerError("it is too large")
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError, MemoryError) as error:
        raise KubeletAnswerError("it is not JSON, or cut short") from error
    if not isinstance(document, dict):
        raise KubeletAnswerError("it is not an object")
    return Field(document)


class PodList(NamedTuple):
    """The pods that the kubelet knows, by UID and alias.

    `from_api_server`: the API server has delivered its pods. `images`: what pods that have not
    terminated need, by UID; references as written.
    """

    states: Mapping[str, PodState]
    from_api_server: bool
    images: Mapping[str, frozenset[str]]


def parse_pod_list(body: bytes) -> PodList:
    """The pods in an answer to `GET /pods`.

    Raises KubeletAnswerError, and nothing else, if it is not such a list.
    """
    answer = _parsed(body)
    if answer.text("kind") != "PodList" or answer.text("apiVersion") != "v1":
        raise KubeletAnswerError("it is not a v1 PodList")
    if "items" not in answer.read(dict):
        raise KubeletAnswerError("it has no items")
    if answer.get("metadata").text("continue"):
        raise KubeletAnswerError("it is only a part of the list")
    own: dict[str, PodState] = {}
    aliases: dict[str, PodState] = {}
    images: dict[str, frozenset[str]] = {}
    from_api_server = answer.get(ALL_SOURCES).read(bool)
    for item in answer.elements("items"):
        if item.text("kind") not in ("", "Pod"):
            raise item.error("is not a Pod")
        metadata = item.get("metadata")
        status = item.get("status")
        uid = metadata.text("uid")
        if not uid:
            raise item.error("has no metadata.uid")
        annotations = metadata.get("annotations")
        # A static pod's mirror has another UID. Its annotations name the static pod's, which its
        # containers carry (`pkg/kubelet/config/common.go`, applyDefaults;
        # `pkg/kubelet/pod/mirror_client.go`). Whoever creates a pod writes its annotations, so they
        # never prove that another pod has terminated: such a UID exists, and that is all.
        aliases |= dict.fromkeys(filter(None, map(annotations.text, ALIASES)), PodState())
        source = annotations.text(CONFIG_SOURCE)
        from_api_server |= source == API_SERVER
        state = _state(metadata, status, static=source not in ("", API_SERVER))
        own[uid] = state.agreeing_with(own.get(uid, state))
        needed = frozenset(_images(item.get("spec"), status))
        if not state.terminated:
            images[uid] = images.get(uid, frozenset()) | needed
    return PodList({**aliases, **own}, from_api_server, images)


def _state(metadata: Field, status: Field, *, static: bool) -> PodState:
    phase = status.text("phase")
    reason = status.text("reason")
    # All are read: one that is not in the expected form makes the list unusable. The kubelet
    # reports a final phase only once all have stopped (`pkg/kubelet/status/status_manager.go`,
    # mergePodStatus). But older ones report Failed for an evicted pod while they stop it, and a
    # controller may write that phase for any pod.
    may_run = [
        _may_run(container) for kind in CONTAINER_STATUSES for container in status.elements(kind)
    ]
    return PodState(
        terminated=phase in FINAL_PHASES and not any(may_run),
        deleted=bool(metadata.text("deletionTimestamp")),
        evicted=phase == "Failed" and reason == "Evicted",
        static=static,
    )


def _images(spec: Field, status: Field) -> Iterator[str]:
    """The references of every image that a pod needs."""
    named = [
        *(container.text("image") for kind in CONTAINERS for container in spec.elements(kind)),
        *(volume.get("image").text("reference") for volume in spec.elements("volumes")),
        *(
            container.text("imageID")
            for kind in CONTAINER_STATUSES
            for container in status.elements(kind)
        ),
    ]
    # ids may begin with docker-pullable://
    return filter(None, (reference.rpartition("://")[2] for reference in named))


def _may_run(container: Field) -> bool:
    """Whether a container runs, or waits after having run before. Without any state, it waits."""
    state = container.get("state")
    for name in STATES:
        state.get(name).read(dict)  # may be empty, or missing
    has_run = (
        container.get("lastState").read(dict),
        container.get("restartCount").read(int),
        container.text("containerID"),
        container.get("started").read(bool),
    )
    if state.get("running").value is not None:
        return True
    return any(has_run) and state.get("terminated").value is None
