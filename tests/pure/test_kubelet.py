"""The kubelet as a peer: its list of pods beside its directories, its Pods API, its records of
pulls, and what follows its version."""

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import load
from eviction.configuration.kubelet import kubelet_configuration
from eviction.engine.node import policies_of
from eviction.wording.configuration_warnings import configuration_warnings, kubelet_findings
from reclaim.cri.status import CallError, Code
from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.pod_list import (
    KubeletAnswerError,
    KubeletLate,
    KubeletUnavailable,
    NotYet,
    parse_pod_list,
)
from reclaim.evidence.states import PodStates
from reclaim.images.plan import SpaceDecision, not_enough_freed
from reclaim.kubelet.pods import KubeletPods
from reclaim.kubelet.pods_api import LARGEST_LIST_BYTES, pod_list_of
from reclaim.kubelet.pull_records import PullRecords, pull_records, record_names
from reclaim.kubelet.versions import (
    DROP_INS_REMOVE,
    MERGES_DEFAULTS,
    NEWEST,
    OLDEST,
    SAYS_USAGE,
    KubeletVersion,
    version_in,
)
from reclaim.types import (
    Container,
    ContainerState,
    EventReason,
    GCEvent,
    Image,
    Listing,
    PodSandbox,
    PodSandboxState,
)
from tests.pods_wire import POD, message, pods_answer, sized
from tests.pure.configuration.test_told import KUBELETS
from tests.pure.evidence.test_pod_list import (
    DELETED,
    ENDED,
    SAID,
    SPEC,
    annotated,
    listed,
    pod,
)
from tests.pure.values import SteppedClock, container, image
from tests.rows import rows

# ---- the list of pods beside the directories

BODIES = {"away": None, "late": None, "garbage": b"{", "html": b"<html>", "nothing": b"{}"}
BODIES["no uid"] = listed({})
FAILURES = {
    "away": KubeletUnavailable("away"),
    "late": KubeletLate("late"),
    "not-yet": NotYet("not yet"),
}


class Node:
    """A kubelet's directories, and its answer to GET /pods: its pods, by UID and phase. It counts
    the requests."""

    def __init__(self, root: Path, directories: str = "", **phases: str):
        for uid in directories.split():
            (root / "pods" / uid).mkdir(parents=True)
        self.clock = SteppedClock()
        self.phases = phases
        self.source, self.image = "api", ""
        self.failure: KubeletUnavailable | None = None
        self.body: bytes | None = None
        self.asked, self.takes = 0, 0.0
        self.pods = KubeletPods(KubeletDirectories(str(root)), self.clock, self.answer)

    def fails(self, how: str) -> None:
        """From now on."""
        self.failure, self.body = FAILURES.get(how), BODIES.get(how)

    def answer(self) -> bytes:
        self.asked += 1
        self.clock.step(self.takes)
        if self.failure is not None:
            raise self.failure
        spec = {"containers": [{"image": self.image}]}
        return self.body or listed(
            *(
                annotated(uid, phase=phase, source=self.source) | {"spec": spec}
                for uid, phase in self.phases.items()
            )
        )

    def observed(self) -> PodStates:
        """What both say now, beside a runtime that runs each pod that has a directory: by that the
        directories are believed."""
        states = self.pods.read()
        running = (
            PodSandbox(f"of {uid}", PodSandboxState.READY, 1, uid) for uid in states.present or ()
        )
        return self.pods.compared(states, Listing(sandboxes=tuple(running)))

    def named(self, since: float | None = None) -> set[str]:
        """The images that the specs of all its pods name."""
        return {one for images in self.pods.named_images(since).values() for one in images}


