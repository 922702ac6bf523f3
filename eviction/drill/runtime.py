"""A CRI v1 runtime as a state machine: messages in and out; one method per call.

It is a second implementation of the protocol, with containerd's rules, as measured on 1.6 and 2.x:

* Nothing is protected. RemoveImage removes an image in use, and its layers are freed with the last
  container that uses them. RemoveContainer kills a RUNNING container.
* Stopping or removing an absent object succeeds. Its ContainerStatus or PodSandboxStatus is
  NOT_FOUND, and its ImageStatus is an answer without an image.
* RemoveImage with any name removes the image with all its names.
* `image_ref` is the image id in ListContainers; in ContainerStatus it is the repository
  digest while the image exists. `image.image` is what the creator asked for in ListContainers; in
  ContainerStatus it is a tag if there is one. containerd before 2.3 leaves `image_id` empty.

It knows whole ids, and of filters those of ListContainers by sandbox and by labels: nothing of ours
asks otherwise. A call raises NotFoundError for NOT_FOUND, and EmbeddedNodeError or OSError for
every other error, which containerd answers with UNKNOWN. Source: github.com/containerd/containerd
internal/cri/server; github.com/distribution/reference normalize.go.

Layers and writable layers are real files, which statvfs sees and whose deletion frees real space:

    <images root>/layers/<64 hex>/<file>                 one layer, shared by its images
    <containers root>/containers/<container id>/<file>   the writable layer of one container

The content does not compress and has no holes. A deletion creates no file, so it works with 0 bytes
and 0 inodes free.

The server serves it by gRPC on a unix socket: starting and stopping on one path, the status codes
of errors, and failpoints. A call for which it has no method is UNIMPLEMENTED, as in a runtime that
lacks it.
"""

import copy
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections import Counter, UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from os.path import join
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import StatusCode

from eviction.drill.private_mounts import EmbeddedNodeError
from eviction.types import Json
from reclaim.cri import cri_pb2
from reclaim.cri.convert import CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL, UID_LABEL
from reclaim.evidence.references import normalized, repository_of

CONTENT = os.urandom(1 << 20)

_LIVE = (cri_pb2.CONTAINER_RUNNING, cri_pb2.CONTAINER_UNKNOWN)
_KILLED = 137  # 128 + SIGKILL

Container = cri_pb2.ContainerStatus
Image = cri_pb2.Image
Sandbox = cri_pb2.PodSandboxStatus
Record = TypeVar("Record")


class NotFoundError(EmbeddedNodeError):
    """A call names an object that does not exist: NOT_FOUND over gRPC.

    Every other EmbeddedNodeError is UNKNOWN.
    """


class RemovalRecord(NamedTuple):
    """An object that was really removed, and when, in wall-clock seconds."""

    wall_seconds: float
    kind: str
    id: str


class LayerSpec(NamedTuple):
    """One layer of an image: `files` files of about equal size, `size_bytes` in all. Equal specs
    are one layer on disk."""

    name: str
    size_bytes: int
    files: int = 1

    @property
    def digits(self) -> str:
        """Its digest: 64 hex digits."""
        return deterministic_id(*self)


def method_of(call: str) -> str:
    """The name of the method that answers a call of CRI."""
    return re.sub(r"\B[A-Z]", r"_\g<0>", call).lower()


