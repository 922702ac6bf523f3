"""What containerd offers beside CRI at the same socket: its leases, and since when it has its images.

* **Leases.** A lease keeps what its owner has attached to it from containerd's garbage collection. To ours nothing is
  attached, so it keeps nothing: it is made to be deleted with `sync`, which schedules a garbage collection at once and
  is answered after it. It has the label `containerd.io/gc.expire`, so containerd deletes it by itself if we cannot.
* **Images.** containerd's content is shared by all its namespaces, so the file of an image says when anybody brought
  it. The record of an image belongs to one namespace. CRI keeps one by each image's id, made at the end of the pull
  that brought it.
* **Clocks.** That time is of the wall clock, which may have been set since. What both clocks showed earlier in this
  boot can be told of the runtime's own process: the kernel knows when it started, and its socket is dated with the wall
  time then. The socket is made later by as long as the runtime took to start, and by so much this is inexact.

Sources: https://github.com/containerd/containerd/blob/main/docs/garbage-collection.md (Synchronous Garbage Collection,
Garbage Collection labels), `api/services/leases/v1/leases.proto`, `api/services/images/v1/images.proto`,
`core/metadata/images.go`, `internal/cri/server/images/image_pull.go` (createImageReference).

Covers: the calls. Does not cover: when leases are made (`reclaim.containerd`).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from reclaim.cri import image_store_pb2, leases_pb2
from reclaim.cri.status import CallError, Code, Message, parsed
from reclaim.services import RuntimeService

LEASES_SERVICE = "/containerd.services.leases.v1.Leases/"
NAMESPACE = (("containerd-namespace", "k8s.io"),)
"""CRI's namespace: there our leases are, and the records of images that count. A garbage collection is always one of
all namespaces."""

ID_PREFIX = "reclaimd-garbage-"
EXPIRE_LABEL = "containerd.io/gc.expire"

LIST_IMAGES = "/containerd.services.images.v1.Images/List"
ASK_SECONDS = 2.0
ID_FILTER = 'name~="^sha256:"'
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)
_START_FIELD = 19  # of /proc/PID/stat behind the name: start time in ticks since boot (proc(5))


class Leases:
    """The leases of the runtime behind one socket. All methods raise CallError, and wait at most so many `seconds`."""

    def __init__(self, runtime: RuntimeService):
        self._runtime = runtime

    def ours(self, seconds: float) -> tuple[str, ...]:
        """The ids of the leases that we have made, earlier runs included. Changes nothing."""
        answer = self._call("List", leases_pb2.ListRequest(filters=[f'id~="^{ID_PREFIX}"']), seconds)
        listed = parsed(leases_pb2.ListResponse, answer)
        return tuple(lease.id for lease in listed.leases if lease.id.startswith(ID_PREFIX))

    def create(self, lease_id: str, expires_at: float, seconds: float) -> None:
        """Makes a lease to which nothing is attached. `expires_at`: in seconds since the epoch."""
        label = datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._call("Create", leases_pb2.CreateRequest(id=lease_id, labels={EXPIRE_LABEL: label}), seconds)

    def delete(self, lease_id: str, seconds: float) -> None:
        """Deletes a lease; one that is gone is deleted."""
        try:
            self._call("Delete", leases_pb2.DeleteRequest(id=lease_id), seconds)
        except CallError as error:
            if error.code is not Code.NOT_FOUND:
                raise

    def delete_and_collect(self, lease_id: str, seconds: float) -> None:
        """Deletes a lease, and waits for the garbage collection that containerd runs then. Of a lease that is gone it
        runs none, which is NOT_FOUND."""
        self._call("Delete", leases_pb2.DeleteRequest(id=lease_id, sync=True), seconds)

    def _call(self, method: str, request: Message, seconds: float) -> bytes:
        return self._runtime.call_service(LEASES_SERVICE + method, request.SerializeToString(), seconds, NAMESPACE)


def brought_at(runtime: RuntimeService, seconds: float = ASK_SECONDS) -> Mapping[str, float]:
    """When each image was brought into CRI's namespace, wall seconds by image id. Empty where the runtime does not say:
    it is not containerd, or does not answer within so many seconds."""
    request = image_store_pb2.ListImagesRequest(filters=[ID_FILTER])
    try:
        answer = runtime.call_service(LIST_IMAGES, request.SerializeToString(), seconds, NAMESPACE)
        listed = parsed(image_store_pb2.ListImagesResponse, answer)
    except CallError:
        return {}
    return {image.name: image.created_at.seconds + image.created_at.nanos / 1e9 for image in listed.images}


def clocks_at_start(path: str) -> tuple[float, float] | None:
    """How many seconds ago the process behind a unix socket started, and the wall time at which it made the socket.

    None where the kernel does not tell, as of a process in another PID namespace. Waits for a second at most.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        with open(f"/proc/{_CREDENTIALS.unpack(credentials)[0]}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[_START_FIELD])
        made = os.stat(path).st_mtime
    except (OSError, ValueError, IndexError):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), made
