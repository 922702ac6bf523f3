"""The embedded runtime as a gRPC server on a unix socket.

Covers: the table of methods, starting and stopping on one path, the status codes
of errors, and failpoints.

Does not cover: what the calls of CRI do; see `runtime`. Methods that are not in the table are
UNIMPLEMENTED, as in a runtime that lacks them.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import UserDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import StatusCode

from eviction.drill.private_mounts import EmbeddedNodeError
from eviction.drill.runtime import EmbeddedRuntime, NotFoundError, messages_of

RUNTIME_SERVICE = "runtime.v1.RuntimeService"
IMAGE_SERVICE = "runtime.v1.ImageService"

_WORKERS = 32  # concurrent calls; threads start when needed, and a call that hangs occupies one

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Answer = TypeVar("_Answer")


class Method(NamedTuple):
    """A method, its messages, and the function that answers it, called with the runtime."""

    service: str
    name: str
    request: type[Message]
    answer: type[Message]
    function: Callable[[Any, Any], Message]


def methods_of(*runtimes: type[EmbeddedRuntime]) -> Iterator[Method]:
    """The methods of a runtime, in these classes, that are named for a call of CRI."""
    for name in dict.fromkeys(name for runtime in runtimes for name in vars(runtime)):
        call, request, answer = messages_of(name)
        if answer is not None:
            service = IMAGE_SERVICE if "Image" in call else RUNTIME_SERVICE
            yield Method(service, call, request, answer=answer, function=partial(_call, name))


def _call(name: str, runtime: EmbeddedRuntime, request: Message) -> Any:
    return getattr(runtime, name)(request)


METHODS = tuple(methods_of(EmbeddedRuntime))


# ---- failpoints


@dataclass(frozen=True, kw_only=True)
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
    """The faults in force for each method of a runtime. Thread-safe.

        server.failpoints["RemoveImage"] = Failpoint(code=StatusCode.UNAVAILABLE, times=2)
        server.failpoints["ListContainers"] = Failpoint(seconds=None)
        del server.failpoints["ListContainers"]          # releases the calls that hang

    Setting one releases the calls that hang at the one before and starts `times` anew; one that is
    used up stays in the mapping without effect. Raises KeyError for an unknown method, so that a
    mistyped name is noticed.
    """

    def __init__(self, methods: frozenset[str]) -> None:
        super().__init__()
        self._methods = methods
        self._changed = threading.Condition()
        self._times_left: dict[str, int | None] = {}
        self._closed = False

    def __setitem__(self, method: str, action: Failpoint) -> None:
        if method not in self._methods:
            raise KeyError(f"no method is named {method!r}")
        with self._changed:
            self.data[method] = action
            self._times_left[method] = action.times
            self._changed.notify_all()

    def __delitem__(self, method: str) -> None:
        with self._changed:
            del self.data[method]
            self._changed.notify_all()

    def apply(self, method: str, act: Callable[[], _Answer], empty: _Answer) -> _Answer:
        """Executes one call of a method with `act`, under the fault that applies.

        `empty` is the answer if it does nothing.
        Raises InjectedError if the fault makes the call fail, and everything that `act` raises.
        """
        action = self._arrive(method)
        if action is None:
            return act()
        if action.seconds != 0.0:
            self._wait(method, action)
        answer = act() if action.acts else empty
        if action.change is not None:
            answer = action.change(answer)
        if action.code is not None:
            partial_answer = None if action.change is None else answer
            raise InjectedError(action.code, action.message, partial_answer)
        return answer

    def close(self) -> None:
        """Ends every wait: calls that hang do nothing and fail, as if their server died."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def open(self) -> None:
        """Lets calls wait again after `close`."""
        with self._changed:
            self._closed = False

    def _arrive(self, method: str) -> Failpoint | None:
        """A call arrives. Returns the fault that applies to it."""
        with self._changed:
            left = self._times_left.get(method)
            if left == 0:
                return None
            if left is not None:
                self._times_left[method] = left - 1
            return self.data.get(method)

    def _in_force(self, method: str, action: Failpoint) -> bool:
        return self.data.get(method) is action

    def _wait(self, method: str, action: Failpoint) -> None:
        """Waits until the fault is gone, up to its seconds.

        Raises InjectedError if the server stops.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not self._in_force(method, action), action.seconds
            )
            if self._closed:
                raise InjectedError(
                    StatusCode.UNAVAILABLE, "the server stopped while the call was waiting"
                )


# ---- the server


class EmbeddedServer:
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
        self.methods = METHODS
        self.failpoints = Failpoints(frozenset(method.name for method in self.methods))
        self._serving: tuple[grpc.Server, ThreadPoolExecutor] | None = None

    def start(self) -> None:
        """Starts to listen, unless it already does.

        Raises EmbeddedNodeError if the socket cannot be made.
        """
        if self._serving is not None:
            return
        self.failpoints.open()
        executor = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="embedded-cri")
        server = grpc.server(
            executor,
            [
                grpc.method_handlers_generic_handler(*service)
                for service in self._services().items()
            ],
            options=(("grpc.max_send_message_length", self.largest_answer_bytes),),
        )
        try:
            server.add_insecure_port(self.target)
            # whoever can connect to a runtime's socket is root on the node
            os.chmod(self.socket_path, 0o600)
            server.start()
        except (OSError, RuntimeError) as caught:
            server.stop(grace=None)
            executor.shutdown()
            raise EmbeddedNodeError(
                f"the embedded runtime cannot listen on {self.socket_path}: {caught}"
            ) from caught
        self._serving = (server, executor)

    def stop(self) -> None:
        """Closes every connection, waits for every call, and removes the socket. Idempotent.

        Calls that a failpoint holds up are dropped; every other call that has begun runs to its
        end. What the runtime would free later it frees at once, so that no thread is left.
        """
        if self._serving is None:
            return
        server, executor = self._serving
        self._serving = None
        stopped = server.stop(grace=None)
        self.failpoints.close()
        stopped.wait()
        executor.shutdown(wait=True)
        with suppress(FileNotFoundError):  # grpc has removed it itself
            os.unlink(self.socket_path)
        self.runtime.force_gc()

    def _services(self) -> dict[str, dict[str, _Handler]]:
        """The handlers by service and method."""
        return {
            service: {
                method.name: self._handler(method)
                for method in self.methods
                if method.service == service
            }
            for service in {method.service for method in self.methods}
        }

    def _act(self, method: Method, request: Message, _: grpc.ServicerContext) -> Message:
        return method.function(self.runtime, request)

    def _handler(self, method: Method) -> _Handler:
        def answers(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            try:
                yield self.failpoints.apply(
                    method.name, lambda: self._act(method, request, context), method.answer()
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
