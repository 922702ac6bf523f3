"""CRI v1 over a unix socket: our own small client.

* Endpoints are `unix:///path` or a plain path, as for the kubelet. A lost runtime is tried again with the next call.
* Answers may be large: 4 MiB, the default of gRPC's libraries, ends at about 4 000 containers. Where the runtime itself
  cannot send a list in one message (containerd's own limit is 16 MiB, about 15 000 containers) the list's streaming
  twin is asked, which newer runtimes have (KEP-5825). It is not asked first: a message for each entry costs more than
  one for all.
* Before each call the socket is looked at: one that others than root or our own user could have put there is not spoken
  to. Two `stat`s a call also see what a runtime, or somebody else, put there since.
* Reads have a deadline. **Removals have none**: a deadline would cancel the call inside the runtime, and an
  interrupted RemoveImage leaves a record behind that pins its bytes (containerd/containerd#13875).

Source of the wire format: `cri.proto` beside this file. The types of the messages do not leave here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from reclaim.cri.channel import Channel
from reclaim.cri.convert import (
    UID_LABEL,
    container_of,
    container_status_of,
    each_once,
    image_of,
    pod_sandbox_status_of,
    sandbox_of,
    text_in_json,
)
from reclaim.cri.entry_cache import KnownEntries
from reclaim.cri.list_entries import MalformedList, entries
from reclaim.cri.messages import DecodeError, pb
from reclaim.cri.status import CallError, Code
from reclaim.services import NO_STATUS, ContainerStatus, ImageFsInfo, PodSandboxStatus, RuntimeVersion
from reclaim.trust import socket_refusal
from reclaim.types import (
    Container,
    Image,
    PodSandbox,
    ReclaimError,
    RemovalFailed,
    RuntimeUnavailable,
)

READ_DEADLINE_SECONDS = 10.0
LONGEST_WORDS = 1000  # of a runtime's own text in an error: it is told for each object, in logs and records

_RUNTIME = "/runtime.v1.RuntimeService/"
_IMAGE = "/runtime.v1.ImageService/"

CallObserver = Callable[[str, float, bool], None]
"""Told of every call when it has ended: its name (`ListImages`), seconds, and whether it failed. NOT_FOUND is an
answer, not a failure: it is what is hoped for after a removal."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class EndpointError(ReclaimError, ValueError):
    """An endpoint that is not a unix socket path. The message names it and the allowed form."""


def socket_path(endpoint: str) -> str:
    """The path of the socket that an endpoint names. Raises EndpointError."""
    path = endpoint.removeprefix("unix://") if endpoint.startswith("unix://") else endpoint
    if not path.startswith("/") or "\0" in path or len(path.encode(errors="surrogateescape")) > 107:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r} is not a unix socket: allowed is unix:///path/to.sock "
            "with an absolute path of at most 107 bytes"
        )
    return path


