"""The state machine: hypothesis orders the events of a node at random, and checks the invariant after every step.

The numbers in a step choose the object, so that the same numbers always repeat the same run.
"""

from __future__ import annotations

from functools import partial

import grpc
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eviction.drill.runtime.faults import ActThenFail, Cut, Delay, Distort, Distortion, Fail, Failpoint, Hang, Pretend
from eviction.drill.runtime.server import METHODS
from eviction.node.state_file import current_machine_id
from eviction.types import Extent
from tests.model import events, mishaps
from tests.model.world import KIB, World
from tests.nodes.method_faults import MethodFault, When
from tests.nodes.model_node import SharedParts

CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
CALLED = [
    method.name for method in METHODS if method.name not in ("CreateContainer", "StartContainer", "RunPodSandbox")
]
DISTORTIONS = [how for how in Distortion if how is not Distortion.HUGE_NAMES]  # a MiB each: only slow
BREAKS = (events.container_is_lost, events.sandbox_dies, events.pod_directory_is_removed, events.node_reboots)
LATEST_CALL = 40  # of a pass in which something happens

numbers = st.integers(0, 2**16 - 1)
small = st.integers(0, 255)


def failpoint(kind: int, how: int, times: int) -> Failpoint:
    """The fault of a call, from three numbers. Most are errors; those that cost a deadline are rare."""
    code = CODES[how % len(CODES)]
    match kind % 16:
        case 0 | 1 | 2 | 3:
            return Fail(code, times=times)
        case 4 | 5 | 6:
            return ActThenFail(code, times=times)
        case 7:
            return Pretend(times=times)
        case 8:
            return Delay(0.002, times=times)
        case 9 if how % 8 == 0:
            return Hang(times=1)
        case 9 | 10 | 11:
            return Cut(code, times=times)
        case _:
            return Distort(DISTORTIONS[how % len(DISTORTIONS)], times=times)


Trouble = tuple[list[tuple[int, int, int]], list[MethodFault]]
"""What happens in the middle of a pass (before which call, which step, to what), and what misbehaves."""

faults = st.builds(
    lambda method, kind, how, times, call: MethodFault(
        CALLED[method % len(CALLED)], failpoint(kind, how, times), When(from_call=call)
    ),
    small,
    small,
    small,
    st.integers(1, 3),
    st.integers(1, 6),
)
troubles = st.tuples(
    st.lists(st.tuples(st.integers(1, LATEST_CALL), small, numbers), max_size=4), st.lists(faults, max_size=2)
)


