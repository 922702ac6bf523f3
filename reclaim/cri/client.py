"""Client for CRI v1 over unix sockets: its calls, returning values of `reclaim.types`.

* Endpoints are `unix:///path` or a plain path, as for the kubelet. After a lost connection,
  the next call reconnects.
* Responses may be large: 4 MiB, the default limit of gRPC's libraries, is reached at about 4 000
  containers. If the runtime cannot send a list in one message (containerd's limit is 16 MiB, about
  15 000 containers), the streaming variant of the call is used (KEP-5825; containerd 2.4, CRI-O
  1.36). It is not the first choice: older runtimes do not have it.
* The owner and mode of the socket are checked before each call: a socket that anyone but root or
  our own user could have put there is not used. Two `stat`s per call also detect a socket that was
  replaced since the last call.
* Reads have a deadline, and so do calls that only stop something, with the kubelet's deadline.
  **Removals have none**: a deadline would cancel the call inside the runtime, and an interrupted
  RemoveImage leaves a record behind that pins its bytes (containerd/containerd#13875).

Source of the wire format: `cri.proto` beside this file. The public methods return no message types.

Covers: which calls there are, and how they are made. Does not cover: what is taken from an answer
(`convert`), gRPC itself (`channel`).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.channel import LARGEST_MESSAGE_BYTES, Channel
from reclaim.cri.convert import (
    UID_LABEL,
    container_of,
    container_status_of,
    each_once,
    entries,
    image_of,
    pod_sandbox_status_of,
    sandbox_of,
    text_in_json,
)
from reclaim.cri.status import Answer, CallError, Code, Message, parsed
from reclaim.trust import socket_refusal
from reclaim.types import (
    NEVER,
    NO_STATUS,
    AnsweredLate,
    AnsweredWithError,
    ConnectionLost,
    Containers,
    ContainerStatus,
    Image,
    ImageFsInfo,
    Images,
    PodSandboxStatus,
    ReclaimError,
    RemovalFailed,
    RequestRefused,
    RuntimeUnavailable,
    RuntimeVersion,
    Sandboxes,
)

READ_DEADLINE_SECONDS = 10.0
# kubelet: runtimeRequestTimeout, to which it adds a container's grace period
STOP_DEADLINE_SECONDS = 120.0
# characters of the runtime's error text, which logs and records repeat for each object
LONGEST_DETAILS = 1000

# what these say holds for every other object too; any other code is an answer about what was asked
OF_THE_RUNTIME = (
    Code.CANCELLED,
    Code.DEADLINE_EXCEEDED,
    Code.PERMISSION_DENIED,
    Code.UNAUTHENTICATED,
    Code.UNAVAILABLE,
    Code.UNIMPLEMENTED,
)
SILENT = {Code.UNAVAILABLE: ConnectionLost, Code.DEADLINE_EXCEEDED: AnsweredLate}

RUNTIME_SERVICE = "/runtime.v1.RuntimeService/"
IMAGE_SERVICE = "/runtime.v1.ImageService/"

CallObserver = Callable[[str, float, bool], None]
"""Called after every CRI call with its name (`ListImages`), its duration in
seconds, and whether it failed.

NOT_FOUND is not a failure: it is the expected answer about an object that was removed.
"""


class EndpointError(ReclaimError, ValueError):
    """An endpoint that is not a unix socket path. The message names it and the allowed form."""


def socket_path(endpoint: str) -> str:
    """The path of the socket that an endpoint names. Raises EndpointError."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/") or "\0" in path or len(path.encode(errors="surrogateescape")) > 107:
        raise EndpointError(
            f"{endpoint!r} is not a unix socket: allowed is unix:///path/to.sock with an absolute"
            " path of at most 107 bytes"
        )
    return path


def _paths(runtime_endpoint: str, image_endpoint: str) -> tuple[str, str]:
    return socket_path(runtime_endpoint), socket_path(image_endpoint or runtime_endpoint)