def test_a_pod_is_gone_when_neither_source_has_it_and_terminated_as_the_list_says(
    tmp_path: Path,
) -> None:
    """It exists if it has a directory, or if only the list has it. Only the last observation
    counts; right before a removal the directory is checked again, without a request, and an invalid
    UID is never gone."""
    node = Node(tmp_path, "web job leaving", web="Running", job="Succeeded", coming="Pending")
    states = node.observed()
    assert states.known
    assert node.pods.list_problem is None
    for uid in ("web", "job", "leaving", "coming", "old"):
        assert (states.gone(uid), node.pods.gone(uid)) == (uid == "old", uid == "old")
        assert states.runtime_should_be_removed(uid) is (uid in ("job", "old"))
    (tmp_path / "pods" / "old").mkdir()
    assert not any(map(node.pods.gone, ("old", "", "../..", "a/b", "\0")))
    assert node.asked == 1
    node.phases = {}
    node.observed()
    assert node.pods.gone("coming")


def test_by_the_list_of_a_kubelet_that_has_just_started_no_pod_is_gone(
    tmp_path: Path,
) -> None:
    """It lists static pods only, nothing from the API server (k8s#112119): its sources are ready
    once one of those is listed, not with an empty list."""
    node = Node(tmp_path, "static web", static="Running")
    node.source = "file"
    for _ in range(2):
        states = node.observed()
        assert not states.sources_ready
        for uid in ("static", "web"):
            assert not states.gone(uid)
            assert not states.content_should_be_removed(uid)
        node.phases = {}
    node.phases, node.source = {"web": "Running"}, "api"
    assert node.observed().sources_ready


@pytest.mark.parametrize("how", BODIES)
def test_what_the_last_list_named_counts_while_none_can_be_had(tmp_path: Path, how: str) -> None:
    """It only keeps images: for each pod as long as it has a directory, and until the next list.
    One of two observations without an answer makes both unknown; the directories still count."""
    node = Node(tmp_path, "web other", web="Succeeded", other="Pending")
    node.image = "app:1"
    before = node.observed()
    assert node.named() == {"app:1"}
    node.fails(how)
    node.clock.step(60.0)
    states = node.observed()
    assert states == PodStates(frozenset({"web", "other"}), None, identity=states.identity)
    assert str(node.pods.list_problem).startswith(
        how if how in FAILURES else "the kubelet's list of pods is not used: it"
    )
    assert states.gone("old")
    assert not before.merge(states).runtime_should_be_removed("web")
    for uid, named in (("web", {"app:1"}), ("other", set[str]())):
        (tmp_path / "pods" / uid).rmdir()
        node.clock.step(60.0)
        assert node.named() == named
    node.fails("no more")
    node.clock.step(60.0)
    assert node.observed().known


def test_without_directories_nothing_is_known(tmp_path: Path) -> None:
    """A root directory that is wrong or cannot be read: no request is sent."""
    node = Node(tmp_path, job="Succeeded")
    assert node.observed() == PodStates(None, None)
    assert (node.asked, node.pods.gone("old")) == (0, False)
    assert "directory of pods cannot be read" in str(node.pods.list_problem)


@rows("""
    how     | takes | after   | asked | what
    late    | 2     | 7.9 0.1 | 1 2   | no request for four times as long as it took
    not-yet | 0     | 0.9 0.1 | 1 2   | a second later
    away    | 0     | 0       | 2     | at once
""")
def test_after_a_failure_the_next_request_waits_as_long_as_it_is_worth(
    tmp_path: Path, how: str, takes: float, after: str, asked: str
) -> None:
    """Meanwhile the state is unknown at once, with the same reason."""
    node = Node(tmp_path, "job", job="Succeeded")
    node.fails(how)
    node.takes = takes
    node.observed()
    node.takes = 0.0
    for seconds, count in zip(after.split(), asked.split(), strict=True):
        node.clock.step(float(seconds))
        assert not node.observed().known
        assert (node.pods.list_problem, node.asked) == (str(node.failure), int(count))


