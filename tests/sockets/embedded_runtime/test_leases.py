"""The leases service of the embedded runtime follows containerd's rules, by
a gRPC client of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from reclaim.cri import leases_pb2 as pb
from tests.nodes.bare_runtime import BareRuntime

K8S = (("containerd-namespace", "k8s.io"),)
ANSWERS: dict[str, Callable[[bytes], Message]] = {
    "Create": pb.CreateResponse.FromString,
    "Delete": Empty.FromString,
    "List": pb.ListResponse.FromString,
}
Ask = Callable[..., Message]


@pytest.fixture
def ask(node: BareRuntime) -> Ask:
    """A call of the service, with the namespace of CRI unless others are given."""

    def call(method: str, request: Message, metadata: tuple[tuple[str, str], ...] = K8S) -> Message:
        with grpc.insecure_channel(
            node.server.target, options=[("grpc.default_authority", "localhost")]
        ) as channel:
            asked: grpc.UnaryUnaryMultiCallable[Message, Message] = channel.unary_unary(
                f"/containerd.services.leases.v1.Leases/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=ANSWERS[method],
            )
            return asked(request, timeout=60.0, metadata=metadata)

    return call


def code(call: Callable[[], object]) -> grpc.StatusCode:
    """The status code of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def test_a_lease_keeps_its_content_until_a_garbage_collection_after_its_end(
    node: BareRuntime, ask: Ask
) -> None:
    """A deletion without `sync` collects nothing, one with it what nothing keeps by then."""
    for name in ("first", "second"):
        ask("Create", pb.CreateRequest(id=name))
        node.server.leases.add_content(name, 1000, lease=("k8s.io", name))
    ask("Delete", pb.DeleteRequest(id="first"))
    assert node.server.leases.content == ["first", "second"]
    ask("Create", pb.CreateRequest(id="third"))
    ask("Delete", pb.DeleteRequest(id="third", sync=True))
    assert node.server.leases.content == ["second"]


def test_each_namespace_has_its_own_leases(ask: Ask) -> None:
    """The others' are neither listed nor deleted."""
    other = (("containerd-namespace", "other"),)
    for namespace in (K8S, other):
        ask("Create", pb.CreateRequest(id="lease", labels={"a": "b"}), namespace)
    ask("Delete", pb.DeleteRequest(id="lease"), other)
    assert ask("List", pb.ListRequest()) == pb.ListResponse(
        leases=[pb.Lease(id="lease", labels={"a": "b"})]
    )
    assert ask("List", pb.ListRequest(filters=['id~="^x"'])) == pb.ListResponse()


def test_an_id_is_created_once_and_deleted_once(ask: Ask) -> None:
    """As in containerd since 1.2."""
    ask("Create", pb.CreateRequest(id="lease"))
    assert (
        code(lambda: ask("Create", pb.CreateRequest(id="lease"))) is grpc.StatusCode.ALREADY_EXISTS
    )
    ask("Delete", pb.DeleteRequest(id="lease"))
    assert code(lambda: ask("Delete", pb.DeleteRequest(id="lease"))) is grpc.StatusCode.NOT_FOUND
