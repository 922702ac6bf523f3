"""The kubelet's restart rule, as the drill asks it before and after."""

from __future__ import annotations

import pytest

from eviction.drill.judgement.restart_policy import LastStatus, should_container_be_restarted, would_start
from eviction.drill.scenario.types import PodSpec, PodState, RestartPolicy
from reclaim.types import Container, ContainerState

ALWAYS, ON_FAILURE, NEVER = RestartPolicy
EXITED = ContainerState.EXITED

RULES = [
    (None, {ALWAYS: True, ON_FAILURE: True, NEVER: True}),
    (LastStatus(ContainerState.RUNNING), {ALWAYS: False, ON_FAILURE: False, NEVER: False}),
    (LastStatus(ContainerState.CREATED), {ALWAYS: True, ON_FAILURE: True, NEVER: True}),
    (LastStatus(ContainerState.UNKNOWN), {ALWAYS: True, ON_FAILURE: True, NEVER: True}),
    (LastStatus(EXITED, 0), {ALWAYS: True, ON_FAILURE: False, NEVER: False}),
    (LastStatus(EXITED, 1), {ALWAYS: True, ON_FAILURE: True, NEVER: False}),
]


@pytest.mark.parametrize(("newest", "by_policy"), RULES)
def test_the_rule_is_the_kubelets(newest: LastStatus | None, by_policy: dict[RestartPolicy, bool]) -> None:
    """What nothing remembers runs, whatever the policy: that is the harm that a collector can do."""
    assert {policy: should_container_be_restarted(policy, newest) for policy in RestartPolicy} == by_policy


def container(pod: str, name: str, attempt: int, state: ContainerState) -> Container:
    return Container(f"{pod}-{name}-{attempt}", name, state, attempt, pod_name=pod, attempt=attempt)


JOB = PodSpec("job", "i", PodState.COMPLETED, restart_policy=ON_FAILURE)
STARTED = PodSpec("web", "i", PodState.INITIALIZED)


def test_a_completed_container_starts_again_without_its_newest_copy() -> None:
    """An older copy that failed says the opposite of the newest, which ended well."""
    copies = [container("job", "app", 0, EXITED), container("job", "app", 1, EXITED)]
    exit_codes = {"job-app-0": 1, "job-app-1": 0}
    assert would_start([JOB], copies, exit_codes) == frozenset()
    assert would_start([JOB], copies[:1], exit_codes) == {"job/app"}
    assert would_start([JOB], [], exit_codes) == {"job/app"}


def test_an_init_container_that_nothing_remembers_runs_again() -> None:
    """Although the pod's policy is Always an init container that ended well is not started, as long as it is there."""
    app, init = container("web", "app", 0, ContainerState.RUNNING), container("web", "init", 0, EXITED)
    assert would_start([STARTED], [app, init], {}) == frozenset()
    assert would_start([STARTED], [app], {}) == {"web/init"}


def test_a_pod_that_is_gone_starts_nothing() -> None:
    """The kubelet has forgotten it."""
    for state in (PodState.GONE, PodState.VANISHED):
        assert would_start([PodSpec("old", "i", state)], [], {}) == frozenset()


def test_every_pod_of_an_entry_is_asked() -> None:
    """An entry with a count is so many pods."""
    many = PodSpec("job", "i", PodState.COMPLETED, count=2, restart_policy=NEVER)
    assert would_start([many], [container("job-01", "app", 0, EXITED)], {}) == {"job-02/app"}
