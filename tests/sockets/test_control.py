"""The control socket, `status`, `config` and SIGHUP: what people ask a running daemon, and tell it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.control import ControlServer, ControlUnavailable, ask
from eviction.history import replay
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, write_configuration


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run" / "control.sock")


@pytest.fixture
def server(path: str) -> Iterator[ControlServer]:
    made = ControlServer(path, {"status": lambda: {"it": "works"}, "fails": lambda: 1 / 0})
    made.start()
    yield made
    made.stop()


def talk(path: str, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(path)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


def test_only_the_owner_may_connect(server: ControlServer, path: str) -> None:
    """The socket is 0600 in a directory of 0700."""
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert ask(path, "status") == {"it": "works"}


@pytest.mark.parametrize(
    "request_line", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"command": 1}\n', b"[" * 4096, b"x" * 9000]
)
def test_what_is_no_request_is_told_so(server: ControlServer, path: str, request_line: bytes) -> None:
    """Garbage, the wrong shape, too long: an answer that names the commands, or a closed connection; never more."""
    try:
        told = talk(path, request_line)
    except (ConnectionError, BrokenPipeError):
        told = b""
    assert told == b"" or "one of status, fails" in json.loads(told)["error"]
    assert ask(path, "status") == {"it": "works"}, "and the next one is served"


def test_a_defect_in_an_answer_is_an_answer(server: ControlServer, path: str) -> None:
    """The daemon goes on."""
    with pytest.raises(ControlUnavailable, match="ZeroDivisionError"):
        ask(path, "fails")
    assert ask(path, "status") == {"it": "works"}


def test_slow_and_many_clients_keep_nobody_else_out_for_long(server: ControlServer, path: str) -> None:
    """30 clients that say nothing are let go after 2 s; then the next one is answered."""
    idle = []
    for _ in range(30):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        idle.append(client)

    def served() -> bool:
        try:
            return bool(ask(path, "status") == {"it": "works"})
        except ControlUnavailable:
            return False

    assert came_true(served, 10.0)
    assert threading.active_count() < 40
    for client in idle:
        client.close()


def test_the_socket_of_a_dead_daemon_is_replaced_and_that_of_a_living_one_is_not(path: str) -> None:
    """What kill -9 left behind is in nobody's way."""
    os.makedirs(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    first, second = (ControlServer(path, {"status": lambda: 1}) for _ in range(2))
    first.start()
    with pytest.raises(ControlUnavailable, match="another daemon answers there"):
        second.start()
    second.stop()
    assert ask(path, "status") == 1
    first.stop()
    assert not os.path.exists(path)
    with pytest.raises(ControlUnavailable, match="no daemon answers on"):
        ask(path, "status")


@pytest.fixture
def configured(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "kubelet").mkdir()
    return {
        "rootDirectory": str(tmp_path / "kubelet"),
        "containerRuntimeEndpoint": f"unix://{tmp_path}/none.sock",
        "controlSocket": str(tmp_path / "control.sock"),
        "evictionHard": {"nodefs.available": "1Mi"},
    }


def marks(configuration: Path) -> dict[str, str]:
    status = answer(reclaimd("status", "--config", str(configuration), "-o", "json"))
    return {threshold["signal"]: threshold["value"] for threshold in status["thresholds"]}


def test_status_tells_what_the_daemon_sees_and_its_past_can_be_replayed(
    tmp_path: Path, configured: dict[str, Any]
) -> None:
    """`status` in words and as JSON; with `--history` the same decisions come out of the dump again."""
    configuration = write_configuration(tmp_path / "c.yaml", **configured, pollCeiling="50ms")
    assert reclaimd("status", "--config", str(configuration)).returncode == 3
    with Daemon("--config", str(configuration)):
        time.sleep(1.0)
        words = reclaimd("status", "--config", str(configuration))
        assert (words.returncode, words.stderr) == (0, "")
        assert "no DiskPressure" in words.stdout
        assert "nodefs.available" in words.stdout
        plain = answer(reclaimd("status", "--config", str(configuration), "-o", "json"))
        assert "history" not in plain
        assert plain["heartbeat_age_seconds"] < 5.0
        told = answer(reclaimd("status", "--config", str(configuration), "-o", "json", "--history"))
    dumped, made = replay(told["history"])
    assert len(dumped) > 5
    assert dumped == made
    ended = reclaimd("status", "--config", str(configuration))
    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)


