"""Every `-o json` document and every line of the JSON log is as its schema in `config/schema` says.

`answer` and `Daemon` of `tests.reclaimd_process` hold all other tests to that too.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.commands import COMMANDS
from eviction.drill.runtime.layer_store import LayerSpec
from manual import options_of
from schemas import PRINTED
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import FullServer
from tests.nodes.pod_maker import PodMaker
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.repository import ROOT
from tests.schemas import problems, schema_of, strict_validator

LOG_METHODS = ("debug", "info", "warning", "error", "warn", "event", "in_text")
ALWAYS_MET = {"nodefs.available": "99%"}  # no disk is that empty


class PlainNode:
    """An embedded runtime with images and a dead container, and a kubelet's directories,
    on the machine's own disk.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runtime = FullRuntime(str(directory / "images"))
        self._runtime.add_image([self._runtime.sandbox_image], [LayerSpec("pause", 4096)])
        for name in ("app", "old/1", "old/2"):
            self._runtime.add_image([f"registry.example/{name}:1"], [LayerSpec(name, 8192)])
        self._server = FullServer(self._runtime, str(directory / "cri.sock"))
        self._server.start()
        self._endpoint = f"unix://{self._server.socket_path}"
        self._maker = PodMaker(self._endpoint, str(directory / "kubelet"))
        self._make_pods()

    def _make_pods(self) -> None:
        """One that runs and one that is gone."""
        for name in ("web", "gone"):
            pod = self._directory / "kubelet" / "pods" / f"uid-{name}"
            pod.mkdir(parents=True)
            sandbox = self._maker.run_pod(name, f"uid-{name}", str(self._directory / "log" / name))
            container = self._maker.run_container(
                sandbox, (name, f"uid-{name}"), "app", "registry.example/app:1"
            )
            if name == "gone":
                self._runtime.exit_container(container, 0)
                self._runtime.age(container, 3600.0)
                self._runtime.kill_sandbox(sandbox)
                shutil.rmtree(pod)

    def close(self) -> None:
        """Ends the runtime."""
        self._maker.close()
        self._server.stop()

    def configuration(self, **fields: Any) -> str:
        """The path of a configuration file."""
        path = self._directory / f"{len(list(self._directory.glob('*.yaml')))}.yaml"
        usual = {
            "rootDirectory": str(self._directory / "kubelet"),
            "containerRuntimeEndpoint": self._endpoint,
            "controlSocket": str(self._directory / "control.sock"),
            "historyFile": str(self._directory / "history"),
            "historySize": "1Mi",
            "holdOffAfterStart": "0s",
            "holdOffForNewPods": "0s",
            "imageMinimumGCAge": "0s",
            "evictionHard": ALWAYS_MET,
        }
        return str(write_configuration(path, **{**usual, **fields}))


@pytest.fixture
def plain_node(tmp_path: Path) -> Iterator[PlainNode]:
    """No filesystem is mounted."""
    made = PlainNode(tmp_path)
    yield made
    made.close()


def test_every_command_with_json_has_a_schema() -> None:
    """The kinds of documents, by the command that prints them; a new command needs an
    entry here and in PRINTED.
    """
    printed = {
        "ballast": {"ballast"},
        "check": {"check"},
        "config": {"effective-configuration"},
        "doctor": {"doctor"},
        "drill": {"drill-report"},
        "history": {"history", "regret"},
        "plan": {"plan"},
        "reclaim": {"pass", "nothing-to-do"},
        "status": {"status"},
        "why": {"why"},
    }
    with_json = {
        c for c in COMMANDS if any("--output" in option.spellings for option in options_of(c))
    }
    assert printed.keys() == with_json
    assert set().union(*printed.values()) | {"log-line"} == PRINTED.keys()


@pytest.mark.parametrize("name", PRINTED)
def test_every_field_is_described(name: str) -> None:
    """Each part has a title and a description, each field a sentence."""
    schema = schema_of(name)
    for part in (schema, *schema.get("$defs", {}).values()):
        assert part["title"]
        assert part["description"]
        for field, described in part["properties"].items():
            assert described["description"].endswith("."), (part["title"], field)