class CriClient:
    """RuntimeService and ImageService of a container runtime, over one or two sockets.

    Making a client connects to nothing; the first call does. All methods may be called from any thread.
    """

    def __init__(
        self,
        runtime_endpoint: str,
        image_endpoint: str = "",
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
    ):
        runtime_path = socket_path(runtime_endpoint)
        image_path = socket_path(image_endpoint or runtime_endpoint)
        self.endpoint = f"unix://{runtime_path}"
        self._paths = {_RUNTIME: runtime_path, _IMAGE: image_path}
        self.on_call: CallObserver = lambda *_: None
        self._deadline = read_deadline_seconds
        self._runtime_channel = Channel(runtime_path)
        self._image_channel = self._runtime_channel if image_path == runtime_path else Channel(image_path)
        self._containers = KnownEntries(lambda entry: container_of(pb.Container.FromString(entry)))
        self._pod_sandboxes = KnownEntries(lambda entry: sandbox_of(pb.PodSandbox.FromString(entry)))
        self._images = KnownEntries(lambda entry: image_of(pb.Image.FromString(entry)))

    def close(self) -> None:
        """Closes the connections. A removal in flight would be cancelled: drain first."""
        self._runtime_channel.close()
        self._image_channel.close()

    # ---- RuntimeService

    def version(self) -> RuntimeVersion:
        """Name and version of the runtime."""
        answer = self._read(_RUNTIME + "Version", pb.VersionRequest(), pb.VersionResponse)
        return RuntimeVersion(answer.runtime_name, answer.runtime_version)

    def sandbox_image(self) -> str | None:
        """The configured sandbox image: key `sandboxImage` of the verbose status (containerd)."""
        answer = self._read(_RUNTIME + "Status", pb.StatusRequest(verbose=True), pb.StatusResponse)
        return text_in_json(answer.info, "config", "sandboxImage")

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> tuple[Container, ...]:
        """All containers; of one sandbox (whole id) or one pod when named."""
        labels = {UID_LABEL: pod_uid} if pod_uid else {}
        wanted = pb.ContainerFilter(pod_sandbox_id=sandbox_id, label_selector=labels)
        request = pb.ListContainersRequest(filter=wanted)
        whole = not sandbox_id and not pod_uid
        listed = self._list(_RUNTIME + "ListContainers", "StreamContainers", request, self._containers, whole=whole)
        return each_once(listed, "a container")

    def list_pod_sandboxes(self) -> tuple[PodSandbox, ...]:
        """All sandboxes."""
        request = pb.ListPodSandboxRequest()
        listed = self._list(_RUNTIME + "ListPodSandbox", "StreamPodSandboxes", request, self._pod_sandboxes)
        return each_once(listed, "a sandbox")

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """The sandbox as it is now, None when NOT_FOUND or when another one answers to its id."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        answer = self._find(_RUNTIME + "PodSandboxStatus", request, pb.PodSandboxStatusResponse)
        if answer is None:
            return None
        if not answer.status.id:
            raise RuntimeUnavailable(f"{self.endpoint}: PodSandboxStatus was answered without a status")
        return pod_sandbox_status_of(answer.status) if answer.status.id == sandbox_id else None

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now, None when NOT_FOUND; an answer without a status has no id and no known state."""
        request = pb.ContainerStatusRequest(container_id=container_id)
        answer = self._find(_RUNTIME + "ContainerStatus", request, pb.ContainerStatusResponse)
        if answer is None:
            return None
        return container_status_of(answer.status) if answer.HasField("status") else NO_STATUS

    def image_of_sandbox(self, sandbox_id: str) -> str | None:
        """What the verbose status says under `image` (containerd)."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        answer = self._find(_RUNTIME + "PodSandboxStatus", request, pb.PodSandboxStatusResponse)
        return None if answer is None else text_in_json(answer.info, "info", "image")

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """StopContainer, without a deadline of ours."""
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace_seconds)
        self._remove(_RUNTIME + "StopContainer", request, pb.StopContainerResponse)

    def remove_container(self, container_id: str) -> bool:
        """RemoveContainer, without a deadline."""
        request = pb.RemoveContainerRequest(container_id=container_id)
        return self._remove(_RUNTIME + "RemoveContainer", request, pb.RemoveContainerResponse)

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """StopPodSandbox, without a deadline."""
        request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        self._remove(_RUNTIME + "StopPodSandbox", request, pb.StopPodSandboxResponse)

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """RemovePodSandbox, without a deadline."""
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        return self._remove(_RUNTIME + "RemovePodSandbox", request, pb.RemovePodSandboxResponse)

    def writable_layers(self) -> dict[str, int]:
        """Bytes of writable layers, from ListContainerStats."""
        request = pb.ListContainerStatsRequest()
        answer = self._read(_RUNTIME + "ListContainerStats", request, pb.ListContainerStatsResponse)
        known = (stats for stats in answer.stats if stats.writable_layer.HasField("used_bytes"))
        return {stats.attributes.id: stats.writable_layer.used_bytes.value for stats in known}

    # ---- ImageService

    def list_images(self) -> tuple[Image, ...]:
        """All images."""
        return tuple(self._list(_IMAGE + "ListImages", "StreamImages", pb.ListImagesRequest(), self._images))

    def image_status(self, reference: str) -> Image | None:
        """The image that the runtime finds for `reference`; an answer without an image means that it has none."""
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        answer = self._find(_IMAGE + "ImageStatus", request, pb.ImageStatusResponse)
        return image_of(answer.image) if answer is not None and answer.HasField("image") else None

    def remove_image(self, image_id: str) -> bool:
        """RemoveImage by id, without a deadline."""
        request = pb.RemoveImageRequest(image=pb.ImageSpec(image=image_id))
        return self._remove(_IMAGE + "RemoveImage", request, pb.RemoveImageResponse)

    def image_fs_info(self) -> ImageFsInfo:
        """The paths that the runtime reports."""
        answer = self._read(_IMAGE + "ImageFsInfo", pb.ImageFsInfoRequest(), pb.ImageFsInfoResponse)
        used = [usage.used_bytes.value for usage in answer.image_filesystems if usage.HasField("used_bytes")]
        return ImageFsInfo(
            tuple(usage.fs_id.mountpoint for usage in answer.image_filesystems),
            tuple(usage.fs_id.mountpoint for usage in answer.container_filesystems),
            used[0] if used else None,
        )

    # ---- calls

    def _refusal(self, method: str) -> str | None:
        """The sentence why the socket of this method is not spoken to; None: it may be."""
        path = self._paths[_IMAGE if method.startswith(_IMAGE) else _RUNTIME]
        refusal = socket_refusal(path)
        return None if refusal is None else f"the socket unix://{path} is not trusted: {refusal}"

    def _channel(self, method: str) -> Channel:
        return self._image_channel if method.startswith(_IMAGE) else self._runtime_channel

    def _call(self, method: str, request: Any, read: Callable[[bytes], Answer], deadline: float | None) -> Answer:
        began, failed = time.monotonic(), True
        try:
            answer = read(self._channel(method).unary(method, request.SerializeToString(), deadline))
            failed = False
        except CallError as error:
            failed = error.code is not Code.NOT_FOUND
            raise
        except DecodeError as error:
            raise CallError(Code.INTERNAL, f"the answer cannot be read: {error}") from error
        finally:
            self.on_call(_short(method), time.monotonic() - began, failed)
        return answer

    def _read(self, method: str, request: Any, answer_type: type[Answer]) -> Answer:
        answer = self._find(method, request, answer_type)
        if answer is None:
            raise self._not_found(method)
        return answer

    def _find(self, method: str, request: Any, answer_type: type[Answer]) -> Answer | None:
        self._check(method)
        try:
            return self._call(method, request, reader(answer_type), self._deadline)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return None
            raise self._unavailable(method, error) from error

    def _list(
        self, method: str, stream: str, request: Any, known: KnownEntries[Answer], *, whole: bool = True
    ) -> Iterator[Answer]:
        """The entries of a list that is complete, one at a time. Raises RuntimeUnavailable, also while it is read."""
        try:
            messages = self._messages_of_list(method, stream, request)
            yield from known.values((entry for message in messages for entry in entries(message)), whole=whole)
        except (MalformedList, DecodeError) as error:
            raise RuntimeUnavailable(f"{self.endpoint}: {_short(method)} cannot be read: {error}") from error

    def _messages_of_list(self, method: str, stream: str, request: Any) -> Iterable[bytes]:
        """One message with everything; where that is too large, many. Whoever stops reading has no list."""
        self._check(method)
        try:
            return (self._call(method, request, bytes, self._deadline),)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                raise self._not_found(method) from error
            unavailable = self._unavailable(method, error)
            if error.code is not Code.RESOURCE_EXHAUSTED:
                raise unavailable from error
        return self._stream(f"{method.rpartition('/')[0]}/{stream}", request, unavailable)

    def _stream(self, method: str, request: Any, otherwise: RuntimeUnavailable) -> Iterator[bytes]:
        """All messages of a stream; `otherwise` is raised where the runtime has no such method."""
        began, failed = time.monotonic(), True
        try:
            yield from self._channel(method).stream(method, request.SerializeToString(), self._deadline)
            failed = False
        except CallError as error:
            if error.code is Code.UNIMPLEMENTED:
                raise otherwise from error
            raise self._unavailable(method, error) from error
        finally:
            self.on_call(_short(method), time.monotonic() - began, failed)

    def _check(self, method: str) -> None:
        if (refusal := self._refusal(method)) is not None:
            raise RuntimeUnavailable(refusal)

    def _not_found(self, method: str) -> RuntimeUnavailable:
        return RuntimeUnavailable(f"{self.endpoint}: {_short(method)} answered NOT_FOUND")

    def _unavailable(self, method: str, error: CallError) -> RuntimeUnavailable:
        transient = error.code is Code.UNAVAILABLE
        if error.code is Code.DEADLINE_EXCEEDED:
            sentence = f"{_short(method)} was not answered within {self._deadline:g} s"
        else:
            sentence = self._sentence(method, error)
        return RuntimeUnavailable(f"{self.endpoint}: {sentence}", transient=transient)

    def _remove(self, method: str, request: Any, answer_type: type[Any]) -> bool:
        if (refusal := self._refusal(method)) is not None:
            raise RemovalFailed(refusal)
        try:
            self._call(method, request, reader(answer_type), None)
        except CallError as error:
            if error.code is not Code.NOT_FOUND:
                raise RemovalFailed(self._sentence(method, error)) from error
            return False
        return True

    def _sentence(self, method: str, error: CallError) -> str:
        name, details = _short(method), error.details[:LONGEST_WORDS]
        match error.code:
            case Code.UNIMPLEMENTED:
                return f"{name} is not implemented: what answers there does not speak CRI v1"
            case Code.UNAVAILABLE:
                return f"no connection for {name}: {details}"
            case code:
                return f"{name} failed with {code.name}: {details}"


def reader(message_type: type[Answer]) -> Callable[[bytes], Answer]:
    """What makes a message of this class from bytes."""
    read: Callable[[bytes], Answer] = message_type.FromString  # type: ignore[attr-defined] # every message has it
    return read


def _short(method: str) -> str:
    return method.rpartition("/")[2]
