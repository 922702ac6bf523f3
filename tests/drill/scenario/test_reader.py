"""Scenarios that the reader accepts, and the messages with which it refuses others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from eviction.drill.judgement.judge import judge
from eviction.drill.run.embedded import describe_fault, failpoint_of
from eviction.drill.scenario import (
    GONE_FIELDS,
    Fault,
    FaultAction,
    ImageSpec,
    Method,
    PodState,
    ScenarioError,
    find_scenario,
    library,
    read_scenario,
    scenario_of,
)
from reclaim.cri.status import Code
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservation, SignalObservations
from tests.drill.documents import IMAGEFS, MIB, SCENARIO, document, measurements, scenario
from tests.nodes import faults
from tests.nodes.faults import CODES
from tests.nodes.full_server import METHODS

PULL = {"grows": "pull", "rate": "1Mi", "image": {"name": "registry.example/new", "size": "1Mi"}}
RESTART = {"action": "restart", "at": "1s"}
HANG = {"action": "hang", "method": "RemoveImage", "at": "1s"}

REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown field": ({"speed": "fast"}, ["speed", "pressure"]),
    "an unknown field of an expectation": ({"expect": {"hope": True}}, ["expect.hope"]),
    "a missing part": ({"expect": None}, ["expect"]),
    "no pressure": ({"pressure": []}, ["pressure"]),
    "no image": ({"node": {"images": []}}, ["node.images"]),
    "a duplicate image": (
        {
            "node": {
                "images": [
                    *SCENARIO["node"]["images"],
                    {"name": "registry.example/web", "size": "1Mi"},
                ]
            }
        },
        ["node.images", "registry.example/web:1", "twice"],
    ),
    "a duplicate pod": (
        {"node": {"pods": [SCENARIO["node"]["pods"][0]] * 2}},
        ["node.pods", "web", "twice"],
    ),
    "a negative size": ({"node": {"size": "-1Gi"}}, ["node.size", "-1Gi"]),
    "a size that is too large": ({"node": {"size": "5Ti"}}, ["node.size", "1Ti"]),
    "an imagefs in the layout single": ({"node": {"imagefs": IMAGEFS}}, ["node.imagefs", "single"]),
    "a layout without its imagefs": (
        {"node": {"layout": "split"}},
        ["node.imagefs", "split", "need"],
    ),
    "an unknown layout": ({"node": {"layout": "mirrored"}}, ["node.layout", "mirrored"]),
    "a filesystem of its own with a name of the kubelet's": (
        {"node": {"filesystems": [{**IMAGEFS, "name": "imagefs"}]}},
        ["node.filesystems", "imagefs", "has a meaning of its own"],
    ),
    "two filesystems of its own with one name": (
        {"node": {"filesystems": [{**IMAGEFS, "name": "cache"}] * 2}},
        ["node.filesystems", "cache", "twice"],
    ),
    "two functions with one name": (
        {"node": {"functions": [{"name": "prune", "does": "lies", "frees": "nodefs"}] * 2}},
        ["node.reclaimFunctions", "prune", "twice"],
    ),
    "no threshold": ({"node": {"evictionHard": {}}}, ["node.evictionHard", "evictionSoft"]),
    "a soft threshold without grace": (
        {"node": {"evictionSoft": {"nodefs.available": "20%"}}},
        ["node.evictionSoft", "evictionSoftGracePeriod"],
    ),
    "an unknown field of the configuration": (
        {"node": {"configuration": {"colour": "red"}}},
        ["colour", "help configuration"],
    ),
    "an invalid value in the configuration": (
        {"node": {"configuration": {"extent": "some"}}},
        ["node.configuration", "extent", "some"],
    ),
    "a field that the drill sets": (
        {"node": {"configuration": {"rootDirectory": "/x"}}},
        ["node.configuration.rootDirectory", "the drill sets it"],
    ),
    "a threshold among the other fields": (
        {"node": {"configuration": {"evictionHard": {}}}},
        ["node.configuration.evictionHard", "under node"],
    ),
    "a rate of zero": ({"pressure": {"rate": "0"}}, ["pressure.0.rate", "0"]),
    "a pressure without an end": (
        {"pressure": {"amount": None}},
        ["pressure.0.amount", "pressure.0.for", "full"],
    ),
    "bytes with a pod": ({"pressure": {"pod": "web"}}, ["pressure.0.pod", "bytes"]),
    "a log without a pod": ({"pressure": {"grows": "log"}}, ["pressure.0.pod", "missing", "log"]),
    "a log of an unknown pod": (
        {"pressure": {"grows": "log", "pod": "db"}},
        ["pressure.0.pod", "db"],
    ),
    "a log of a container that has not started": (
        {"pressure": {"grows": "log", "pod": "next"}},
        ["pressure.0.pod", "next", "log"],
    ),
    "a log of a vanished pod": (
        {
            "node": {
                "pods": [{"name": "old", "image": "registry.example/web:1", "state": "vanished"}]
            },
            "pressure": {"grows": "log", "pod": "old"},
        },
        ["pressure.0.pod", "old", "log"],
    ),
    "a writable layer of a dead container": (
        {"pressure": {"grows": "writable", "pod": "crashed"}},
        ["pressure.0.pod", "is crashed", "writable"],
    ),
    "a log with a filesystem": (
        {"pressure": {"grows": "log", "pod": "web", "where": "nodefs"}},
        ["pressure.0.where"],
    ),
    "a pull without an image": ({"pressure": {"grows": "pull"}}, ["pressure.0.image", "missing"]),
    "a pull that does not remain": (
        {"pressure": [{**PULL, "remains": False}]},
        ["pressure.0.remains", "pulled"],
    ),
    "a pull of an image that is present": (
        {"pressure": [{**PULL, "image": {"name": "registry.example/web", "size": "1Mi"}}]},
        ["pressure.0.image", "registry.example/web:1", "twice"],
    ),
    "a file size with bytes": ({"pressure": {"fileSize": "1Ki"}}, ["pressure.0.fileSize"]),
    "the second pressure": (
        {"pressure": [SCENARIO["pressure"], {**SCENARIO["pressure"], "rate": "fast"}]},
        ["pressure.1.rate", "fast"],
    ),
    "a fault without a time": ({"faults": [{"action": "restart"}]}, ["faults.0.at", "missing"]),
    "a fault without a method": (
        {"faults": [{"action": "hang", "at": "1s"}]},
        ["faults.0.method", "missing"],
    ),
    "a restart with a method": (
        {"faults": [{**RESTART, "method": "RemoveImage"}]},
        ["faults.0.method", "restart"],
    ),
    "an unknown method": (
        {"faults": [{**HANG, "method": "Explode"}]},
        ["faults.0.method", "Explode"],
    ),
    "a delay without a time": (
        {"faults": [{**HANG, "action": "delay"}]},
        ["faults.0.by", "missing"],
    ),
    "an outage without an end": ({"faults": [{"action": "away", "at": "1s"}]}, ["faults.0.lasts"]),
    "a negative time": ({"expect": {"relievedWithin": "-1s"}}, ["expect.relievedWithin", "-1s"]),
    "an unknown kind of object": (
        {"expect": {"goes": ["volume old"]}},
        ["expect.goes", "volume old", "container"],
    ),
    "a lowest point of an unknown signal": (
        {"expect": {"lowest": {"swap": "1Mi"}}},
        ["expect.lowest", "swap", "nodefs"],
    ),
    "a negative count": (
        {"expect": {"passesAtMost": -1}},
        ["expect.passesAtMost", "-1"],
    ),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_wrong_scenario_is_refused_by_field(refused: str) -> None:
    """One sentence with the file, the field, and what is allowed."""
    changes, texts = REFUSED[refused]
    written = {key: value for key, value in document(**changes).items() if value is not None}
    with pytest.raises(ScenarioError) as refusal:
        scenario_of(written, "a.yaml")
    sentence = str(refusal.value)
    assert sentence.startswith("a.yaml: ")
    assert "\n" not in sentence
    for text in texts:
        assert text in sentence


@pytest.mark.parametrize("field", GONE_FIELDS)
def test_a_field_that_there_was_is_refused_with_what_to_use_instead(field: str) -> None:
    """Whichever part it was in."""
    with pytest.raises(ScenarioError) as refusal:
        scenario_of(document(node={field: "x"}), "a.yaml")
    assert str(refusal.value) == f"a.yaml: the field 'node.{field}' is gone; {GONE_FIELDS[field]}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nname: b\n", "twice"),
        ("why: &x text\nname: *x\n", "aliases"),
        ("name: !!str a\n", "tags"),
        ("- name\n", "mapping"),
        ("name: [", "YAML"),
    ],
)
def test_yaml_that_is_easily_misread_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Duplicates, aliases, tags, lists: each in a sentence that names the file."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=said) as refusal:
        read_scenario(str(path))
    assert str(refusal.value).startswith(str(path))


def test_defaults() -> None:
    """No fault, no periodic collection, no hold-off, and every threshold
    that is not named is off.
    """
    made = scenario()
    assert (made.faults, made.node.rebooted) == ((), False)
    assert made.node.layout is FsLayout.SINGLE
    configuration = made.node.configuration
    assert (configuration["imageGCHighThresholdPercent"], configuration["holdOffAfterStart"]) == (
        100,
        "0s",
    )
    assert configuration["evictionHard"]["nodefs.available"] == "10%"
    assert configuration["evictionHard"]["imagefs.available"] == "0%"
    assert made.expect.no_restarts
    assert made.expect.new_pod_starts


def test_a_pod_has_the_dead_copies_of_its_state() -> None:
    """A crashed pod has a dead copy."""
    pods = [
        {"name": state, "image": "registry.example/web:1", "state": state}
        for state in get_args(PodState)
    ]
    made = {pod.state: pod for pod in scenario(node={"pods": pods}).node.pods}
    assert {state for state, pod in made.items() if pod.dead_copies} == {"crashed"}


def test_entries_with_a_count_are_numbered() -> None:
    """An entry with a count stands for that many objects, with numbers of two digits."""
    pods = [{"name": "job", "image": "registry.example/old-04:1", "state": "gone", "count": 3}]
    made = scenario(node={"pods": pods})
    assert made.node.pods[0].names == ["job-01", "job-02", "job-03"]
    assert made.node.images[2].names[0] == "registry.example/old-01:1"
    tagged = ImageSpec.model_validate({"name": "localhost:5000/shop:v2", "size": "1Mi", "count": 2})
    assert tagged.names == ["localhost:5000/shop-01:v2", "localhost:5000/shop-02:v2"]


@pytest.mark.parametrize(
    ("layout", "containers"),
    [("dedicated", FilesystemRole.IMAGEFS), ("split", FilesystemRole.NODEFS)],
)
def test_a_layout_says_where_writable_layers_are(layout: str, containers: FilesystemRole) -> None:
    """With the images, or with the kubelet's data."""
    node = scenario(node={"layout": layout, "imagefs": IMAGEFS}).node
    assert node.role(FilesystemRole.CONTAINERFS) is containers
    assert node.role(FilesystemRole.IMAGEFS) is FilesystemRole.IMAGEFS
    assert set(node.filesystems) == {FilesystemRole.NODEFS, FilesystemRole.IMAGEFS}


