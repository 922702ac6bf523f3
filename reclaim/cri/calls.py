"""Calls of CRI v1 over unix sockets: trust, deadlines, errors, and complete lists.

* Endpoints are `unix:///path` or a plain path, as for the kubelet. After a lost connection the next call connects anew.
* Responses may be large: 4 MiB, the default limit of gRPC's libraries, is reached at about 4 000 containers. When the
  runtime cannot send a list in one message (containerd's limit is 16 MiB, about 15 000 containers), the streaming
  variant of the call is used, which newer runtimes have (KEP-5825). It is not the first choice: one message for each
  entry costs more than one for all.
* Before each call the owner and mode of the socket are checked: one that others than root or our own user could have
  put there is not used. Two `stat`s for each call also notice a socket that was replaced since the last call.
* Reads have a deadline, and so has what only stops something, the kubelet's. **Removals have none**: a deadline would
  cancel the call inside the runtime, and an interrupted RemoveImage leaves a record behind that pins its bytes
  (containerd/containerd#13875).

Covers: how a call is made. Does not cover: which calls there are (`client`), gRPC itself (`channel`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from reclaim.cri.channel import Channel
from reclaim.cri.entry_cache import EntryCache
from reclaim.cri.list_entries import MalformedList, entries
from reclaim.cri.messages import DecodeError
from reclaim.cri.status import CallError, Code
from reclaim.services import Metadata
from reclaim.trust import socket_refusal
from reclaim.types import NEVER, ReclaimError, RemovalFailed, RuntimeUnavailable

READ_DEADLINE_SECONDS = 10.0
STOP_DEADLINE_SECONDS = 120.0  # kubelet: runtimeRequestTimeout, to which it adds the grace period of a container
LONGEST_DETAILS = 1000  # characters of the runtime's own error text, which logs and records repeat for each object

RUNTIME_SERVICE = "/runtime.v1.RuntimeService/"
IMAGE_SERVICE = "/runtime.v1.ImageService/"

CallObserver = Callable[[str, float, bool], None]
"""Called after every CRI call with its name (`ListImages`), its seconds, and whether it failed.