def test_a_list_tells_for_a_second_what_specs_name(tmp_path: Path) -> None:
    """Then it is read anew, and at once where it must be later than a given moment."""
    node = Node(tmp_path, "web", web="Pending")
    node.observed()
    node.image = "app:1"
    assert node.named() == set()
    node.clock.step(0.5)
    assert node.named(since=node.clock.monotonic()) == {"app:1"}
    node.phases = {"web": "Succeeded"}
    for seconds, named in ((1.0, {"app:1"}), (0.1, set[str]())):
        node.clock.step(seconds)
        assert node.named() == named
    assert node.asked == 3


# ---- the Pods API; answers are encoded by the field numbers in Kubernetes' source, not by our messages

IMAGE_ID = {
    "imageID": "sha256:" + "d" * 64,
    "containerID": "containerd://1",
    "started": True,
    "restartCount": 2,
}
STATUSES = [*SAID.values(), {**ENDED, **IMAGE_ID}, {"restartCount": 0}]
SPECS = [SPEC, {}, {"containers": [{"name": "app", "image": "app:1", "command": ["run", "-x"]}]}]
PHASES = ["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]


def pods() -> Iterator[dict[str, Any]]:
    """A pod in any state, some listed twice."""
    for number, (phase, status, spec) in enumerate(product(PHASES, STATUSES, SPECS)):
        config = {"source": ("", "api", "file")[number % 3], "hash": f"uid-{number % 50}"}
        named = {f"kubernetes.io/config.{name}": value for name, value in config.items()}
        made = pod(
            phase,
            *[status] * (number % 4),
            uid=f"uid-{number % 60}",
            reason=("", "Evicted", "NodeShutdown", "")[number % 4],
            metadata={
                **(DELETED if number % 5 == 0 else {}),
                "annotations": {**named, "a": "\u00e9"},
            },
            initContainerStatuses=STATUSES[: number % 3],
            ephemeralContainerStatuses=STATUSES[number % 5 : number % 5 + 1],
        )
        yield made | {"spec": spec}


def test_both_lists_say_the_same() -> None:
    """States, images and the proof that the API server has delivered, whatever the pods are: of
    each the encoder writes fields that the product does not know, too."""
    for items in ([*pods()], *([item] for item in pods())):
        by_socket = parse_pod_list(pod_list_of(pods_answer(*items)))
        assert by_socket[:3] == parse_pod_list(listed(*items))[:3]


@given(st.integers(min_value=0), st.binary(max_size=200))
def test_what_is_no_whole_list_is_refused(at: int, body: bytes) -> None:
    """One that is cut inside a pod, is too long, or has a pod without a UID, as something of it was
    lost; any bytes are a list or refused."""
    whole = message(pod("Succeeded", ENDED), POD)
    for entry in (b"", sized(1, b""), sized(1, sized(5, b"")), sized(2, b"")):
        with pytest.raises(KubeletAnswerError, match=r"items\[1\] has no metadata.uid"):
            parse_pod_list(pod_list_of(sized(1, whole) + sized(1, entry)))
    with pytest.raises(CallError):
        pod_list_of(sized(1, whole) + sized(1, whole)[: 1 + at % len(whole)])
    for answer in (body, sized(1, body)):
        with suppress(CallError, KubeletAnswerError):
            parse_pod_list(pod_list_of(answer))


def test_a_list_that_is_too_long_is_none() -> None:
    """Its limit is a quarter of that of a body by HTTP, as a pod is shorter, and read in one
    piece."""
    with pytest.raises(CallError, match="longer than 16 MiB") as error:
        pod_list_of(sized(2, bytes(LARGEST_LIST_BYTES)))
    assert error.value.code is Code.RESOURCE_EXHAUSTED


# ---- records of pulls; source: kubelet, `pkg/kubelet/images/pullmanager` (fs_pullrecords.go)

DIGEST = "registry.example/app@sha256:" + "d" * 64
APP = image(1, "registry.example/app:1", "registry.example/app:latest", digests=(DIGEST,))
OTHER, PAUSE = image(2, "registry.example/other:1"), image(3, "registry.k8s.io/pause:3.9")
NOW, HOUR = time.time(), 3600.0
A_TICK = 0.02  # seconds: longer than that of the clock that stamps files


def records_of(root: Path, *containers: Container) -> PullRecords:
    """What is read below this root directory."""
    return pull_records(str(root), containers, lambda read: read())  # type: ignore[arg-type] # on this thread


def name_of(image: str) -> str:
    """Of a file about an image."""
    return f"sha256-{hashlib.sha256(image.encode()).hexdigest()}"


@pytest.fixture
def manager(tmp_path: Path) -> Path:
    """The directory in which a kubelet since 1.35 keeps its records."""
    for name in ("pulled", "pulling"):
        (tmp_path / "image_manager" / name).mkdir(parents=True, mode=0o700)
    return tmp_path / "image_manager"


@rows(r"""
    commands                                                       | pulled | problem              | what
    true                                                           | false  |                      | nothing was recorded since, nor pruned
    touch pulled/README pulled/$OTHER                              | false  |                      | nor here
    touch pulled/$ID                                               | true   |                      | by its id
    touch pulled/$DIGEST                                           | true   |                      | by digest
    touch pulled/$TAG                                              | true   |                      | by name
    touch pulled/$TAG.tmp                                          | true   |                      | it is being written
    echo '{"image": "registry.example/app"}' >pulling/$TAG         | true   |                      | a pull has begun: its record may not be there yet
    echo '{"image": "registry.example/app@sha256:DD"}' >pulling/$TAG | true |                      | by digest
    echo '{"image": "registry.example/app"}' >pulling/$TAG.tmp     | false  |                      | it has not
    touch pulled/$ID; : >pulling/$TAG                              | null   | Expecting            | a pull of an unknown image may be of any
    touch pulled/$ID; echo '{' >pulling/$TAG                       | null   | Expecting            | the same
    touch pulled/$ID; printf '\377' >pulling/$TAG                  | null   | not                  | the same
    touch pulled/$ID; printf '[%.0s' $(seq 5000) >pulling/$TAG     | null   | not                  | the same
    touch pulled/$ID; echo '[]' >pulling/$TAG                      | null   | names no image       | the same
    touch pulled/$ID; echo '{}' >pulling/$TAG                      | null   | names no image       | the same
    touch pulled/$ID; echo '{"image": 1}' >pulling/$TAG            | null   | names no image       | the same
    touch pulled/$ID; chmod 777 pulled                             | null   | every user may write | anybody could remove one
    rm -r pulled                                                   | null   | No such file         | a kubelet before 1.35
""")
def test_whether_the_kubelet_has_pulled_an_image(
    manager: Path, commands: str, pulled: Any, problem: str
) -> None:
    """That came after all of this: one that was there before may have been recorded and pruned, and
    of a sandbox image it is never said that it was not pulled, as the runtime pulls it itself."""
    names = {"ID": APP.id, "DIGEST": DIGEST, "TAG": APP.repo_tags[0], "OTHER": OTHER.id}
    environment = {**os.environ, **{name: name_of(one) for name, one in names.items()}}
    made = ["sh", "-ec", commands.replace("DD", "d" * 64)]
    subprocess.run(made, cwd=manager, env=environment, check=True)
    time.sleep(A_TICK)
    came, found = time.time(), records_of(manager.parent)
    assert (found.pulled(APP, came), found.pulled(PAUSE, came)) == (pulled, None)
    for unknown in (None, NOW, found.as_of + 1.0):
        assert found.pulled(APP, unknown) is (pulled or None)
    assert {name[:7] for name in found.names} <= {"sha256-"}
    assert problem in found.problem
    assert bool(problem) is bool(found.problem)
    docker = record_names(image(1, "docker.io/testing/test:latest"))  # of cacheFilename's own test
    assert "sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56" in docker


def runs(one: Image, made_at: float) -> Container:
    """A container of a pod with this image."""
    made = container("c", references=(one.id, *one.repo_tags))
    return made._replace(created_at_ns=int(made_at * 1e9))


@rows("""
    what                     | recorded | made    | without          | since
    it runs since            | 2        | 1 0.5 3 |                  | 1
    or it was pruned before  | 0.5      | 1       |                  | 0.5
    it is no pod's           | 2        | 1       | pod_uid          |
    its image is not known   | 2        | 1       | image_references |
    nor when it was made     | 2        | 1       | created_at_ns    |
""")
def test_a_container_whose_images_record_is_older_shows_that_nothing_was_pruned_since(
    manager: Path, recorded: float, made: str, without: str, since: float | None
) -> None:
    """Each prune since would have taken that record, or it was written anew: known is what came
    after the oldest such container. All in hours ago."""
    record = manager / "pulled" / name_of(OTHER.id)
    record.touch()
    os.utime(record, (NOW - recorded * HOUR,) * 2)
    images, usual = (OTHER, OTHER, APP), Container("", "", ContainerState.EXITED, 0)
    containers = [runs(one, NOW - float(ago) * HOUR) for one, ago in zip(images, made.split())]  # noqa: B905 # as many
    if without:
        containers = [each._replace(**{without: getattr(usual, without)}) for each in containers]
    found = records_of(manager.parent, *containers)
    if since is None:
        assert found.complete_since == record.parent.stat().st_ctime
    else:
        at = NOW - since * HOUR
        assert found.complete_since == at
        assert (found.pulled(APP, at + 1), found.pulled(APP, at - 1)) == (False, None)


# ---- versions; each row was compared with the sources of 1.31.14 to 1.36.3

DEFAULTS = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
CHANGES = {"null": DROP_INS_REMOVE, "merge": MERGES_DEFAULTS}
OTHERS = "1.34.1+k3s1 1.35.0-alpha.0 1.36 1.100.2 2.0.0  0.0.0-master+$Format:%H$"
HARD = "evictionHard: {nodefs.available: 1Gi}"
MERGE = "mergeDefaultEvictionSettings: true"


def told(version: str) -> KubeletVersion:
    """A version that the kubelet told."""
    return KubeletVersion(version, "")


@rows("""
    changed | file                                               | drop_ins                                           | before        | since
    null    |                                                    | evictionHard: {nodefs.available: null}             | 10% +defaults | - +defaults
    null    |                                                    | evictionHard: null                                 | 10% +defaults | -
    null    | evictionHard: {nodefs.available: 1Gi}              | evictionHard: {nodefs.available: null}             | 1Gi           | -
    null    | evictionHard: {nodefs.available: 1Gi}              | evictionHard: {nodefs.available: 2Gi}; evictionHard: null | 1Gi           | -
    merge   | {mergeDefaultEvictionSettings: true, evictionHard: {nodefs.available: 1Gi}} |                                                    | 1Gi           | 1Gi +defaults
    merge   | {mergeDefaultEvictionSettings: true, evictionHard: {}} |                                                    | -             | 10% +defaults
            |                                                    |                                                    | 10% +defaults | 10% +defaults
            | evictionHard: {nodefs.available: 1Gi}              | mergeDefaultEvictionSettings: true                 | 1Gi           | 1Gi
            | mergeDefaultEvictionSettings: true                 |                                                    | 10% +defaults | 10% +defaults
            |                                                    | evictionHard: {nodefs.available: 1Gi}; evictionHard: {nodefs.available: 2Gi} | 2Gi +defaults | 2Gi +defaults
            | maxPods: 50                                        | imageMinimumGCAge: null; maxPods: null             | 10% +defaults | 10% +defaults
""")
def test_the_thresholds_are_those_that_a_kubelet_of_this_version_has(
    changed: str, file: str, drop_ins: str, before: str, since: str
) -> None:
    """`cmd/kubelet/app/server.go`: nodefs.available, if there is one, and whether the defaults are
    there, before a change and since. Only where a setting depends on it is the version of
    importance."""
    written, *patches = (yaml.safe_load(each) or {} for each in (file, *drop_ins.split("; ")))
    change = CHANGES.get(changed)
    for minor in range(30, 38):
        found = kubelet_configuration(written, "f", patches, version=told(f"1.{minor}.4"))
        marks = {str(one.signal): one.text() for one in found.thresholds.thresholds}
        mark, _, defaults = (before if change and minor < change.since else since).partition(" +")
        expected = DEFAULTS if defaults else {}
        expected = {**expected, "nodefs.available": mark}
        assert marks == {signal: text for signal, text in expected.items() if text != "-"}
        assert found.depends_on_version is (change is not None)


@rows("""
    version | text
    1.34.9  | Failed to garbage collect required amount of images. Attempted to free 7 bytes, but only found 3 bytes eligible to free.
    1.35.0  | Insufficient free disk space on the node's image filesystem (91% of 100 B used). Failed to free sufficient space by deleting unused images (freed 3 bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data.
""")
def test_the_event_of_too_little_freed_has_the_words_of_this_kubelet(
    version: str, text: str
) -> None:
    """`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect. A change holds from its minor
    release on; what is no release of Kubernetes 1 counts as the newest."""
    configuration = load(None, {}, {}).model_copy(update={"kubelet_version": told(version)})
    says_usage = policies_of(configuration).images.says_usage
    told_too = {"usage_percent": 91, "capacity_bytes": 100, "target_bytes": 7, "freed_bytes": 3}
    expected = GCEvent(EventReason.FREE_DISK_SPACE_FAILED, text, told_too)
    assert not_enough_freed(SpaceDecision(91, 100, 7), 3, says_usage=says_usage) == expected
    for other in OTHERS.split(" "):
        assert told(other).has(SAYS_USAGE) is not other.startswith("1.34")
    assert (NEWEST.has(SAYS_USAGE), OLDEST.has(DROP_INS_REMOVE)) == (True, False)


LINE = 'kubernetes_build_info{git_tree_state="clean",git_version="v%s",platform="linux/amd64"} 1\n'


@pytest.mark.parametrize("version", ["1.31.14", "1.30.6-eks-94953ac", "1.33.5+k3s1"])
def test_the_version_is_read_from_the_metrics(version: str) -> None:
    """Prometheus' text format; of anything else there is no version."""
    text = "# HELP kubernetes_build_info a\n" + LINE % version + "x 1\n"
    assert version_in(text.encode()) == told(version)
    elsewhere = 'kubernetes_build_info{a="b"} 1\ny{git_version="v1.31.14"} 1\n'
    for none in ("", "x" + LINE % version, LINE % "", LINE % ("1" * 65), elsewhere):
        assert version_in(none.encode()) is None


def test_an_unknown_version_is_told_where_a_setting_depends_on_it(tmp_path: Path) -> None:
    """As a warning with both changes; not if the kubelet told it, or has the same settings in any
    version."""
    file = tmp_path / "config.yaml"
    file.write_text(f"{KUBELETS}{HARD}\n{MERGE}")
    found = load(None, {}, {"kubeletConfig": str(file), "kubeletEndpoint": ""})
    assert (found.kubelet_version, len(found.thresholds)) == (NEWEST, 4)
    (warning,) = configuration_warnings(found)
    assert warning == (
        "the kubelet's settings depend on its version, for which 1.36 is assumed: since 1.32 null in a"
        " drop-in removes also what the file or a default set; since 1.33 mergeDefaultEvictionSettings is"
        " not ignored; it is not asked; set kubeletEndpoint, for an identity that may get nodes/metrics"
    )
    assert not list(kubelet_findings(found.model_copy(update={"kubelet_version": told("1.36.0")})))
    file.write_text(KUBELETS + HARD)
    assert not list(kubelet_findings(load(None, {}, {"kubeletConfig": str(file)})))
