"""The kubelet's restart rule, which the drill applies before and after a run."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.drill.judgement.judge import would_start
from eviction.drill.scenario import PodSpec, PodState
from reclaim.types import Container, ContainerState
from tests.restart_rule import RestartPolicy, should_container_be_restarted

ALWAYS, ON_FAILURE, NEVER = RestartPolicy
EXITED = ContainerState.EXITED

RULES = [
    ((None,), {ALWAYS: True, ON_FAILURE: True, NEVER: True}),
    ((ContainerState.RUNNING,), {ALWAYS: False, ON_FAILURE: False, NEVER: False}),
    ((ContainerState.CREATED,), {ALWAYS: True, ON_FAILURE: True, NEVER: True}),
    ((ContainerState.UNKNOWN,), {ALWAYS: True, ON_FAILURE: True, NEVER: True}),
    ((EXITED, 0), {ALWAYS: True, ON_FAILURE: False, NEVER: False}),
    ((EXITED, 1), {ALWAYS: True, ON_FAILURE: True, NEVER: False}),
]


@pytest.mark.parametrize(("newest", "by_policy"), RULES)
def test_the_rule_is_the_kubelets(
    newest: tuple[Any, ...], by_policy: dict[RestartPolicy, bool]
) -> None:
    """A container without a record is started, whatever the policy: the harm that
    garbage collection can do.
    """
    assert {
        policy: should_container_be_restarted(policy, *newest) for policy in RestartPolicy
    } == by_policy


def container(pod: str, name: str, attempt: int, state: ContainerState) -> Container:
    return Container(f"{pod}-{name}-{attempt}", name, state, attempt, pod_name=pod, attempt=attempt)


def pod(name: str, state: PodState, **fields: Any) -> PodSpec:
    return PodSpec.model_validate({"name": name, "image": "i", "state": state, **fields})


JOB = pod("job", "completed")
STARTED = pod("web", "initialized")


def test_a_completed_container_starts_again_without_its_newest_copy() -> None:
    """The newest copy succeeded; an older one failed, and alone it would be started again."""
    copies = [container("job", "app", 0, EXITED), container("job", "app", 1, EXITED)]
    exit_codes = {"job-app-0": 1, "job-app-1": 0}
    assert would_start([JOB], copies, exit_codes) == frozenset()
    assert would_start([JOB], copies[:1], exit_codes) == {"job/app"}
    assert would_start([JOB], [], exit_codes) == {"job/app"}


def test_an_init_container_without_a_record_runs_again() -> None:
    """Even with the policy Always an init container that succeeded is not started, as
    long as its record exists.
    """
    app, init = (
        container("web", "app", 0, ContainerState.RUNNING),
        container("web", "init", 0, EXITED),
    )
    assert would_start([STARTED], [app, init], {}) == frozenset()
    assert would_start([STARTED], [app], {}) == {"web/init"}


def test_a_pod_that_is_gone_starts_nothing() -> None:
    """The kubelet has forgotten it."""
    for state in ("gone", "vanished"):
        assert would_start([pod("old", state)], [], {}) == frozenset()


def test_every_pod_of_an_entry_counts() -> None:
    """An entry with a count stands for that many pods."""
    many = pod("job", "completed", count=2)
    assert would_start([many], [container("job-01", "app", 0, EXITED)], {}) == {"job-02/app"}