def test_a_lowest_point_may_be_a_share() -> None:
    """A percentage refers to the filesystem of the signal, which is known once it is measured."""
    least = {"imagefs.available": "50%", "nodefs.inodesFree": "10%", "nodefs.available": "1Mi"}
    made = scenario(
        node={"layout": "split", "imagefs": {"size": "20Mi", "inodes": 500}},
        expect={"lowest": least},
    )
    capacities = {Signal("imagefs.available"): 20 * MIB, Signal.NODEFS_INODES_FREE: 2000}
    signals = {
        signal: SignalObservation(signal, 0, capacity, 0.0)
        for signal, capacity in capacities.items()
    }
    checks = judge(
        made.expect,
        measurements(observations=SignalObservations(signals, FsLayout.SPLIT, 0.0), samples=()),
    )
    assert {check.name: check.expected for check in checks if check.name.startswith("lowest")} == {
        "lowest imagefs.available": "at least 10.0MiB",
        "lowest nodefs.inodesFree": "at least 200 inodes",
        "lowest nodefs.available": "at least 1.0MiB",
    }


def fault(action: FaultAction, **fields: Any) -> Fault:
    return Fault.model_validate({"action": action, "at": "0s", **fields})


def test_every_method_and_code_of_the_schema_exists() -> None:
    """The methods of the schema are methods of the embedded runtime, and every
    code is one of gRPC.
    """
    assert set(get_args(Method)) <= {method.name for method in METHODS}
    assert {code.name for code in Code if code is not Code.OK} == CODES.keys()
    for code in CODES:
        point = failpoint_of(fault("fail", method="RemoveImage", code=code))
        assert code in str(point)


