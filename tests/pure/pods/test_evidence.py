"""When what was seen over time shows that a pod has terminated: stories, and properties over random ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from reclaim.pods.evidence import Observation, StoppedPod, Watched, stopped_pods, watched
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState

AGE = 600.0
MINUTE = 60.0
READY, NOTREADY = PodSandboxState.READY, PodSandboxState.NOTREADY


@dataclass
class Story:
    """A node with one pod, observed once a minute. The fields are what is to be seen at the next observation."""

    at: float = 5000.0
    wall: float = 1_800_000_000.0
    kubelet_since: float | None = 100.0
    sandbox: PodSandboxState = NOTREADY
    state: ContainerState = ContainerState.EXITED
    attempt: int = 0
    source: str = "api"
    torn_down: bool = True
    others: int = 1
    watched: Watched | None = None

    def listing(self) -> Listing:
        """What the runtime holds."""
        attempt = self.attempt
        sandbox = PodSandbox(f"s{attempt}", self.sandbox, 1, "uid", attempt=attempt, config_source=self.source)
        others = [PodSandbox(f"o{n}", READY, 1, f"other-{n}", config_source="api") for n in range(self.others)]
        container = Container(f"c{attempt}", "app", self.state, 1, "uid", sandbox_id=sandbox.id, attempt=attempt)
        return Listing(containers=(container,), sandboxes=(sandbox, *others))

    def observe(self, after: float = MINUTE) -> bool:
        """One more observation; whether the pod has terminated by it."""
        self.at += after
        self.wall += after
        listing = self.listing()
        self.watched = watched(
            self.watched,
            Observation(
                self.at,
                self.wall,
                self.kubelet_since,
                listing,
                stopped_pods(listing),
                frozenset({"uid"} if self.torn_down else ()),
            ),
        )
        return self.terminated()

    def terminated(self) -> bool:
        """Whether the pod has, by the last observation."""
        return self.watched is not None and self.watched.terminated(AGE) == {"uid"}

    def minutes(self, count: int) -> bool:
        """So many observations; the last answer."""
        return [self.observe() for _ in range(count)][-1]


def seen_to_finish() -> Story:
    """A pod that ran when it was first seen, and stands still since."""
    story = Story(sandbox=READY, state=ContainerState.RUNNING, torn_down=False)
    story.observe()
    story.sandbox, story.state, story.torn_down = NOTREADY, ContainerState.EXITED, True
    return story


def test_a_pod_seen_to_finish_has_terminated_after_the_age() -> None:
    """The first observation that it stands still is minute 0; not a minute before."""
    story = seen_to_finish()
    assert not story.minutes(10)
    assert story.observe()


def test_one_that_stood_still_before_needs_a_kubelet_that_knows_its_pods() -> None:
    """After a restart of reclaimd: a new sandbox of any pod of the API server shows that the kubelet has them."""
    story = Story()
    assert not story.minutes(30)
    story.others = 2
    assert story.observe()


def test_after_a_reboot_without_a_network_nothing_has_terminated() -> None:
    """Everything is dead and healthz is ok for hours, but the volumes are there, and are mounted again."""
    story = seen_to_finish()
    story.torn_down = False
    story.others = 3
    assert not any(story.minutes(1) for _ in range(120))


def test_a_static_pod_never_has() -> None:
    """It keeps its UID when it is started again."""
    for source in ("file", "http", ""):
        story = seen_to_finish()
        story.source, story.others = source, 2
        assert not story.minutes(60)


def test_what_runs_or_may_start_never_has() -> None:
    """A crash loop and a pull back-off keep the sandbox READY; a container is CREATED before it runs."""
    for sandbox, state in (
        (READY, ContainerState.EXITED),
        (NOTREADY, ContainerState.RUNNING),
        (NOTREADY, ContainerState.CREATED),
        (NOTREADY, ContainerState.UNKNOWN),
    ):
        story = seen_to_finish()
        story.sandbox, story.state, story.others = sandbox, state, 2
        assert not story.minutes(60)


def interruptions() -> st.SearchStrategy[str]:
    """What starts the count anew."""
    return st.sampled_from(
        [
            "kubelet away",
            "kubelet restarted",
            "gap",
            "clock set",
            "clock set back",
            "new sandbox",
            "volumes",
            "reclaimd",
        ]
    )


def interrupt(story: Story, how: str) -> None:
    """It happens, and all is as before a moment later."""
    match how:
        case "kubelet away":
            since, story.kubelet_since = story.kubelet_since, None
            story.observe(1.0)
            story.kubelet_since = since
        case "kubelet restarted":
            story.kubelet_since = story.at
        case "gap":
            story.at += 180.0
            story.wall += 180.0
        case "clock set":
            story.wall += 3600.0
        case "clock set back":
            story.wall -= 3600.0
        case "new sandbox":
            story.attempt += 1
        case "volumes":
            story.torn_down = False
            story.observe(1.0)
            story.torn_down = True
        case "reclaimd":
            story.watched = None
    story.others += 1


@given(minutes=st.integers(1, 10), how=interruptions())
def test_every_interruption_starts_the_count_anew(minutes: int, how: str) -> None:
    """However near the end it was: from the next observation on it takes the whole age again."""
    story = seen_to_finish()
    story.minutes(minutes)
    interrupt(story, how)
    assert not story.minutes(10)
    story.others += 1
    assert story.observe()


@given(
    st.lists(st.tuples(st.sampled_from(["wait", "run", "stop", "away", "back", "mount", "unmount"]), st.floats(0, 400)))
)
def test_none_terminates_before_it_was_seen_still_and_healthy_for_the_age(steps: list[tuple[str, float]]) -> None:
    """Whatever happens: at an observation that says so, all observations of the last ten minutes agreed, none had a gap
    before it, and the kubelet was the same."""
    story = seen_to_finish()
    seen: list[tuple[float, bool]] = []
    for step, seconds in steps:
        match step:
            case "run":
                story.sandbox, story.state = READY, ContainerState.RUNNING
            case "stop":
                story.sandbox, story.state = NOTREADY, ContainerState.EXITED
            case "away":
                story.kubelet_since = None
            case "back":
                story.kubelet_since = story.kubelet_since or story.at
            case "mount" | "unmount":
                story.torn_down = step == "unmount"
        story.others += 1
        terminated = story.observe(seconds)
        still = story.sandbox is NOTREADY and story.torn_down and story.kubelet_since is not None
        seen.append((story.at, still and seconds <= 180.0))
        if terminated:
            lately = [agreed for at, agreed in seen if at > story.at - AGE]
            assert all(lately)
            assert seen[0][0] <= story.at - AGE
            assert story.kubelet_since is not None
            assert story.at - story.kubelet_since >= AGE


def test_fewer_parts_do_not_start_the_count_anew() -> None:
    """What is removed of a terminated pod leaves it terminated, so that its sandbox can follow its containers."""
    story = seen_to_finish()
    story.others = 2
    assert story.minutes(11)
    listing = replace(story.listing(), containers=())
    pod = stopped_pods(listing)["uid"]
    assert pod == StoppedPod(frozenset(), frozenset({"s0"}), listing.sandboxes[0])
    seen = Observation(story.at + 1, story.wall + 1, 100.0, listing, {"uid": pod}, frozenset({"uid"}))
    after = watched(story.watched, seen)
    assert after is not None
    assert after.terminated(AGE) == {"uid"}
