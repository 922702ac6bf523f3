"""Asks the kubelet for its pods at its own socket: root needs neither TLS nor a token.

The kubelet listens at `<root-dir>/pods-api/pods-api.sock` with the feature gate PodsAPI (KEP-4188;
alpha and off in Kubernetes 1.36, beta and on in 1.37). Source: `pkg/kubelet/kubelet.go`
(ListenAndServePods), `pkg/kubelet/apis/pods/server.go`.

* `ListPods` answers with all pods in one message, each as the bytes of a v1.Pod: no mask of fields,
  no pages. They are the pods of `GET /pods`. In 1.36, right after the kubelet's start, this list is
  as incomplete as that one, and does not say so either (`evidence.kubelet_pods`). From 1.37 on, the
  kubelet answers FAILED_PRECONDITION until all its sources of pods are ready (validateReady), so
  that a list proves that they are.
* It answers RESOURCE_EXHAUSTED to more than a hundred calls a second
  (`pkg/kubelet/apis/grpc/ratelimit.go`). Both statuses mean *again, here*: another way may have a
  list, but an incomplete one.
* A pod's status is the kubelet's newest, which the API server may not have yet. An
  evicted pod already has phase Failed while its containers are being stopped;
  `pod_list` looks at the containers.
* Whoever may write the directory could listen in the kubelet's place. Owner and mode of the socket,
  and of every directory above it, are checked before each call, as for the runtime's.
* The answer becomes the JSON of `GET /pods` with the fields in `pods.proto`:
  one parser reads both lists.
"""

import json
from contextlib import closing
from typing import Any

from google.protobuf.json_format import MessageToDict

from reclaim.cri.channel import Channel
from reclaim.cri.convert import entries
from reclaim.cri.status import CallError, Code, parsed
from reclaim.evidence.pod_list import ALL_SOURCES, KubeletLate, NotYet, WayRefused
from reclaim.kubelet import pods_pb2 as pb
from reclaim.trust import socket_refusal

LIST_PODS = "/v1alpha1.Pods/ListPods"
LARGEST_LIST_BYTES = 16 * 1024 * 1024  # 500 pods of 20 KiB are 10 MiB
LONGEST_DETAILS = 200  # characters of the kubelet's error text
# the details; a list that is too large for us has the same code
RATE_LIMITED = "rejected by rate limit"
EMBEDDED = (("volumes", "volumeSource"), ("ephemeralContainers", "ephemeralContainerCommon"))


def list_pods(path: str, seconds: float, all_sources: bool) -> bytes:
    """The kubelet's pods as a v1 PodList in JSON, after at most `seconds`.

    `path`: of its socket. `all_sources`: whether this kubelet answers only with the pods of all
    sources, which the list then says.

    Raises only KubeletLate, NotYet, or WayRefused, as another way may work where this version of
    the API is not served, or nobody listens any more.
    """
    kubelet = f"the kubelet at unix://{path}"
    if (refusal := socket_refusal(path)) is not None:
        raise WayRefused(f"{kubelet} is not asked: the socket is not trusted: {refusal}")
    try:
        with closing(Channel(path, seconds)) as channel:
            answer = channel.unary(LIST_PODS, b"", seconds)
        return pod_list_of(answer, all_sources)
    except CallError as error:
        why = f"{error.code.name}: {error.details[:LONGEST_DETAILS]}"
        if error.code is Code.DEADLINE_EXCEEDED:
            raise KubeletLate(f"{kubelet} gave no complete answer within {seconds:g} s") from None
        if error.code is Code.FAILED_PRECONDITION or error.details == RATE_LIMITED:
            raise NotYet(f"{kubelet} gave no list yet: {why}") from None
        raise WayRefused(f"{kubelet} gave no list: {why}") from None


def pod_list_of(answer: bytes | bytearray, all_sources: bool = False) -> bytes:
    """The answer to ListPods as a v1 PodList in JSON. Raises CallError."""
    if len(answer) > LARGEST_LIST_BYTES:
        raise CallError(
            Code.RESOURCE_EXHAUSTED, f"it is longer than {LARGEST_LIST_BYTES >> 20} MiB"
        )
    items = ", ".join(map(_item, entries(answer)))
    says = f'"{ALL_SOURCES}": {json.dumps(all_sources)}'
    return f'{{"kind": "PodList", "apiVersion": "v1", {says}, "items": [{items}]}}'.encode()


def _item(entry: bytes) -> str:
    """A pod in JSON. Raises CallError."""
    pod: dict[str, Any] = MessageToDict(parsed(pb.Pod, entry))
    spec = pod.get("spec", {})
    for kind, embedded in EMBEDDED:  # in JSON, their fields are those of the entry
        for entry_of_kind in spec.get(kind, ()):
            entry_of_kind.update(entry_of_kind.pop(embedded, {}))
    return json.dumps(pod)
