"""Since when containerd has its images: its image store, and the two clocks when it started.

* containerd's content is shared by all its namespaces, so the file of an image says when anybody brought it. The record
  of an image belongs to one namespace. CRI keeps one by each image's id, made at the end of the pull that brought it.
* That time is of the wall clock, which may have been set since. What both clocks showed earlier in this boot can be
  told of the runtime's own process: the kernel knows when it started, and its socket is dated with the wall time then.
  The socket is made later by as long as the runtime took to start, and by so much this is inexact.

Sources: containerd `api/services/images/v1/images.proto`, `core/metadata/images.go`,
`internal/cri/server/images/image_pull.go` (createImageReference).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping

from reclaim.cri import image_store_pb2 as pb
from reclaim.cri.leases import NAMESPACE
from reclaim.cri.messages import DecodeError
from reclaim.cri.status import CallError
from reclaim.services import RuntimeService

LIST_IMAGES = "/containerd.services.images.v1.Images/List"
ASK_SECONDS = 2.0
ID_FILTER = 'name~="^sha256:"'
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)
_START_FIELD = 19  # of /proc/PID/stat behind the name: start time in ticks since boot (proc(5))


def brought_at(runtime: RuntimeService, seconds: float = ASK_SECONDS) -> Mapping[str, float]:
    """When each image was brought into CRI's namespace, wall seconds by image id. Empty where the runtime does not say:
    it is not containerd, or does not answer within so many seconds."""
    request = pb.ListImagesRequest(filters=[ID_FILTER])
    try:
        answer = runtime.call_service(LIST_IMAGES, request.SerializeToString(), seconds, NAMESPACE)
        listed = pb.ListImagesResponse.FromString(answer)
    except (CallError, DecodeError):
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
