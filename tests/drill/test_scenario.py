"""Scenarios that the reader accepts, the sentences with which it refuses others, and their schema,
which accepts what it accepts."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings

from eviction.configuration.strict_yaml import read_document
from eviction.drill.embedded import describe_fault, failpoint_of
from eviction.drill.scenario import (
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
from tests.drill.documents import document, scenario
from tests.expected import expect
from tests.mutations import mutations
from tests.nodes.faults import CODES
from tests.nodes.full_server import METHODS
from tests.pages import DOCS, code_blocks
from tests.schemas import problems, validator

HERE = Path(__file__).parent
RICH: dict[str, Any] = {**document(), **yaml.safe_load((HERE / "rich.yaml").read_text())}


def refusal(written: Any) -> str | None:
    """Why the drill refuses a scenario; None if it accepts it."""
    try:
        scenario_of(written, "a.yaml")
    except ScenarioError as error:
        return str(error)
    return None


def test_a_wrong_scenario_is_refused_in_one_sentence_by_field() -> None:
    """With what is allowed. A marked one has a wrong form, which the schema refuses, too."""
    rows = yaml.safe_load((HERE / "refused.yaml").read_text())
    stories = []
    for name, changes in rows.items():
        written = {key: value for key, value in document(**changes).items() if value is not None}
        also = "by the schema, too: " if problems(validator("scenario"), written) else ""
        said = refusal(written)
        assert said is not None, name
        assert "\n" not in said
        stories.append(f"{name}\n  {also}{said}\n")
    expect(HERE / "refused.txt", "".join(stories))


@pytest.mark.parametrize(("text", "said"), [("name: a\nname: b\n", "twice"), ("- a\n", "mapping")])
def test_what_is_no_plain_yaml_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """By the reader of the configuration; the sentence names the file."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=f"^{path}.*{said}"):
        read_scenario(str(path))


def test_entries_stand_for_objects() -> None:
    """One with a count for that many, with numbers of two digits; only a crashed pod has a dead
    copy."""
    pods = [
        {"name": state, "image": "registry.example/old-04:1", "state": state, "count": 2}
        for state in get_args(PodState)
    ]
    node = scenario(node={"pods": pods}).node
    assert node.pods[0].names == [f"{node.pods[0].state}-01", f"{node.pods[0].state}-02"]
    assert {pod.state for pod in node.pods if pod.dead_copies} == {"crashed"}
    assert node.images[2].names[0] == "registry.example/old-01:1"
    tagged = ImageSpec.model_validate({"name": "localhost:5000/shop:v2", "size": "1Mi", "count": 2})
    assert tagged.names == ["localhost:5000/shop-01:v2", "localhost:5000/shop-02:v2"]


def test_nothing_is_collected_periodically_or_held_off_unless_a_scenario_says_it() -> None:
    """What is removed is due to its pressures alone."""
    calm = {"imageGCHighThresholdPercent": 100, "holdOffAfterStart": "0s"}
    for other in ({}, {"imageGCHighThresholdPercent": 85}, {"holdOffAfterStart": "1m"}):
        found = scenario(node={"configuration": other}).node.configuration
        assert {name: found[name] for name in calm} == calm | other


def test_every_fault_is_one_of_the_embedded_runtime() -> None:
    """Each action on a method is a failpoint of its own, told as it acts, how late, how it changes
    an answer, and with which code; each code is one of gRPC, each method one of the runtime."""
    assert set(get_args(Method)) <= set(METHODS)
    assert {code.name for code in Code if code is not Code.OK} == CODES.keys()
    shown = ""
    for action in get_args(FaultAction)[:-2]:  # the last two are not of one method
        told = {"action": action, "at": "0s", "method": "ListImages", "times": 3}
        each = Fault.model_validate(told | ({"by": "2s"} if action == "delay" else {}))
        point = failpoint_of(each)
        change = point.change and point.change.__name__
        shown += f"{describe_fault(each)}: {point.acts} {point.seconds} {change} {point.code}\n"
        assert point.times == 3
    expect(HERE / "faults.txt", shown)


@pytest.mark.parametrize("name", library())
def test_a_scenario_of_the_library_is_described_and_valid(name: str) -> None:
    """It has the name of its file and a reason, a sentence; its form is the schema's, too."""
    found = find_scenario(name)
    assert found.name == name
    assert found.why.endswith(".")
    assert len(found.why.split()) >= 8
    assert problems(validator("scenario"), read_document(library()[name], trusted_only=False)) == []


def test_a_scenario_is_found_by_its_name_or_path(tmp_path: Path) -> None:
    """JSON is YAML, and the page's example is a scenario; an unknown name shows the library's."""
    with pytest.raises(ScenarioError, match="fast-fill"):
        find_scenario("fats-fill")
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps(document()))
    assert find_scenario(str(path)) == scenario()
    (example,) = code_blocks(DOCS / "drill.md", "yaml")
    path.write_text(example)
    assert find_scenario(str(path)).faults


# ---- the schema


@settings(deadline=None, database=None)
@given(mutations(RICH))
def test_what_the_drill_accepts_the_schema_accepts(written: Any) -> None:
    """One small change of a scenario with pressures and faults of every form."""
    assert refusal(RICH) is None
    if refusal(written) is None:
        assert problems(validator("scenario"), written) == []
