"""The embedded runtime as a gRPC server on a unix socket.

Covers: starting and stopping on one path, the status codes of errors, and failpoints.

Does not cover: what the calls of CRI do; see `runtime`. A call for which it has no method is
UNIMPLEMENTED, as in a runtime that lacks it.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import UserDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import StatusCode

from eviction.drill.private_mounts import EmbeddedNodeError
from eviction.drill.runtime import EmbeddedRuntime, NotFoundError, method_of
from reclaim.cri import cri_pb2

_WORKERS = 32  # concurrent calls; threads start when needed, and a call that hangs occupies one
_TICK_SECONDS = 0.005

_Answer = TypeVar("_Answer")


class Method(NamedTuple):
    """A method, its messages, and the function that answers it."""

    name: str
    request: type[Message]
    answer: type[Message]
    function: Callable[[Any], Message]


# ---- failpoints


@dataclass(kw_only=True)
class Failpoint:
    """What happens to the next `times` calls (None: to all): a call starts `seconds` late (None:
    when the failpoint is deleted or replaced), acts or does nothing (`acts`), and gets a wrong
    answer (`change` makes it of the true one), an error (`code`), or, with both, the wrong
    answer and then the error."""

    acts: bool = True
    seconds: float | None = 0.0
    change: Callable[[Any], Any] | None = None
    code: StatusCode | None = None
    message: str = ""
    times: int | None = None


def first_half(answer: Any) -> Any:
    """A copy of the answer with the first half of its list."""
    changed = copy.deepcopy(answer)
    for known, entries in changed.ListFields():
        if known.name != "info" and hasattr(entries, "add"):
            del entries[(len(entries) + 1) // 2 :]
    return changed


@dataclass(eq=False)
class InjectedError(Exception):
    """A call ends with the error `code` and `message`.

    `partial`: what is sent before the error, or None.
    """

    code: StatusCode
    message: str
    partial: Any = None


class Failpoints(UserDict[str, Failpoint]):
    """The faults in force for each method of a runtime.

        server.failpoints["RemoveImage"] = Failpoint(code=StatusCode.UNAVAILABLE, times=2)
        server.failpoints["ListContainers"] = Failpoint(seconds=None)
        del server.failpoints["ListContainers"]          # releases the calls that hang

    Setting one releases the calls that hang at the one before; one that is used up stays in the
    mapping without effect.
    """

    closed = False
    """True: calls that hang do nothing and fail, as if their server died."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def apply(self, method: str, act: Callable[[], _Answer], empty: _Answer) -> _Answer:
        """Executes one call of a method with `act`, under the fault that applies.

        `empty` is the answer if it does nothing.
        Raises InjectedError if the fault makes the call fail, and everything that `act` raises.
        """
        arrived = time.monotonic()
        action = self._arrive(method)
        if action is None:
            return act()
        while self._in_force(method, action) and (
            action.seconds is None or time.monotonic() < arrived + action.seconds
        ):
            if self.closed:
                raise InjectedError(StatusCode.UNAVAILABLE, "the server stopped")
            time.sleep(_TICK_SECONDS)
        answer = act() if action.acts else empty
        if action.change is not None:
            answer = action.change(answer)
        if action.code is not None:
            partial_answer = None if action.change is None else answer
            raise InjectedError(action.code, action.message, partial_answer)
        return answer

    def _arrive(self, method: str) -> Failpoint | None:
        """A call arrives. Returns the fault that applies to it."""
        with self._lock:
            action = self.data.get(method)
            if action is not None and action.times is not None:
                action.times -= 1
                return action if action.times >= 0 else None
            return action

    def _in_force(self, method: str, action: Failpoint) -> bool:
        return self.data.get(method) is action


# ---- the server


class EmbeddedServer(grpc.GenericRpcHandler):
    """Serves a runtime on a unix socket from `start` to `stop`.

    `failpoints` has the faults of its methods; they survive a restart, as all state of the runtime
    does. `socket_path` has at most 107 bytes, in a directory that exists. It should not be on the
    filesystem under test, where without a free inode no socket can be made.
    """

    largest_answer_bytes = 256 << 20
    """Larger answers fail with RESOURCE_EXHAUSTED."""

    def __init__(self, runtime: EmbeddedRuntime, socket_path: str) -> None:
        self.runtime = runtime
        self.socket_path = os.path.abspath(socket_path)
        self.target = f"unix:{self.socket_path}"  # the address for `grpc.insecure_channel`
        self.failpoints = Failpoints()
        self._serving = ExitStack()

    def start(self) -> None:
        """Starts to listen. Raises EmbeddedNodeError if the socket cannot be made."""
        with ExitStack() as serving:
            workers = serving.enter_context(ThreadPoolExecutor(_WORKERS, "embedded-cri"))
            limit = ("grpc.max_send_message_length", self.largest_answer_bytes)
            server = grpc.server(workers, [self], options=[limit])
            serving.callback(lambda: server.stop(grace=None).wait())
            try:
                server.add_insecure_port(self.target)
                # whoever can connect to a runtime's socket is root on the node
                os.chmod(self.socket_path, 0o600)
            except (OSError, RuntimeError) as caught:
                raise EmbeddedNodeError(
                    f"the embedded runtime cannot listen on {self.socket_path}: {caught}"
                ) from caught
            server.start()
            self._serving = serving.pop_all()

    def stop(self) -> None:
        """Closes every connection, waits for every call, and removes the socket. Idempotent.

        Calls that a failpoint holds up are dropped; every other call that has begun runs to its
        end. What the runtime would free later it frees at once, so that no thread is left.
        """
        self.failpoints.closed = True
        self._serving.close()
        self.failpoints.closed = False
        self.runtime.force_gc()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """What answers a call, or None."""
        call = handler_call_details.method.rpartition("/")[2]
        request = getattr(cri_pb2, f"{call}Request", None)
        if request is None or not hasattr(self.runtime, method_of(call)):
            return None
        answer = getattr(cri_pb2, f"{call}Response")
        return self._handler(Method(call, request, answer=answer, function=self.runtime.answer))

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        def answers(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            try:
                yield self.failpoints.apply(
                    method.name, lambda: method.function(request), method.answer()
                )
            except InjectedError as error:
                if error.partial is not None:
                    yield error.partial
                context.abort(error.code, error.message)
            except NotFoundError as error:
                context.abort(StatusCode.NOT_FOUND, str(error))
            except (EmbeddedNodeError, OSError) as error:
                context.abort(StatusCode.UNKNOWN, str(error))

        # On the wire a unary answer is a stream of one message, and only a stream can send a
        # message and then an error.
        return grpc.unary_stream_rpc_method_handler(
            answers,
            request_deserializer=method.request.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