@dataclass(eq=False)
class EmbeddedRuntime:
    """The runtime of an embedded node. Thread-safe.

    `images_root` and `containers_root` (empty: the same) are directories on the filesystems under
    test; FileExistsError if one of them is the root of another node. `sandbox_image` is to be added
    before the first sandbox. `fills_image_id`: Container.image_id is set. `pins_sandbox_image`: the
    sandbox image is listed as pinned; containerd does so since 1.7. The space of a removed
    container is freed `container_space_delay_seconds` later, or by the next removal that frees at
    once, whichever is first; a thread may wait for it until `force_gc`.
    """

    images_root: str
    sandbox_image: str
    containers_root: str = ""
    fills_image_id: bool = True
    pins_sandbox_image: bool = True
    container_space_delay_seconds: float = 0.0
    runtime_name: str = "containerd"
    runtime_version: str = "2.3.4"
    image_id_prefix: str = "sha256:"

    def __post_init__(self) -> None:
        self.sandbox_image = normalized(self.sandbox_image)
        self._reported = [self.images_root, self.containers_root or self.images_root]
        self._layers_root = join(self._reported[0], "layers")
        self._writable_root = join(self._reported[1], "containers")
        os.makedirs(self._layers_root)
        os.makedirs(self._writable_root)
        self._lock = threading.Lock()
        self._images: dict[str, Image] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._sandbox_of: dict[str, str] = {}  # by container
        self._layers: dict[str, Sequence[LayerSpec]] = {}  # by object: those to which it refers
        self._references = Counter[LayerSpec]()
        # by path of a layer or writable layer: bytes in blocks, and inodes
        self._used: dict[str, tuple[int, int]] = {}
        self._removals: list[RemovalRecord] = []
        self._removed_but_not_freed: list[str] = []
        self._gc_timer: threading.Timer | None = None
        self._made = 0

    def answer(self, request: Message) -> Any:
        """The answer to a call. An absent object is removed and stopped already, and no image."""
        call = type(request).__name__.removesuffix("Request")
        done = (NotFoundError,) if call.startswith(("Remove", "Stop", "Image")) else ()
        fields = None
        with self._lock, suppress(*done):
            fields = getattr(self, method_of(call))(request)
        return getattr(cri_pb2, f"{call}Response")(**fields or {})

    # ---- RuntimeService: the fields of the answer to each request, under the lock

    def version(self, _: Any) -> Json:
        return {
            "version": "0.1.0",
            "runtime_name": self.runtime_name,
            "runtime_version": self.runtime_version,
            "runtime_api_version": "v1",
        }

    def status(self, _: Any) -> Json:
        """Status: always ready."""
        return {
            "status": {
                "conditions": [
                    {"type": name, "status": True} for name in ("RuntimeReady", "NetworkReady")
                ]
            }
        }

    def list_containers(self, request: Any) -> Json:
        """ListContainers, filtered by sandbox and labels."""
        wanted = request.filter.pod_sandbox_id
        labels = dict(request.filter.label_selector).items()
        containers = [
            self._described(cri_pb2.Container, container, pod_sandbox_id=sandbox_id)
            for container in self._containers.values()
            if wanted in ("", sandbox_id := self._sandbox_of[container.id])
            and labels <= dict(container.labels).items()
        ]
        return {"containers": containers}

    def container_status(self, request: Any) -> Json:
        return {"status": self._described(Container, self._container(request.container_id))}

    def list_container_stats(self, _: Any) -> Json:
        """ListContainerStats of every container: only the writable layers."""
        stats = []
        for container_id in self._containers:
            path = self.writable_layer(container_id)
            if path in self._used:
                self._count(path)  # what runs in it has written
                stats.append(
                    {
                        "attributes": {"id": container_id},
                        "writable_layer": {"used_bytes": {"value": self._used[path][0]}},
                    }
                )
        return {"stats": stats}

    def stop_container(self, request: Any) -> None:
        """StopContainer: the process ends at once, whatever the timeout."""
        self._stop(self._container(request.container_id))

    def remove_container(self, request: Any) -> None:
        """RemoveContainer, in any state."""
        self._drop_container(self._container(request.container_id))

    def list_pod_sandbox(self, _: Any) -> Json:
        return {"items": [copied(cri_pb2.PodSandbox, each) for each in self._sandboxes.values()]}

    def pod_sandbox_status(self, request: Any) -> Json:
        """PodSandboxStatus; if verbose, with its image in JSON text."""
        sandbox = self._sandbox(request.pod_sandbox_id)
        info = json.dumps({"image": self.sandbox_image})
        return {"status": sandbox, "info": {"info": info} if request.verbose else {}}

    def stop_pod_sandbox(self, request: Any) -> None:
        """StopPodSandbox: its containers exit, and it becomes NOTREADY."""
        sandbox = self._sandbox(request.pod_sandbox_id)
        sandbox.state = cri_pb2.SANDBOX_NOTREADY
        for container in self._containers_in(sandbox):
            self._stop(container)

    def remove_pod_sandbox(self, request: Any) -> None:
        """RemovePodSandbox, with all its containers, in any state."""
        self._drop_sandbox(self._sandbox(request.pod_sandbox_id))

    # ---- ImageService

    def list_images(self, _: Any) -> Json:
        return {"images": [self._image_item(image) for image in self._images.values()]}

    def image_status(self, request: Any) -> Json:
        return {"image": self._image_item(self._image_named(request.image.image))}

    def remove_image(self, request: Any) -> None:
        """RemoveImage, with all names of the image, even if it is pinned."""
        self._drop_image(self._image_named(request.image.image))

    def image_fs_info(self, _: Any) -> Json:
        """ImageFsInfo: the filesystem of images and that of containers, which may be the same.

        Reads no filesystem, which may be dead: a runtime answers from what it has counted.
        """
        usages = []
        for root in self._reported:
            below = [used for path, used in self._used.items() if path.startswith(f"{root}/")]
            usages.append(
                {
                    "timestamp": self._now_ns(),
                    "fs_id": {"mountpoint": root},
                    "used_bytes": {"value": sum(size for size, _ in below)},
                    "inodes_used": {"value": sum(inodes for _, inodes in below)},
                }
            )
        return {"image_filesystems": usages[:1], "container_filesystems": usages[1:]}

    # ---- what happens without a call

    def add_sandbox(self, name: str, uid: str, **fields: Any) -> str:
        """The sandbox of a pod of the namespace `default`. READY and of now, unless `fields` say
        otherwise.

        Raises NotFoundError if the sandbox image is absent.
        """
        with self._lock:
            sandbox_id = self._new_id("sandbox")
            self._acquire(sandbox_id, self._layers[self._image_named(self.sandbox_image).id])
            self._sandboxes[sandbox_id] = Sandbox(
                id=sandbox_id,
                metadata=cri_pb2.PodSandboxMetadata(name=name, uid=uid, namespace="default"),
                labels={UID_LABEL: uid, POD_NAME_LABEL: name, POD_NAMESPACE_LABEL: "default"},
                **{"created_at": self._now_ns(), **fields},
            )
        return sandbox_id

    def add_container(
        self, sandbox_id: str, name: str, image: str, *, writes: int = 0, **fields: Any
    ) -> str:
        """A container in a sandbox, which has written so many bytes. CREATED, of now and the first
        of its name, unless `fields` say otherwise.

        Raises NotFoundError if the image is absent, OSError if it does not fit.
        """
        with self._lock:
            found = self._image_named(image)
            container_id = self._new_id("container")
            self._make_writable(container_id, writes)
            self._acquire(container_id, self._layers[found.id])
            self._sandbox_of[container_id] = sandbox_id
            self._containers[container_id] = Container(
                id=container_id,
                metadata={"name": name, "attempt": fields.pop("attempt", 0)},
                image=cri_pb2.ImageSpec(image=image),
                image_ref=found.id,
                image_id=found.id,
                labels={**self._sandboxes[sandbox_id].labels, CONTAINER_NAME_LABEL: name},
                **{"created_at": self._now_ns(), **fields},
            )
        return container_id

    @property
    def removals(self) -> tuple[RemovalRecord, ...]:
        """Every object that was really removed, in order."""
        with self._lock:
            return tuple(self._removals)

    def add_image(self, tags: Sequence[str], layers: Sequence[LayerSpec]) -> str:
        """Pulls an image: writes the layers that are missing, then lists it. Returns its id:
        "sha256:" and 64 hex digits.

        The same tags and layers give the same id. Raises OSError if it does not fit, and leaves
        nothing behind.
        """
        names = [normalized(tag) for tag in tags]
        digits = deterministic_id("image", *sorted(names), *(layer.digits for layer in layers))
        image_id = f"{self.image_id_prefix}{digits}"
        with self._lock:
            if image_id not in self._images:
                self._acquire(image_id, layers)
                # shared layers count in full, as in every runtime
                size = sum(layer.size_bytes for layer in layers)
                self._images[image_id] = image = Image(id=image_id, size=size)
                for name in names:
                    self._tag(image, name)
        return image_id

    def writable_layer(self, container_id: str) -> str:
        """The directory of a container's writable layer."""
        return join(self._writable_root, container_id)

    def force_gc(self) -> None:
        """Frees at once what would be freed later."""
        with self._lock:
            self._collect_garbage()

    # ---- the disk, under the lock

    def _acquire(self, object_id: str, layers: Sequence[LayerSpec]) -> None:
        """An object refers to layers, of which those that are missing are written.

        Changes nothing if one does not fit or cannot be written.
        """
        missing = [layer for layer in dict.fromkeys(layers) if not self._references[layer]]
        try:
            for layer in missing:
                path = self._layer_path(layer)
                os.mkdir(path)
                for number in range(layer.files):
                    write_file(
                        join(path, f"{number:06x}"), (layer.size_bytes + number) // layer.files
                    )
                self._count(path)
        except OSError:
            for layer in missing:
                self._delete(self._layer_path(layer))
            raise
        self._references.update(layers)
        self._layers[object_id] = layers

    def _make_writable(self, container_id: str, size_bytes: int = 0) -> None:
        """Makes the writable layer of a container: one inode, and one file if it has written."""
        path = self.writable_layer(container_id)
        os.mkdir(path)
        if size_bytes:
            write_file(join(path, "data"), size_bytes)
        self._count(path)

    def _layer_path(self, layer: LayerSpec) -> str:
        return join(self._layers_root, layer.digits)

    def _count(self, path: str) -> None:
        """Counts what a directory of files takes."""
        sizes = [os.stat(each).st_blocks * 512 for each in (path, *os.scandir(path))]
        self._used[path] = sum(sizes), len(sizes)

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        self._used.pop(path, None)

    def _collect_garbage(self) -> None:
        if self._gc_timer is not None:
            self._gc_timer.cancel()
            self._gc_timer = None
        while self._removed_but_not_freed:
            object_id = self._removed_but_not_freed.pop()
            self._delete(self.writable_layer(object_id))  # sandboxes and images have none
            layers = self._layers.pop(object_id)
            self._references.subtract(layers)
            for layer in layers:
                if not self._references[layer]:
                    self._delete(self._layer_path(layer))

    # ---- the tables, under their lock

    def _now_ns(self) -> int:
        return time.time_ns()

    def _container(self, object_id: str) -> Container:
        return self._find(self._containers, object_id, "container")

    def _sandbox(self, object_id: str) -> Sandbox:
        return self._find(self._sandboxes, object_id, "sandbox")

    def _find(self, table: Mapping[str, Record], wanted: str, kind: str) -> Record:
        """The object with this id. `kind` is for the message. Raises NotFoundError."""
        if wanted not in table:
            raise NotFoundError(f"an error occurred when try to find {kind} {wanted!r}: not found")
        return table[wanted]

    def _new_id(self, kind: str) -> str:
        self._made += 1
        return deterministic_id(kind, self._made)

    def _containers_in(self, sandbox: Sandbox) -> list[Container]:
        return [
            each for each in self._containers.values() if self._sandbox_of[each.id] == sandbox.id
        ]

    def _described(self, as_a: Any, container: Container, **others: str) -> Any:
        """A container's entry in ListContainers, or its status in ContainerStatus."""
        answer = copied(as_a, container, **others)
        image = self._images.get(container.image_id)
        if image is not None and as_a is Container:  # a status, and no entry of a list
            answer.image_ref = [*image.repo_digests, answer.image_ref][0]
            answer.image.image = [*image.repo_tags, answer.image.image][0]
        if not self.fills_image_id:
            answer.image_id = ""
        return answer

    def _image_named(self, wanted: str) -> Image:
        """The image with this id, tag or repository digest. Raises NotFoundError."""
        if wanted not in self._images:
            name = normalized(wanted)
            for image in self._images.values():
                if name in (*image.repo_tags, *image.repo_digests):
                    return image
        return self._find(self._images, wanted, "image")

    def _image_item(self, image: Image) -> Image:
        """An image in ListImages and ImageStatus."""
        item: Image = copied(
            Image, image, pinned=self.pins_sandbox_image and self.sandbox_image in image.repo_tags
        )
        return item

    def _tag(self, image: Image, tag: str) -> None:
        """Adds a tag to an image, with the digest of its repository."""
        digest = f"{repository_of(tag)}@sha256:{deterministic_id('manifest', image.id)}"
        image.repo_tags.append(tag)
        if digest not in image.repo_digests:
            image.repo_digests.append(digest)

    def _stop(self, container: Container) -> None:
        if container.state in _LIVE:
            container.MergeFrom(Container(**exited(_KILLED, self._now_ns())))

    def _drop_image(self, image: Image) -> None:
        del self._images[image.id]
        self._removed("image", image.id, 0.0)

    def _drop_container(self, container: Container) -> None:
        del self._containers[container.id], self._sandbox_of[container.id]
        self._removed("container", container.id, self.container_space_delay_seconds)

    def _drop_sandbox(self, sandbox: Sandbox) -> None:
        for container in self._containers_in(sandbox):
            self._drop_container(container)
        del self._sandboxes[sandbox.id]
        self._removed("sandbox", sandbox.id, self.container_space_delay_seconds)

    def _removed(self, kind: str, object_id: str, delay_seconds: float) -> None:
        """Records a removal. Its space is freed with all that waits: at once, or by one timer."""
        self._removals.append(RemovalRecord(self._now_ns() / 1e9, kind, object_id))
        self._removed_but_not_freed.append(object_id)
        if delay_seconds <= 0:
            self._collect_garbage()
        elif self._gc_timer is None:
            self._gc_timer = threading.Timer(delay_seconds, self.force_gc)
            self._gc_timer.daemon = True
            self._gc_timer.start()