NOT_FOUND is no failure: it is the expected answer about an object that was removed.
"""

Answer = TypeVar("Answer")


class EndpointError(ReclaimError, ValueError):
    """An endpoint that is not a unix socket path. The message names it and the allowed form."""


def socket_path(endpoint: str) -> str:
    """The path of the socket that an endpoint names. Raises EndpointError."""
    path = endpoint.removeprefix("unix://") if endpoint.startswith("unix://") else endpoint
    if not path.startswith("/") or "\0" in path or len(path.encode(errors="surrogateescape")) > 107:
        raise EndpointError(
            f"{endpoint!r} is not a unix socket: allowed is unix:///path/to.sock with an absolute path of at most "
            "107 bytes"
        )
    return path


class CriCalls:
    """Makes calls of the RuntimeService and the ImageService, over one or two sockets, from any thread.

    The first call connects. `method` is a whole name: `RUNTIME_SERVICE` or `IMAGE_SERVICE`, then the call.
    """

    def __init__(self, runtime_endpoint: str, image_endpoint: str, read_deadline_seconds: float):
        self.on_call: CallObserver = lambda *_: None
        self._deadline = read_deadline_seconds
        self._prepared = 0
        self._connect_to(socket_path(runtime_endpoint), socket_path(image_endpoint or runtime_endpoint))

    def use(self, runtime_endpoint: str, image_endpoint: str) -> None:
        """Other endpoints from now on, if they are others; for a runtime that was never reached, as nothing may be in
        flight. Raises EndpointError."""
        runtime_path, image_path = socket_path(runtime_endpoint), socket_path(image_endpoint or runtime_endpoint)
        if self._paths != {RUNTIME_SERVICE: runtime_path, IMAGE_SERVICE: image_path}:
            self.close()
            self._connect_to(runtime_path, image_path)
            with suppress(OSError):  # no descriptor is left: each call tries to make its own
                self.prepare(self._prepared)

    def _connect_to(self, runtime_path: str, image_path: str) -> None:
        self.endpoint = f"unix://{runtime_path}"
        self._paths = {RUNTIME_SERVICE: runtime_path, IMAGE_SERVICE: image_path}
        self._runtime_channel = Channel(runtime_path)
        self._image_channel = self._runtime_channel if image_path == runtime_path else Channel(image_path)

    def prepare(self, count: int) -> None:
        """Makes sockets for so many calls at a time, so that none is missing later. Raises OSError."""
        self._prepared = count
        self._runtime_channel.prepare(count)
        self._image_channel.prepare(count)

    @property
    def runtime_path(self) -> str:
        """The path of the socket of RuntimeService."""
        return self._paths[RUNTIME_SERVICE]

    @property
    def connections_made(self) -> int:
        """How many connections were made so far, to both sockets."""
        channels = {self._runtime_channel, self._image_channel}
        return sum(channel.connections_made for channel in channels)

    def close(self) -> None:
        """Closes the connections. That would cancel a removal in flight, so wait for those first."""
        self._runtime_channel.close()
        self._image_channel.close()

    def call_service(self, method: str, request: bytes, seconds: float, metadata: Metadata) -> bytes:
        """One call of a service beside CRI on the runtime's socket: `method` is a whole name. Raises CallError,
        UNAVAILABLE also where the socket is not trusted."""
        if (refusal := self._refusal(method)) is not None:
            raise CallError(Code.UNAVAILABLE, refusal)
        return bytes(self._channel(method).unary(method, request, seconds, metadata))

    def _refusal(self, method: str) -> str | None:
        """Why the socket of this method is not used, as a sentence; None: it is trusted."""
        path = self._paths[IMAGE_SERVICE if method.startswith(IMAGE_SERVICE) else RUNTIME_SERVICE]
        refusal = socket_refusal(path)
        return None if refusal is None else f"the socket unix://{path} is not trusted: {refusal}"

    def _channel(self, method: str) -> Channel:
        return self._image_channel if method.startswith(IMAGE_SERVICE) else self._runtime_channel

    def _call(
        self, method: str, request: Any, read: Callable[[bytes | bytearray], Answer], deadline: float | None
    ) -> Answer:
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

    def _find(
        self, method: str, request: Any, answer_type: type[Answer], within_seconds: float = NEVER
    ) -> Answer | None:
        """The answer; None for NOT_FOUND. `within_seconds`: a deadline that is shorter than that of reads."""
        self._check(method)
        deadline = min(self._deadline, within_seconds)
        try:
            return self._call(method, request, parser(answer_type), deadline)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return None
            raise self._unavailable(method, error, deadline) from error

    def _list(
        self, method: str, stream: str, request: Any, cache: EntryCache[Answer], *, whole: bool = True
    ) -> Iterator[Answer]:
        """The entries of a complete list, one at a time. Raises RuntimeUnavailable, also during the iteration."""
        try:
            messages = self._messages_of_list(method, stream, request)
            yield from cache.values((entry for message in messages for entry in entries(message)), whole=whole)
        except (MalformedList, DecodeError) as error:
            raise RuntimeUnavailable(f"{self.endpoint}: {_short(method)} cannot be read: {error}") from error

    def _messages_of_list(self, method: str, stream: str, request: Any) -> Iterable[bytes | bytearray]:
        """One message with the whole list; if that is too large, a stream of many. A partly read stream is no list."""
        self._check(method)
        try:
            return (self._call(method, request, lambda answer: answer, self._deadline),)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                raise self._not_found(method) from error
            unavailable = self._unavailable(method, error)
            if error.code is not Code.RESOURCE_EXHAUSTED:
                raise unavailable from error
        return self._stream(f"{method.rpartition('/')[0]}/{stream}", request, unavailable)

    def _stream(self, method: str, request: Any, unimplemented: RuntimeUnavailable) -> Iterator[bytes | bytearray]:
        """All messages of a stream. Raises `unimplemented` if the runtime has no such method."""
        began, failed = time.monotonic(), True
        try:
            yield from self._channel(method).stream(method, request.SerializeToString(), self._deadline)
            failed = False
        except CallError as error:
            if error.code is Code.UNIMPLEMENTED:
                raise unimplemented from error
            raise self._unavailable(method, error) from error
        finally:
            self.on_call(_short(method), time.monotonic() - began, failed)

    def _check(self, method: str) -> None:
        if (refusal := self._refusal(method)) is not None:
            raise RuntimeUnavailable(refusal)

    def _not_found(self, method: str) -> RuntimeUnavailable:
        return RuntimeUnavailable(f"{self.endpoint}: {_short(method)} answered NOT_FOUND")

    def _unavailable(self, method: str, error: CallError, deadline: float | None = None) -> RuntimeUnavailable:
        transient, late = error.code is Code.UNAVAILABLE, error.code is Code.DEADLINE_EXCEEDED
        if late:
            sentence = f"{_short(method)} was not answered within {deadline or self._deadline:g} s"
        else:
            sentence = self._sentence(method, error)
        return RuntimeUnavailable(f"{self.endpoint}: {sentence}", transient=transient, late=late)

    def _remove(self, method: str, request: Any, answer_type: type[Any], deadline: float | None = None) -> bool:
        if (refusal := self._refusal(method)) is not None:
            raise RemovalFailed(refusal)
        try:
            self._call(method, request, parser(answer_type), deadline)
        except CallError as error:
            if error.code is Code.DEADLINE_EXCEEDED and deadline is not None:
                raise RemovalFailed(f"{_short(method)} was not answered within {deadline:g} s") from error
            if error.code is not Code.NOT_FOUND:
                raise RemovalFailed(self._sentence(method, error)) from error
            return False
        return True

    def _sentence(self, method: str, error: CallError) -> str:
        name, details = _short(method), error.details[:LONGEST_DETAILS]
        match error.code:
            case Code.UNIMPLEMENTED:
                return f"{name} is not implemented: the server at this socket does not speak CRI v1"
            case Code.UNAVAILABLE:
                return f"no connection for {name}: {details}"
            case code:
                return f"{name} failed with {code.name}: {details}"


def parser(message_type: type[Answer]) -> Callable[[bytes | bytearray], Answer]:
    """The function that parses bytes as a message of this class."""
    read: Callable[[bytes], Answer] = message_type.FromString  # type: ignore[attr-defined] # every message has it
    return lambda answer: read(bytes(answer))  # no copy of what is bytes already


def _short(method: str) -> str:
    return method.rpartition("/")[2]