class NodeMachine(RuleBasedStateMachine):
    """One node from its beginning. `shared` is set before the first run; the counts are sums over all nodes."""

    shared: SharedParts
    steps = 0
    passes = 0
    removed = 0
    triggered = 0
    hung = 0
    vanished = 0
    threadless = 0
    harmed = False

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @property
    def node(self) -> World:
        """The world, once it is made."""
        assert self.world is not None
        return self.world

    def teardown(self) -> None:
        """The node is removed."""
        if self.world is not None:
            type(self).passes += self.world.passes.count
            type(self).hung += self.world.runtime.held.count
            type(self).vanished += self.world.root.changes
            type(self).threadless += self.world.passes.threadless
            type(self).removed += sum(entry.by_reclaimd for entry in self.world.runtime.ledger)
            self.world.close()

    @initialize(dialect=small, mode=small, pods=st.lists(numbers, min_size=1, max_size=3))
    def begin(self, dialect: int, mode: int, pods: list[int]) -> None:
        """A runtime of some kind, a configuration, and the first pods."""
        self.world = World(self.shared, dialect, mode)
        for pick in pods:
            events.pod_is_created(self.world, pick)
        events.kubelet_syncs_all(self.world, 2)
        events.kubelet_syncs_all(self.world, 2)

    def _step(self, step: events.Step, pick: int) -> None:
        with self.node.runtime.as_the_kubelet():
            happened = step(self.node, pick)
        type(self).steps += happened

    @rule(pick=numbers)
    def pod_is_created(self, pick: int) -> None:
        """A pod is admitted."""
        self._step(events.pod_is_created, pick)

    @rule(pick=numbers)
    def pod_begins_and_runs(self, pick: int) -> None:
        """A pod is admitted, and runs."""
        self._step(events.pod_begins_and_runs, pick)

    @rule(pick=numbers)
    def kubelet_syncs(self, pick: int) -> None:
        """The kubelet takes its next step for one pod."""
        self._step(events.kubelet_syncs, pick)

    @rule(pick=numbers)
    def kubelet_syncs_all(self, pick: int) -> None:
        """The restart rule runs for every pod."""
        self._step(events.kubelet_syncs_all, pick)

    @rule(pick=numbers)
    def container_ends(self, pick: int) -> None:
        """A container completes or crashes."""
        self._step(events.container_ends, pick)

    @rule(pick=numbers)
    def container_writes(self, pick: int) -> None:
        """A container writes."""
        self._step(events.container_writes, pick)

    @rule(pick=numbers)
    def something_breaks(self, pick: int) -> None:
        """A container is lost, a sandbox dies, a pod's directory is removed, or the node reboots."""
        self._step(BREAKS[pick % len(BREAKS)], pick // len(BREAKS))

    @rule(pick=numbers)
    def pod_is_deleted(self, pick: int) -> None:
        """A pod is deleted or evicted."""
        self._step(events.pod_is_deleted, pick)

    @rule(pick=numbers)
    def kubelet_collects(self, pick: int) -> None:
        """The kubelet's own garbage collection."""
        self._step(events.kubelet_collects, pick)

    @rule(pick=numbers)
    def image_is_pulled(self, pick: int) -> None:
        """A pull, its beginning or its end."""
        self._step(events.image_is_pulled, pick)

    @rule(pick=numbers)
    def image_changes(self, pick: int) -> None:
        """An image is tagged anew, or pinned."""
        self._step((events.image_is_tagged, events.image_is_pinned)[pick % 2], pick // 2)

    @rule(pick=small)
    def time_passes(self, pick: int) -> None:
        """Seconds or minutes."""
        self._step(events.time_passes, pick)

    @rule(pick=small)
    def something_restarts(self, pick: int) -> None:
        """reclaimd, with its records in a file, or with those of another machine; or, rarely, the runtime."""
        if pick % 16 == 0:
            self.node.restart_runtime()
        elif pick % 4 == 1 and current_machine_id():
            self.node.start_elsewhere()
        else:
            self.node.restart_product()
        type(self).steps += 1

    @rule(pick=numbers)
    def something_vanishes_or_comes_back(self, pick: int) -> None:
        """The kubelet's directories, or the threads that could be started."""
        steps = (mishaps.root_vanishes_or_comes_back, mishaps.root_vanishes_or_comes_back, mishaps.threads_start_or_not)
        self._step(steps[pick % len(steps)], pick // len(steps))

    @rule(pick=numbers)
    def removal_hangs_or_ends(self, pick: int) -> None:
        """The next call that removes or stops something hangs; or one that hung ends, or all."""
        steps = (mishaps.removal_hangs, mishaps.hung_call_ends)
        self._step(steps[pick % len(steps)], pick // len(steps))

    @rule(pick=numbers)
    def runtime_is_another(self, pick: int) -> None:
        """Another version of the runtime takes over; or a digest by which a pod names its image is in no list, and its
        tag names another image."""
        steps = (mishaps.runtime_is_replaced, mishaps.digest_is_unlisted)
        self._step(steps[pick % len(steps)], pick // len(steps))

    @rule(keep=small)
    def keep_list_changes(self, keep: int) -> None:
        """Another configuration is loaded."""
        self.node.use_keep_list(keep)
        type(self).steps += 1

    @rule(answers=small)
    def kubelet_answers_otherwise(self, answers: int) -> None:
        """From now on the kubelet's list of pods is true, empty, an error, or cut."""
        self.node.kubelet_answers = answers
        type(self).steps += 1

    @rule(fault=faults)
    def fault_is_armed(self, fault: MethodFault) -> None:
        """One method gets a fault for one to three calls."""
        self.node.arm(fault)
        type(self).steps += 1

    @rule()
    def faults_are_cleared(self) -> None:
        """No method has a fault any more."""
        self.node.failpoints.clear()
        type(self).steps += 1

    @rule(above=st.integers(1, 16), trouble=troubles)
    def pass_until_relieved(self, above: int, trouble: Trouble) -> None:
        """reclaimd relieves the node, and stops when that is enough; up to four other things happen in the middle."""
        self._trouble(trouble)
        self.node.passes.relieve(above * 4 * KIB, Extent.ENOUGH)
        self._after_a_pass()

    @rule(trouble=troubles)
    def pass_to_the_end(self, trouble: Trouble) -> None:
        """reclaimd runs every function of the row."""
        self._trouble(trouble)
        self.node.passes.relieve(KIB, Extent.ALL)
        self._after_a_pass()

    @rule(trouble=troubles)
    def periodic_pass_over_containers(self, trouble: Trouble) -> None:
        """A pass of the loop over containers."""
        self._trouble(trouble)
        self.node.passes.collect(images=False)
        self._after_a_pass()

    @rule(trouble=troubles)
    def periodic_pass_over_images(self, trouble: Trouble) -> None:
        """A pass of the loop over images."""
        self._trouble(trouble)
        self.node.passes.collect(images=True)
        self._after_a_pass()

    def _trouble(self, trouble: Trouble) -> None:
        """Arms faults, and sets what happens in the middle of the next pass."""
        node = self.node
        interruptions, armed = trouble
        for fault in armed:
            node.arm(fault)
        between = mishaps.BETWEEN_CALLS
        node.passes.interrupt(
            {call: partial(between[step % len(between)], node, pick) for call, step, pick in interruptions}
        )

    def _after_a_pass(self) -> None:
        type(self).steps += 1
        type(self).triggered += len(self.node.failpoints.triggered)

    @invariant()
    def nothing_is_harmed(self) -> None:
        """Ledger, kubelet, files and records agree, and nothing was removed that must be kept."""
        if self.world is not None:
            harm = self.world.harm()
            if harm and not self.harmed:
                type(self).harmed = True
                print("model: the invariant is broken; shortening the steps takes minutes", *harm, sep="\n  ")
            assert not harm, "\n".join(harm)