def fields_given_to_the_log() -> set[str]:
    """The names in calls of a log's methods; `key` says which lines repeat each
    other, and is not written.
    """
    found = set()
    for path in sorted((ROOT / "eviction").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if (
                    method in LOG_METHODS
                ):
                    if "log" in ast.unparse(owner):
                        found |= {
                            keyword.arg for keyword in node.keywords if keyword.arg is not None
                        }
    return found - {"key"}


def test_every_field_that_the_code_gives_to_the_log_is_in_its_schema() -> None:
    """Also those of lines that no test causes."""
    given = fields_given_to_the_log()
    assert {"endpoint", "signal"} <= given
    assert given <= schema_of("log-line")["properties"].keys()


def test_commands_without_a_daemon_print_what_their_schemas_say(
    plain_node: PlainNode, tmp_path: Path
) -> None:
    """Under pressure and without; the pass that cannot relieve tells where the
    bytes are; the history has it.
    """
    pressed, calm = (
        plain_node.configuration(),
        plain_node.configuration(evictionHard={"nodefs.available": "1Ki"}),
    )

    def told(*arguments: str, file: str = pressed) -> Any:
        return answer(reclaimd_here(*arguments, "--config", file, "-o", "json"))

    assert told("check")["thresholds_met"]
    assert told("check", file=calm)["thresholds_met"] == []
    assert told("config")["values"]["evictionHard"]["nodefs.available"] == "99%"
    assert {each["check"] for each in told("doctor")["findings"]}
    assert {each["verdict"] for each in told("plan")["kept"]} == {"keep"}
    assert told("plan", "--signal", "nodefs.available")["enough"] is False
    assert told("why", "registry.example/old/1")["objects"][0]["place"] is not None
    assert told("reclaim", "--dry-run")["result"] == "dry_run"
    assert told("reclaim", file=calm)["kind"] == "NothingToDo"
    record = told("reclaim")
    assert (record["kind"], record["result"]) == ("Pass", "not_enough")
    assert record["attribution"]
    assert [each["result"] for each in record["removals"]].count("removed") >= 3
    assert [each["kind"] for each in told("history")["records"]] == ["pass"]
    ballast = ("--file", str(tmp_path / "ballast"), "--size", "1Mi")
    for action in ("status", "create", "status", "remove", "remove"):
        assert told("ballast", action, *ballast)["kind"] == "Ballast"


def test_a_daemon_and_what_it_answers_are_as_their_schemas_say(plain_node: PlainNode) -> None:
    """Status; a check and a pass that the daemon does; a reload; the lines of
    its log, debug events too, are looked at when it has ended."""
    file = plain_node.configuration()
    with Daemon("--config", file, "-v", "1") as daemon:
        daemon.wait_for(lambda event: "record" in event)
        daemon.wait_for(lambda event: "attribution" in event)

        def told() -> Any:
            return answer(reclaimd("status", "--config", file, "-o", "json"))

        assert came_true(lambda: any("attribution" in each for each in told()["passes"]))
        assert told()["functions"]
        assert answer(reclaimd("check", "--config", file, "-o", "json"))["kind"] == "Check"
        assert answer(reclaimd("reclaim", "--config", file, "-o", "json"))["kind"] == "Pass"
        assert daemon.stop() == 0
    fields = set().union(*daemon.events)
    assert {
        "endpoint",
        "condition",
        "status",
        "event",
        "pass",
        "result",
        "record",
        "attribution",
    } <= fields
    records = answer(reclaimd_here("history", "--config", file, "-o", "json"))["records"]
    assert {each["kind"] for each in records} == {"started", "pass", "stopped"}


def test_what_has_a_field_too_many_or_too_few_is_found(plain_node: PlainNode) -> None:
    """The strict form of a schema, which these tests rely on; a program of somebody
    else's allows further fields.
    """
    document = answer(reclaimd_here("plan", "--config", plain_node.configuration(), "-o", "json"))
    found = strict_validator("plan")
    assert problems(found, {**document, "colour": "red"}) != []
    assert problems(found, {key: value for key, value in document.items() if key != "row"}) != []
    document["kept"][0]["colour"] = "red"
    assert problems(found, document) != []
