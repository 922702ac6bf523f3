"""Every expectation of a scenario, held and not held, on invented runs, and on a real node."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from eviction.drill.judge import Check, Response, judge, judge_real, would_start
from eviction.drill.scenario import Expectation, PodSpec, PodState
from reclaim.types import Container, ContainerState
from tests import restart_rule
from tests.drill.documents import measured, measurements
from tests.expected import expect
from tests.restart_rule import RestartPolicy

Fields = dict[str, Any]

JUDGED: Fields = yaml.safe_load(Path(__file__).with_name("judgement.yaml").read_text())


def story(name: str, checks: Iterable[Check]) -> str:
    words = {True: "ok", False: "NOT", None: "-"}
    return f"{name}\n" + "".join(
        f"  {words[each.held]:4}{each.name} {each.expected}: {each.seen}\n" for each in checks
    )


def test_each_expectation_is_judged_by_itself() -> None:
    """A run in which everything went well holds; each change breaks one check, which says what was
    measured instead. What is not expected is not judged."""
    well = judge(Expectation.model_validate(JUDGED["held"]), measurements())
    assert [each for each in well if not each.held] == []
    stories = [story("everything held", well)]
    for name, row in JUDGED["one check fails"].items():
        expected = Expectation.model_validate(row.get("expect", {}))
        checks = judge(expected, measurements(**measured(row.get("run", {}))))
        assert [each.held for each in checks].count(False) == 1, name
        stories.append(story(name, [each for each in checks if not each.held]))
    untold = judge(Expectation.model_validate({}), measurements(), faults=1)
    stories.append(story("a fault that was never triggered", untold))
    nothing = {"noRestarts": False, "newPodStarts": False}
    bad = measurements(would_restart=("a/b",), new_pod_problem=None)
    stories.append(story("neither is expected", judge(Expectation.model_validate(nothing), bad)))
    expect(Path(__file__).with_name("judgement.txt"), "\n".join(stories))


@pytest.mark.parametrize("response", Response)
def test_what_depends_on_the_node_of_the_scenario_is_not_judged_on_a_real_one(
    response: Response,
) -> None:
    """Relief, the first removal, the lowest point, objects by their names, quiet and that pods go
    on are; a failure is one there, too. Each expectation has a check."""
    stories = []
    for name, row in JUDGED["on a real node"].items():
        wanted = Expectation.model_validate(row["expect"])
        stories.append(
            story(name, judge_real(wanted, measurements(**measured(row.get("run", {}))), response))
        )
    expect(Path(__file__).with_name(f"judgement-{response}.txt"), "\n".join(stories))


KNOWN_STATES = tuple(state for state in get_args(PodState) if state not in ("gone", "vanished"))
copies = st.tuples(
    st.sampled_from(["p-01", "p-02", "other"]),
    st.sampled_from(["app", "init"]),
    st.sampled_from(ContainerState),
    st.sampled_from([0, 1]),
)


@settings(deadline=None)
@given(st.sampled_from(KNOWN_STATES), st.lists(copies, max_size=6))
def test_what_would_start_is_what_the_kubelets_rule_starts(
    state: PodState, given_copies: list[tuple[str, str, ContainerState, int]]
) -> None:
    """By another model of the rule: the newest copy of a container counts; one without a record is
    started, the harm that garbage collection can do. A pod that is gone starts nothing."""
    pods = [PodSpec.model_validate({"name": "p", "image": "i", "state": state, "count": 2})]
    containers, codes, by_pod = [], {}, dict[str, list[restart_rule.Copy]]()
    for at, (pod, name, its_state, code) in enumerate(given_copies):
        containers.append(Container(str(at), name, its_state, at, pod_name=pod))
        if code:  # 0 where there is none
            codes[str(at)] = code
        by_pod.setdefault(pod, []).append(restart_rule.Copy(pod, name, its_state, code, at))
    policy = RestartPolicy.ON_FAILURE if state == "completed" else RestartPolicy.ALWAYS
    init = ("init",) if state == "initialized" else ()
    starts = {
        f"{uid}/{name}"
        for uid in ("p-01", "p-02")
        for name in restart_rule.would_start(
            restart_rule.PodSpec(uid, ("app",), init, policy), by_pod.get(uid, [])
        )
    }
    assert would_start(pods, containers, codes) == starts
    gone = [pods[0].model_copy(update={"state": each}) for each in ("gone", "vanished")]
    assert would_start(gone, containers, codes) == frozenset()