def exited(exit_code: int, at_ns: int) -> Json:
    """The fields of a container whose process has ended."""
    return {"state": cri_pb2.CONTAINER_EXITED, "exit_code": exit_code, "finished_at": at_ns}


def write_file(path: str, size_bytes: int) -> None:
    """Makes a file. Raises OSError if it does not fit."""
    whole, rest = divmod(size_bytes, len(CONTENT))
    with open(path, "xb") as file:
        file.write(CONTENT * whole + CONTENT[:rest])


def deterministic_id(*parts: object) -> str:
    """64 hex digits that depend on the parts alone: two runs of a scenario have the same ids."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def copied(as_a: Any, record: Message, **others: str | int) -> Any:
    """An answer with all fields of a record that it knows, and with others."""
    known = as_a.DESCRIPTOR.fields_by_name
    return as_a(
        **{field.name: value for field, value in record.ListFields() if field.name in known}
        | others
    )


_WORKERS = 32  # concurrent calls; threads start when needed, and a call that hangs occupies one
_TICK_SECONDS = 0.005


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

    def apply(self, method: str, act: Callable[[], Record], empty: Record) -> Record:
        """Executes one call of a method with `act`, under the fault that applies.

        `empty` is the answer if it does nothing.
        Raises InjectedError if the fault makes the call fail, and everything that `act` raises.
        """
        arrived = time.monotonic()
        action = self._arrive(method)
        if action is None:
            return act()
        while self.data.get(method) is action and (
            action.seconds is None or time.monotonic() < arrived + action.seconds
        ):
            if self.closed:
                raise InjectedError(StatusCode.UNAVAILABLE, "the server stopped")
            time.sleep(_TICK_SECONDS)
        answer = act() if action.acts else empty
        if action.change is not None:
            answer = action.change(answer)
        if action.code is not None:
            raise InjectedError(
                action.code, action.message, None if action.change is None else answer
            )
        return answer

    def _arrive(self, method: str) -> Failpoint | None:
        """A call arrives. Returns the fault that applies to it."""
        with self._lock:
            action = self.data.get(method)
            if action is not None and action.times is not None:
                action.times -= 1
                return action if action.times >= 0 else None
            return action


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
            server = grpc.server(
                workers,
                [self],
                options=[("grpc.max_send_message_length", self.largest_answer_bytes)],
            )
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
        return self._handler(
            Method(
                call,
                request,
                answer=getattr(cri_pb2, f"{call}Response"),
                function=self.runtime.answer,
            )
        )

    def _handler(self, method: Method) -> "grpc.RpcMethodHandler[Any, Any]":
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
