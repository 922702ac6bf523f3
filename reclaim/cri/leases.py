"""containerd's leases, over its own gRPC API on the socket that CRI is served at.

A lease keeps what its owner has attached to it from containerd's garbage collection. To ours nothing is attached, so it
keeps nothing: it is made to be deleted with `sync`, which schedules a garbage collection at once and is answered after
it. It has the label `containerd.io/gc.expire`, so containerd deletes it by itself if we cannot.

Sources: https://github.com/containerd/containerd/blob/main/docs/garbage-collection.md (Synchronous Garbage Collection,
Garbage Collection labels), `api/services/leases/v1/leases.proto`.

Covers: the calls. Does not cover: when they are made (`reclaim.containerd_garbage`).
"""

from __future__ import annotations

from datetime import UTC, datetime

from reclaim.cri import leases_pb2 as pb
from reclaim.cri.messages import DecodeError
from reclaim.cri.status import CallError, Code
from reclaim.services import RuntimeService

LEASES_SERVICE = "/containerd.services.leases.v1.Leases/"
NAMESPACE = (("containerd-namespace", "k8s.io"),)
"""Where our leases are: CRI's namespace. A garbage collection is always one of all namespaces."""

ID_PREFIX = "reclaimd-garbage-"
EXPIRE_LABEL = "containerd.io/gc.expire"


class Leases:
    """The leases of the runtime behind one socket. All methods raise CallError, and wait at most so many `seconds`."""

    def __init__(self, runtime: RuntimeService):
        self._runtime = runtime

    def ours(self, seconds: float) -> tuple[str, ...]:
        """The ids of the leases that we have made, earlier runs included. Changes nothing."""
        answer = self._call("List", pb.ListRequest(filters=[f'id~="^{ID_PREFIX}"']), seconds)
        try:
            listed = pb.ListResponse.FromString(answer)
        except DecodeError as error:
            raise CallError(Code.INTERNAL, f"the answer cannot be read: {error}") from error
        return tuple(lease.id for lease in listed.leases if lease.id.startswith(ID_PREFIX))

    def create(self, lease_id: str, expires_at: float, seconds: float) -> None:
        """Makes a lease to which nothing is attached. `expires_at`: in seconds since the epoch."""
        label = datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._call("Create", pb.CreateRequest(id=lease_id, labels={EXPIRE_LABEL: label}), seconds)

    def delete(self, lease_id: str, seconds: float) -> None:
        """Deletes a lease; one that is gone is deleted."""
        try:
            self._call("Delete", pb.DeleteRequest(id=lease_id), seconds)
        except CallError as error:
            if error.code is not Code.NOT_FOUND:
                raise

    def delete_and_collect(self, lease_id: str, seconds: float) -> None:
        """Deletes a lease, and waits for the garbage collection that containerd runs then. Of a lease that is gone it
        runs none, which is NOT_FOUND."""
        self._call("Delete", pb.DeleteRequest(id=lease_id, sync=True), seconds)

    def _call(
        self, method: str, request: pb.ListRequest | pb.CreateRequest | pb.DeleteRequest, seconds: float
    ) -> bytes:
        return self._runtime.call_service(LEASES_SERVICE + method, request.SerializeToString(), seconds, NAMESPACE)
