"""gRPC within an HTTP/2 stream: request headers, length-prefixed messages, the status in the trailers.

Sources: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md,
https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from urllib.parse import unquote

from reclaim.cri.status import CallError, Code
from reclaim.services import Metadata

LARGEST_MESSAGE_BYTES = 96 * 1024 * 1024
"""More than runtimes send in one message (containerd 16 MiB, CRI-O 80 MiB by default), and so little that it fits, with
the values made of it, into the 256 MiB to which the unit and the DaemonSet limit the process."""

COPIED_BYTES = 1024 * 1024
"""A message up to this size is copied out of the buffer; a larger one is the buffer itself."""

_PREFIX = struct.Struct(">?L")  # of a message: compressed, length
_LONGEST_TIMEOUT = 99_999_999  # eight digits are allowed

_CODES = {b"%d" % code: code for code in Code}
_CODE_OF_RESET = {
    7: Code.UNAVAILABLE,  # REFUSED_STREAM
    8: Code.CANCELLED,
    11: Code.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
    12: Code.PERMISSION_DENIED,  # INADEQUATE_SECURITY
}
_CODE_OF_HTTP_STATUS = {
    b"400": Code.INTERNAL,
    b"401": Code.UNAUTHENTICATED,
    b"403": Code.PERMISSION_DENIED,
    b"404": Code.UNIMPLEMENTED,
    b"429": Code.UNAVAILABLE,
    b"502": Code.UNAVAILABLE,
    b"503": Code.UNAVAILABLE,
    b"504": Code.UNAVAILABLE,
}


def request_headers(method: str, timeout_seconds: float | None, metadata: Metadata = ()) -> list[tuple[bytes, bytes]]:
    """The header fields of a call. `timeout_seconds`: sent to the server as its deadline; None: none. `metadata`: names
    in lower case, and values of printable ASCII."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"reclaimd"),
    ]
    if timeout_seconds is not None:
        fields.append((b"grpc-timeout", b"%dm" % max(1, min(int(timeout_seconds * 1000), _LONGEST_TIMEOUT))))
    fields.extend((name.encode(), value.encode()) for name, value in metadata)
    return fields


def prefixed(message: bytes) -> bytes:
    """A message with its prefix of five bytes: a flag and its length."""
    return _PREFIX.pack(False, len(message)) + message


class MessageReader:
    """Cuts the bytes of one stream into messages. Holds at most one message of LARGEST_MESSAGE_BYTES and one frame.

    No large message is ever there twice: the buffer in which it has arrived is handed out as it is.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._size: int | None = None  # of the message that is being read; None: its prefix is

    @property
    def in_the_middle(self) -> bool:
        """True if a message is incomplete."""
        return bool(self._bytes) or self._size is not None

    def feed(self, data: bytes) -> list[bytes | bytearray]:
        """The messages that are now complete.

        Raises CallError: INTERNAL for a compressed message, RESOURCE_EXHAUSTED for one that is too large.
        """
        self._bytes += data
        messages: list[bytes | bytearray] = []
        while True:
            if self._size is None:
                if len(self._bytes) < _PREFIX.size:
                    return messages
                self._size = self._prefix()
            if len(self._bytes) < self._size:
                return messages
            messages.append(self._message(self._size))
            self._size = None

    def _prefix(self) -> int:
        """Takes the prefix out of the buffer; the size that it announces."""
        compressed, size = _PREFIX.unpack_from(self._bytes)
        if compressed:
            raise CallError(Code.INTERNAL, "the answer is compressed, which is not supported")
        if size > LARGEST_MESSAGE_BYTES:
            details = f"a message of {size} bytes, {LARGEST_MESSAGE_BYTES} are allowed"
            raise CallError(Code.RESOURCE_EXHAUSTED, details)
        del self._bytes[: _PREFIX.size]
        return int(size)

    def _message(self, size: int) -> bytes | bytearray:
        """Takes a whole message out of the buffer."""
        if size <= COPIED_BYTES:
            with memoryview(self._bytes) as view:
                message = bytes(view[:size])
            del self._bytes[:size]
            return message
        large, self._bytes = self._bytes, self._bytes[size:]
        del large[size:]
        return large


def status_of(fields: Mapping[bytes, bytes]) -> CallError:
    """The status of a call by its trailers; without `grpc-status`, by the HTTP status."""
    number = fields.get(b"grpc-status")
    if number is None:
        status = fields.get(b":status", b"")
        code = _CODE_OF_HTTP_STATUS.get(status, Code.UNKNOWN)
        return CallError(code, f"an answer without grpc-status, HTTP status {status.decode(errors='replace')}")
    details = unquote(fields.get(b"grpc-message", b""), errors="replace")
    return CallError(_CODES.get(number, Code.UNKNOWN), details)


def status_of_reset(reason: int) -> CallError:
    """The status of a call whose stream the server reset with this HTTP/2 error code."""
    return CallError(_CODE_OF_RESET.get(reason, Code.INTERNAL), f"the call was reset with HTTP/2 error {reason}")
