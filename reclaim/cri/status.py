"""The status of a gRPC call: the codes, the error that carries one, and how an
answer's message is parsed.

Source: https://github.com/grpc/grpc/blob/master/doc/statuscodes.md
"""

from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Message

Answer = TypeVar("Answer")


class Code(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallError(Exception):
    """A call that did not end with OK. `details`: from the server, or from this client."""

    def __init__(self, code: Code, details: str):
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


def parsed(message_type: type[Answer], answer: bytes | bytearray) -> Answer:
    """The message of this class in these bytes. Raises CallError with INTERNAL."""
    try:
        message: Answer = message_type.FromString(bytes(answer))  # type: ignore[attr-defined] # every message has it
    except DecodeError as error:
        raise CallError(Code.INTERNAL, f"the answer cannot be read: {error}") from error
    return message