class CriClient:
    """RuntimeService and ImageService of a container runtime, over one or two sockets.

    The first call connects. Thread-safe. Reads raise RuntimeUnavailable, removals RemovalFailed.
    """

    def __init__(
        self,
        runtime_endpoint: str,
        image_endpoint: str = "",
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
    ):
        self.on_call: CallObserver = lambda *_: None
        self._deadline = read_deadline_seconds
        self._prepared = 0
        self._connect_to(*_paths(runtime_endpoint, image_endpoint))

    def use(self, runtime_endpoint: str, image_endpoint: str) -> None:
        """Switches to these endpoints if they are different; only for a runtime that was never
        reached, as nothing may be in flight. Raises EndpointError."""
        paths = _paths(runtime_endpoint, image_endpoint)
        if paths != (self._runtime_channel.path, self._image_channel.path):
            self.close()
            self._connect_to(*paths)
            with suppress(OSError):  # out of descriptors: each call tries to make its own
                self.prepare(self._prepared)

    def _connect_to(self, runtime_path: str, image_path: str) -> None:
        self.endpoint = f"unix://{runtime_path}"
        # half of the deadline of what is read: a removal, which has none, is not sent to a
        # runtime that is as silent
        patience_seconds = self._deadline / 2
        self._runtime_channel = self._image_channel = Channel(runtime_path, patience_seconds)
        if image_path != runtime_path:
            self._image_channel = Channel(image_path, patience_seconds)

    def prepare(self, count: int) -> None:
        """Makes sockets for `count` concurrent calls, so that none is missing later.

        Raises OSError.
        """
        self._prepared = count
        self._runtime_channel.prepare(count)
        self._image_channel.prepare(count)

    @property
    def runtime_path(self) -> str:
        """The path of RuntimeService's socket."""
        return self._runtime_channel.path

    @property
    def connections_made(self) -> int:
        """How many connections have been made so far, to both sockets."""
        return sum(
            channel.connections_made for channel in {self._runtime_channel, self._image_channel}
        )

    def close(self) -> None:
        """Closes the connections. That would cancel removals in flight, so wait for those first."""
        self._runtime_channel.close()
        self._image_channel.close()

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """Calls a service other than CRI on the runtime's socket. `method` is a full name. Raises
        CallError, with PERMISSION_DENIED also if the socket is not trusted."""
        answer = bytearray()
        with closing(self._channel(method).stream(method, request, seconds)) as messages:
            for message in messages:
                answer += message
                if len(answer) > LARGEST_MESSAGE_BYTES:
                    raise CallError(
                        Code.RESOURCE_EXHAUSTED,
                        f"more than {LARGEST_MESSAGE_BYTES} bytes in one answer",
                    )
        return bytes(answer)

    # ---- RuntimeService

    def version(self) -> RuntimeVersion:
        """Name and version of the runtime."""
        answer = self._read(pb.VersionRequest(), pb.VersionResponse)
        return RuntimeVersion(answer.runtime_name, answer.runtime_version)

    def sandbox_image(self) -> str | None:
        """The configured sandbox image: key `sandboxImage` of the verbose status (containerd)."""
        answer = self._read(pb.StatusRequest(verbose=True), pb.StatusResponse)
        return text_in_json(answer.info, "config", "sandboxImage")

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> Containers:
        """All containers, or only those of one sandbox (by its full id) or one pod."""
        labels = {UID_LABEL: pod_uid} if pod_uid else {}
        request = pb.ListContainersRequest(
            filter=pb.ContainerFilter(pod_sandbox_id=sandbox_id, label_selector=labels)
        )
        return each_once(
            map(container_of, self._list(request, "StreamContainers", pb.Container)), "a container"
        )

    def list_pod_sandboxes(self) -> Sandboxes:
        """All sandboxes."""
        return each_once(
            map(
                sandbox_of,
                self._list(pb.ListPodSandboxRequest(), "StreamPodSandboxes", pb.PodSandbox),
            ),
            "a sandbox",
        )

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """The sandbox as it is now; None if NOT_FOUND, or if the answer is about another."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        answer = self._find(request, pb.PodSandboxStatusResponse)
        if answer is None:
            return None
        if not answer.status.id:
            raise AnsweredWithError(
                f"{self.endpoint}: PodSandboxStatus was answered without a status"
            )
        return pod_sandbox_status_of(answer.status) if answer.status.id == sandbox_id else None

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now; None if NOT_FOUND, NO_STATUS if it is without a status."""
        request = pb.ContainerStatusRequest(container_id=container_id)
        answer = self._find(request, pb.ContainerStatusResponse)
        if answer is None:
            return None
        return container_status_of(answer.status) if answer.HasField("status") else NO_STATUS

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        """`info.image` of its verbose status (containerd); None if NOT_FOUND or missing."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        answer = self._find(request, pb.PodSandboxStatusResponse, within_seconds)
        return None if answer is None else text_in_json(answer.info, "info", "image")

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """StopContainer, within the grace period plus 2 minutes."""
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace_seconds)
        self._remove(request, grace_seconds + STOP_DEADLINE_SECONDS)

    def remove_container(self, container_id: str) -> bool:
        """RemoveContainer, without a deadline."""
        return self._remove(pb.RemoveContainerRequest(container_id=container_id))

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """StopPodSandbox, within 2 minutes."""
        self._remove(pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), STOP_DEADLINE_SECONDS)

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """RemovePodSandbox, without a deadline."""
        return self._remove(pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))

    def writable_layers(self) -> dict[str, int]:
        """Bytes of writable layers by container id, from ListContainerStats."""
        answer = self._read(pb.ListContainerStatsRequest(), pb.ListContainerStatsResponse)
        return {
            stats.attributes.id: stats.writable_layer.used_bytes.value
            for stats in answer.stats
            if stats.writable_layer.HasField("used_bytes")
        }

    # ---- ImageService

    def list_images(self) -> Images:
        """All images."""
        return tuple(map(image_of, self._list(pb.ListImagesRequest(), "StreamImages", pb.Image)))

    def image_status(self, reference: str) -> Image | None:
        """The image that the runtime finds for `reference`; None if it has none."""
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        answer = self._find(request, pb.ImageStatusResponse)
        return image_of(answer.image) if answer is not None and answer.HasField("image") else None

    def remove_image(self, image_id: str) -> bool:
        """RemoveImage by id, without a deadline."""
        return self._remove(pb.RemoveImageRequest(image=pb.ImageSpec(image=image_id)))

    def image_fs_info(self) -> ImageFsInfo:
        """The image and container filesystems that the runtime reports."""
        answer = self._read(pb.ImageFsInfoRequest(), pb.ImageFsInfoResponse)
        counted = next(
            (usage for usage in answer.image_filesystems if usage.HasField("used_bytes")), None
        )
        return ImageFsInfo(
            tuple(usage.fs_id.mountpoint for usage in answer.image_filesystems),
            tuple(usage.fs_id.mountpoint for usage in answer.container_filesystems),
            None if counted is None else counted.used_bytes.value,
        )

    # ---- how a call is made

    def _channel(self, method: str) -> Channel:
        """The connections for this method.

        Raises CallError with PERMISSION_DENIED if their socket is not trusted.
        """
        channel = self._image_channel if method.startswith(IMAGE_SERVICE) else self._runtime_channel
        if (refusal := socket_refusal(channel.path)) is not None:
            raise CallError(
                Code.PERMISSION_DENIED,
                f"the socket unix://{channel.path} is not trusted: {refusal}",
            )
        return channel

    @contextmanager
    def _observed(self, method: str) -> Iterator[None]:
        began = time.monotonic()
        failed = True
        try:
            yield
            failed = False
        except CallError as error:
            failed = error.code is not Code.NOT_FOUND
            raise
        finally:
            self.on_call(method, time.monotonic() - began, failed)

    def _call(self, request: Message, deadline: float) -> bytearray:
        """The message that answers one call. Raises CallError."""
        with self._observed(_method(request)):
            path = _path(_method(request))
            return self._channel(path).unary(path, request.SerializeToString(), deadline)

    def _read(self, request: Message, answer_type: type[Answer]) -> Answer:
        answer = self._find(request, answer_type)
        if answer is None:
            raise AnsweredWithError(f"{self.endpoint}: {_method(request)} answered NOT_FOUND")
        return answer

    def _find(
        self, request: Message, answer_type: type[Answer], within_seconds: float = NEVER
    ) -> Answer | None:
        """The answer; None for NOT_FOUND.

        `within_seconds`: a shorter deadline than that of other reads.
        """
        try:
            return parsed(answer_type, self._call(request, min(self._deadline, within_seconds)))
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return None
            raise self._unavailable(request, error) from error

    def _list(self, request: Message, stream: str, entry_type: type[Answer]) -> Iterator[Answer]:
        """The entries of a complete list, one at a time. Raises RuntimeUnavailable, also during the
        iteration: a list that was not read to its end is not a list. `stream`: the variant of the
        call for lists that are too large."""
        try:
            for message in self._messages_of_list(request, stream):
                for entry in entries(message):
                    yield parsed(entry_type, entry)
        except CallError as error:
            raise self._unavailable(request, error) from error

    def _messages_of_list(self, request: Message, stream: str) -> Iterator[bytearray]:
        """One message with the whole list; if that is too large, a stream of many.

        Raises CallError.
        """
        try:
            yield self._call(request, self._deadline)
        except CallError as too_large:
            if too_large.code is not Code.RESOURCE_EXHAUSTED:
                raise
            path, content = _path(stream), request.SerializeToString()
            try:
                with self._observed(stream):
                    yield from self._channel(path).stream(path, content, self._deadline)
            except CallError as error:
                if error.code is Code.UNIMPLEMENTED:
                    raise too_large from error
                raise

    def _remove(self, request: Message, deadline: float = NEVER) -> bool:
        """The answer is not read: the runtime is asked whether the object still exists."""
        try:
            self._call(request, deadline)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return False
            raise RemovalFailed(_sentence(request, error)) from error
        return True

    def _unavailable(self, request: Message, error: CallError) -> RuntimeUnavailable:
        words = f"{self.endpoint}: {_sentence(request, error)}"
        if error.code in OF_THE_RUNTIME:
            return SILENT.get(error.code, RuntimeUnavailable)(words)
        if error.code in (Code.UNKNOWN, Code.INVALID_ARGUMENT):
            return RequestRefused(words)
        return AnsweredWithError(words)


def _sentence(request: Message, error: CallError) -> str:
    no_cri = "the server at this socket does not speak CRI v1"
    details = no_cri if error.code is Code.UNIMPLEMENTED else error.details[:LONGEST_DETAILS]
    return f"{_method(request)} failed with {error.code.name}: {details}"


def _method(request: Message) -> str:
    """The method that takes this request: CRI names its messages after its calls."""
    return request.DESCRIPTOR.name.removesuffix("Request")


def _path(method: str) -> str:
    """The method with its service: those of ImageService have the word in their names."""
    return f"{IMAGE_SERVICE if 'Image' in method else RUNTIME_SERVICE}{method}"
