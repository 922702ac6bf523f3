"""Failpoints over the socket: what a client sees when a runtime fails, is late,
hangs, or acts and then fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.drill.run.embedded import FaultSchedule, failpoint_of
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.scenario import Fault
from reclaim.cri import cri_pb2
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import ActThenFail, Cut, Delay, Fail, Hang, Pretend
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import FullServer
from tests.nodes.method_faults import MethodFault, When, arm
from tests.reclaimd_process import came_true
from tests.sockets.cri_calls import CriCalls

NAME = "registry.example/app:1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FullServer]:
    runtime = FullRuntime(str(tmp_path / "images"))
    runtime.add_image([NAME], [LayerSpec("app", 4096)])
    serving = FullServer(runtime, str(tmp_path / "cri.sock"))
    serving.start()
    yield serving
    serving.stop()


@pytest.fixture
def calls(server: FullServer) -> Iterator[CriCalls]:
    with CriCalls(server.target) as connected:
        yield connected


def removed(server: FullServer) -> list[str]:
    """The kinds of the objects that were really removed so far."""
    return [each.kind for each in server.runtime.removals]


def test_a_method_fails_a_number_of_times_and_then_works(
    server: FullServer, calls: CriCalls
) -> None:
    """Two failures with the code and the message given, nothing removed; the third call removes."""
    server.failpoints["RemoveImage"] = Fail(grpc.StatusCode.INTERNAL, "lost the lease", times=2)
    for _ in range(2):
        assert calls.error("RemoveImage", image={"image": NAME}) == (
            grpc.StatusCode.INTERNAL,
            "lost the lease",
        )
    assert removed(server) == []
    calls.call("RemoveImage", image={"image": NAME})
    assert removed(server) == ["image"]
    assert server.failpoints.calls["RemoveImage"] == 3


def test_a_method_fails_until_the_failpoint_is_deleted(server: FullServer, calls: CriCalls) -> None:
    """Without a number it fails always. Other methods work."""
    server.failpoints["ListImages"] = Fail()
    for _ in range(3):
        assert calls.error("ListImages")[0] is grpc.StatusCode.UNAVAILABLE
    calls.call("ListContainers")
    del server.failpoints["ListImages"]
    assert len(calls.call("ListImages").images) == 1


def test_a_call_can_act_and_then_fail(server: FullServer, calls: CriCalls) -> None:
    """The call fails with DEADLINE_EXCEEDED, and the image is removed."""
    server.failpoints["RemoveImage"] = ActThenFail(times=1)
    assert calls.error("RemoveImage", image={"image": NAME})[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(calls.call("ListImages").images) == 0


def test_a_delay_lasts_at_least_its_time(server: FullServer, calls: CriCalls) -> None:
    """0.1 s late, once."""
    server.failpoints["Version"] = Delay(0.1, times=1)
    started = time.monotonic()
    calls.call("Version")
    assert time.monotonic() - started >= 0.1


def test_a_delay_ends_when_it_is_deleted(server: FullServer, calls: CriCalls) -> None:
    """A call that would be an hour late continues at once."""
    server.failpoints["Version"] = Delay(3600)
    late = calls.begin("Version")
    assert server.failpoints.wait_for_calls("Version", 1, timeout_seconds=60)
    del server.failpoints["Version"]
    assert late.result().runtime_api_version == "v1"


def test_a_call_hangs_until_it_is_released_and_others_do_not(
    server: FullServer, calls: CriCalls
) -> None:
    """The list hangs, Version is answered meanwhile, and deleting the failpoint
    releases the list.
    """
    server.failpoints["ListImages"] = Hang()
    hanging = calls.begin("ListImages")
    assert server.failpoints.wait_for_calls("ListImages", 1, timeout_seconds=60)
    calls.call("Version")
    assert not hanging.done()
    del server.failpoints["ListImages"]
    assert len(hanging.result().images) == 1


def test_a_call_can_act_after_its_client_gave_up(server: FullServer, calls: CriCalls) -> None:
    """The deadline of 1 s passes while the call hangs; once released, it removes the image."""
    server.failpoints["RemoveImage"] = Hang(times=1)
    code, _ = calls.error("RemoveImage", timeout_seconds=1.0, image={"image": NAME})
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert removed(server) == []
    server.failpoints.clear()
    assert came_true(lambda: removed(server) == ["image"])


def test_a_stop_drops_the_calls_that_hang(server: FullServer, calls: CriCalls) -> None:
    """The calls that hang do nothing; after the restart the failpoint is still set."""
    server.failpoints["RemoveImage"] = Hang()
    hanging = calls.begin("RemoveImage", image={"image": NAME})
    assert server.failpoints.wait_for_calls("RemoveImage", 1, timeout_seconds=60)
    server.stop()
    server.start()
    assert hanging.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert removed(server) == []
    with CriCalls(server.target) as again:
        code, _ = again.error("RemoveImage", timeout_seconds=1.0, image={"image": NAME})
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_cut_list_is_an_error_for_a_unary_client(server: FullServer, calls: CriCalls) -> None:
    """A complete message with half of the list is sent, then the error; a
    unary client gets the error.
    """
    server.failpoints["ListImages"] = Cut(grpc.StatusCode.INTERNAL, "cut", times=1)
    assert calls.error("ListImages") == (grpc.StatusCode.INTERNAL, "cut")
    channel = grpc.insecure_channel(
        server.target, options=[("grpc.default_authority", "localhost")]
    )
    server.runtime.add_image(["registry.example/app:2"], [LayerSpec("second", 4096)])
    server.failpoints["ListImages"] = Cut(grpc.StatusCode.INTERNAL, "cut", times=1)
    with channel:
        stream: Any = channel.unary_stream("/runtime.v1.ImageService/ListImages")
        messages = stream(b"", timeout=60.0)
        assert len(cri_pb2.ListImagesResponse.FromString(next(messages)).images) == 1
        with pytest.raises(grpc.RpcError) as caught:
            next(messages)
    assert caught.value.code() is grpc.StatusCode.INTERNAL


def test_a_runtime_can_report_success_without_acting(server: FullServer, calls: CriCalls) -> None:
    """RemoveImage succeeds, and the image still exists."""
    server.failpoints["RemoveImage"] = Pretend(times=1)
    calls.call("RemoveImage", image={"image": NAME})
    assert removed(server) == []
    assert len(calls.call("ListImages").images) == 1


def test_a_runtime_can_give_distorted_answers_from_its_second_call_on(
    server: FullServer, calls: CriCalls
) -> None:
    """The first list is true; the second has each image twice; nothing on the node has changed."""
    arm(
        server.failpoints,
        MethodFault("ListImages", Distort(Distortion.DUPLICATE_ENTRIES), When(from_call=2)),
    )
    assert [len(calls.call("ListImages").images) for _ in range(3)] == [1, 2, 2]
    server.failpoints.clear()
    assert len(calls.call("ListImages").images) == 1


@pytest.mark.regression
def test_a_fault_of_a_scenario_does_not_end_a_later_one_of_its_method(server: FullServer) -> None:
    """The first ends while the second, which has replaced it, lasts on."""
    first = Fault.model_validate(
        {"action": "hang", "method": "ListImages", "at": "0s", "lasts": "200ms"}
    )
    second = Fault.model_validate({"action": "fail", "method": "ListImages", "at": "100ms"})
    schedule = FaultSchedule((first, second), server, [])
    schedule.start(time.monotonic())
    assert came_true(lambda: not schedule.running)
    assert server.failpoints["ListImages"] == failpoint_of(second)
    schedule.stop()


def test_a_mistyped_method_is_refused(server: FullServer) -> None:
    """A failpoint that is never reached would make its test pass without testing anything."""
    with pytest.raises(KeyError, match="RemoveImages"):
        server.failpoints["RemoveImages"] = Fail()


def test_failpoints_are_a_mapping(server: FullServer) -> None:
    """They can be read, counted, replaced and cleared like any mapping; a
    used-up one is still listed.
    """
    server.failpoints.update({"Version": Fail(times=1), "Status": Delay(1)})
    server.failpoints["Status"] = Hang()
    assert dict(server.failpoints) == {"Version": Fail(times=1), "Status": Hang()}
    server.failpoints.clear()
    assert len(server.failpoints) == 0