def test_sighup_takes_a_good_file_and_refuses_a_bad_one(tmp_path: Path, configured: dict[str, Any]) -> None:
    """New thresholds are in force with the next look; a refused file keeps the old ones and says so in one sentence."""
    path = tmp_path / "c.yaml"
    configuration = write_configuration(path, **configured, pollCeiling="100ms")
    with Daemon("--config", str(configuration)) as daemon:
        assert marks(configuration)["nodefs.available"] == "1Mi"
        write_configuration(path, **{**configured, "evictionHard": {"nodefs.available": "2Mi"}})
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda event: event["message"] == "the configuration was reloaded", 5.0)
        assert marks(configuration)["nodefs.available"] == "2Mi"
        good = path.read_text()
        path.write_text(good.replace("2Mi", "2MiB"))
        daemon.process.send_signal(signal.SIGHUP)
        refused = daemon.wait_for(lambda event: "the old one stays" in event["message"], 5.0)["message"]
        assert str(path) in refused
        assert "'2MiB' is neither" in refused
        path.write_text(good)
        assert marks(configuration)["nodefs.available"] == "2Mi"
        write_configuration(path, **{**configured, "containerRuntimeEndpoint": "unix:///elsewhere.sock"})
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda event: "containerRuntimeEndpoint need a restart" in event["message"], 5.0)
        assert daemon.stop() == 0


def test_config_shows_values_origins_the_ladder_and_what_comes_too_late(
    tmp_path: Path, configured: dict[str, Any]
) -> None:
    """A kubelet configuration, a drop-in and a flag: each value with where it comes from, and both numbers of a mark
    that acts later than the kubelet's."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nimageGCHighThresholdPercent: 90\n"
        "evictionHard: {nodefs.available: 2Mi, memory.available: 100Mi}\n"
    )
    drop_ins = tmp_path / "conf.d"
    drop_ins.mkdir()
    write_configuration(drop_ins / "10-rate.conf", kubeletConfig=str(kubelet), assumedFillRate="1Gi")
    configuration = write_configuration(tmp_path / "c.yaml", **configured)
    common = ("--config", str(configuration), "--config-dir", str(drop_ins), "--eviction-hard", "imagefs.available<3%")
    process = reclaimd("config", *common, "-o", "json")
    assert process.returncode == 0
    document = answer(process)
    origins = document["origins"]
    assert origins["evictionHard.nodefs.available"] == str(configuration)
    assert origins["evictionHard.imagefs.available"] == "flags"
    assert origins["evictionHard.memory.available"] == str(kubelet)
    assert origins["imageGCHighThresholdPercent"] == str(kubelet)
    assert origins["assumedFillRate"] == str(drop_ins / "10-rate.conf")
    assert origins["pollFloor"] == "default"
    left = {"memory.available": "100Mi", "allocatableMemory.available": "100Mi"}
    assert document["left_to_kubelet"] == left
    rungs = [(rung["whose"], rung["mark"]) for rung in document["ladder"] if rung["signal"] == "nodefs.available"]
    assert rungs == [("kubelet", 2 << 20), ("reclaimd", 1 << 20)]
    warning = "warning: nodefs.available: the mark of 1Mi = 1.0MiB acts later than the kubelet's of 2Mi = 2.0MiB\n"
    assert process.stderr == warning
    words = reclaimd("config", *common)
    assert (words.returncode, words.stderr) == (0, warning)
    assert "left to the kubelet" in words.stdout