@pytest.mark.parametrize("action", sorted(set(get_args(FaultAction)) - {"restart", "away"}))
def test_every_action_on_a_method_is_a_failpoint_with_a_description(action: FaultAction) -> None:
    """Each action has a failpoint of its own, with its number of calls."""
    each = fault(action, method="ListImages", times=3)
    point = failpoint_of(each)
    assert point.times == 3
    named = "".join(word.capitalize() for word in action.split("-"))
    like = getattr(faults, named)(*((0.0,) if action == "delay" else ()))
    assert (point.acts, point.seconds, point.change) == (like.acts, like.seconds, like.change)
    assert (point.code is None) == (like.code is None)
    assert "ListImages" in describe_fault(each)
    assert "3 times" in describe_fault(each)


@pytest.mark.parametrize("name", library())
def test_a_scenario_of_the_library_has_the_name_of_its_file_and_a_reason(name: str) -> None:
    """It is found by its name, and gives its reason in a sentence."""
    found = find_scenario(name)
    assert found.name == name
    assert found.why.endswith(".")
    assert len(found.why.split()) >= 8


def test_the_message_for_an_unknown_name_lists_the_library() -> None:
    """The message names every built-in scenario."""
    with pytest.raises(ScenarioError, match="fast-fill"):
        find_scenario("fats-fill")


def test_a_file_in_json_is_a_scenario_too(tmp_path: Path) -> None:
    """JSON is YAML."""
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps(document()))
    assert find_scenario(str(path)) == scenario()
