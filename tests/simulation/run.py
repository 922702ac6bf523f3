"""One run: a node, a time line, and the daemon in it, from the seed to the hash of its trace."""

import hashlib
import json
import traceback
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from eviction.configuration.effective import Configuration
from eviction.engine.effects import (
    Check,
    CheckEnded,
    Effect,
    Ended,
    Event,
    KubeletHealthy,
    LookWanted,
    PassWanted,
    PauseSet,
    Plan,
    Planned,
    Read,
    Reconfigured,
    Request,
    Send,
    Tell,
    Watch,
    Withdrawn,
)
from eviction.engine.world import LONGEST_PAUSE_SECONDS, World
from eviction.records.passes import Trigger
from eviction.types import Extent
from reclaim.pod_logs.names import LogPaths
from reclaim.removals import sent_claims
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES, Kind
from signals.samplers import Sample
from tests.simulation.daemon import Daemon, Saved, configured
from tests.simulation.judge import Judge, Violation
from tests.simulation.machine import GIB, PAUSE_IMAGE, RUNNING, Disk, Machine, Pod, image_size
from tests.simulation.scheduler import Scheduler, simulated
from tests.simulation.services import Mood
from tests.simulation.timeline import CHANGES, PATHS, RARE, Entry, Node, node_of, timeline

OVERSEEN_SECONDS = 5.0
CALM_SECONDS, EPILOGUE_SECONDS = 400, 2001
DRAIN_SECONDS = 30.0
KEPT_LINES = 300
ROW = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)


@dataclass
class Result:
    """What became of a run. `problem`: what was wrong; empty if nothing was.

    `at`: when, in seconds.
    """

    seed: int
    hours: float
    hash: str = ""
    problem: str = ""
    kind: str = ""
    at: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    tail: tuple[str, ...] = ()
    entries: int = 0


class Run:
    """A run that has been prepared."""

    def __init__(
        self,
        seed: int,
        hours: float,
        entries: Sequence[Entry] | None,
        kubelet_file: str,
        logs: LogPaths,
    ):
        self.seed, self.hours = seed, hours
        self.node: Node = node_of(seed)
        self.entries = timeline(seed, hours) if entries is None else entries
        self.clock = Scheduler()
        self.rng = Random(f"calls {seed}")
        self.mood = Mood()
        self.machine = Machine(self.clock, self.rng)
        self._kubelet_file, self.logs = kubelet_file, logs
        self._changes = ""
        for changes in CHANGES:  # read before the run, as that uses threads of its own
            self._configuration(changes)
        self.configuration = self._configuration("")
        self.judge = Judge(self.clock, self.machine, self.configuration, self._line)
        self.daemon: Daemon | None = None
        self._saved: Saved | None = None
        self._hash = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._devices = 3
        self._quiet = False
        self._next = {
            "removal": deque[Entry](maxlen=4),  # what waits until something is about to go
            "plan": deque[Entry](maxlen=4),  # or to be planned
            "use": deque[Entry](maxlen=8),  # until an image is about to go
            "touch": deque[Entry](maxlen=8),  # and a container is being made of it
            "pod comes back": deque[Entry](maxlen=4),  # until containers of such pods are
        }

    def _configuration(self, changes: str) -> Configuration:
        fields = {**self.node.fields, **CHANGES[changes]}
        return configured(json.dumps(fields), self._kubelet_file)

    # ---- the trace

    def _line(self, line: str) -> None:
        line = f"{self.clock.now - 1000.0:.4f} {line}"
        self._lines.append(line)
        self._hash.update(line.encode())
        self._hash.update(b"\n")

    def turned(
        self, events: list[Event], before: World, after: World, effects: tuple[Effect, ...]
    ) -> None:
        """One line an event, and one an effect."""
        for event in events:
            self._line(told(event))
        for effect in effects:
            self._line("  " + told(effect))
        if not self._quiet:
            for effect in effects:
                if type(effect) is Check:
                    self._checked(effect)
                elif type(effect) is Plan:
                    self._plans()
        self.judge.turned(events, before, after, effects)

    # ---- the run

    def run(self) -> Result:
        """From the beginning to the end, or to what is wrong."""
        result = Result(self.seed, self.hours, entries=len(self.entries))
        with simulated(self.clock):
            try:
                self._begin()
                start, end = self.clock.now, self.clock.now + self.hours * 3600
                for entry in self.entries:
                    self.clock.at(start + entry.at, lambda entry=entry: self._happens(entry))  # type: ignore[misc]
                self.clock.run(end)
                self._calm()
                for seconds in range(CALM_SECONDS, EPILOGUE_SECONDS, CALM_SECONDS):
                    self.clock.run(end + seconds)
                    if self._is_at_rest():
                        break
                if self.daemon is not None:
                    self.judge.at_the_end(self.daemon.world)
            except Violation as violation:
                result.problem, result.kind = str(violation), "violation"
            except Exception as defect:  # noqa: BLE001 # of the product, or of the simulation
                last = traceback.extract_tb(defect.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                result.problem, result.kind = (
                    f"{type(defect).__name__}: {defect} ({where})",
                    "exception",
                )
                result.tail = tuple(traceback.format_exception(defect))
            result.at = self.clock.now - 1000.0
        result.hash = self._hash.hexdigest()
        result.counts = self.judge.counts
        if self.daemon is not None:
            result.counts["faults"] += self.daemon.runtime.faults
        result.tail = (*self._lines, *result.tail)
        return result

    def _is_at_rest(self) -> bool:
        """Whether nothing is left of what went wrong."""
        hangs = any(
            disk.hangs_until + 60.0 > self.clock.now for disk in self.machine.disks.values()
        )
        world = None if self.daemon is None else self.daemon.world
        return not hangs and world is not None and not world.removals and not world.hanging

    def _begin(self) -> None:
        machine, capacity = self.machine, self.node.capacity
        one = Disk(1, capacity, self.clock)
        other = Disk(2, capacity, self.clock)
        layouts = {
            "single": (one, one, one),
            "dedicated": (one, other, other),
            "split": (one, other, one),
        }
        machine.disks = dict(zip(PATHS, layouts[self.node.layout], strict=True))
        for disk in (one, other):
            disk.fills(self.node.others_at_start * capacity / 1e-3, 1e-3)
        self.clock.now += 0.01
        machine.pull(PAUSE_IMAGE, image_size(PAUSE_IMAGE))
        for number in range(0, self.node.images, 3):
            tag = f"registry.example/app{number % 7}:{number}"
            if machine.disks["/images"].available() > 0.25 * capacity:
                machine.pull(tag, image_size(tag))
        self._start()
        self._oversee()

    def _start(self) -> None:
        if self.daemon is not None:
            return
        self.judge.configuration = self.configuration = self._configuration(self._changes)
        self.daemon = daemon = Daemon(self, self._saved)
        hold_off = self.clock.now + self.configuration.hold_off_seconds
        self.judge.starts(hold_off, daemon.jobs)
        self._line("the daemon starts")

    def _oversee(self) -> None:
        if self.daemon is not None:
            self.judge.looks_over(self.daemon.world)
        self.clock.after(OVERSEEN_SECONDS, self._oversee)

    def _calm(self) -> None:
        """From now on nothing goes wrong, and nothing presses that was not there."""
        self._quiet = True
        mood, now = self.mood, self.clock.now
        mood.factor_until = mood.away_until = mood.frozen_until = mood.errors_until = (
            mood.look_until
        ) = now
        mood.removals_hang.clear()
        mood.lists_hang.clear()
        mood.lies.clear()
        mood.directories = ""
        self.machine.frees_late_seconds = 0.0
        for disk in self.machine.disks.values():
            disk.fills(0.0, 0.0)
        self._changes = ""
        self._start()
        self._reconfigured()
        self._paused(0.0)
        self._post(KubeletHealthy())
        self.judge.hold_off_until = 0.0

    def _post(self, event: Event) -> None:
        if self.daemon is not None and not self.judge.stopping:
            self.daemon.post(event)

    def _paused(self, seconds: float, unknown: str = "") -> None:
        if self.daemon is None or self.judge.stopping:
            return
        now = self.clock.now
        self.daemon.post(PauseSet(seconds, unknown))

        def in_force() -> None:
            self.judge.paused_at, self.judge.paused_until = (
                now,
                now + min(seconds, LONGEST_PAUSE_SECONDS),
            )

        self.clock.at(now, in_force)

    def _reconfigured(self) -> None:
        self.configuration = self._configuration(self._changes)
        if self.daemon is not None and not self.judge.stopping:
            self.daemon.post(Reconfigured(self.configuration))
            daemon = self.daemon

            def in_force() -> None:
                if self.daemon is daemon:
                    self.judge.configuration = daemon.world.configuration

            self.clock.at(self.clock.now, in_force)

    def _gone(self) -> None:
        """The process has ended."""
        daemon = self.daemon
        if daemon is not None:
            self._saved = daemon.saved
            self.judge.counts["faults"] += daemon.runtime.faults
            daemon.kill()
            self.daemon = None
            self._line("the daemon is gone")

    def _happens(self, entry: Entry, *, waits: bool = True) -> None:
        if self._quiet:
            return
        before = RARE.get(entry.kind, {}).get("before")
        if waits and before and entry.number % 4:
            self._next[before].append(entry)
            return
        if entry.kind != "pod":
            self._line(f"-- {entry.kind} {entry.seconds:.3f} {entry.what}")
            self.judge.counts["mishaps"] += 1
        self._what(entry)

    def _what(self, entry: Entry) -> None:  # one case for each kind
        machine, mood, clock, what = self.machine, self.mood, self.clock, entry.what
        now: float = clock.now
        ends = now + entry.seconds
        first: Any = what[0] if what else None
        match entry.kind:
            case "pod":
                tags, inits, crashes, sandbox, pull, write = what
                self.judge.counts["pods"] += 1
                pod = self._pod(entry.number, tags, inits)
                pod.crashes, pod.run_seconds, pod.write_bytes = crashes, entry.seconds, write
                pod.sandbox_seconds, pod.pull_seconds = sandbox, pull
                machine.begin_pod(pod)
            case "fill":
                disk, rate = machine.disks[first], what[1] * GIB
                most = 0.9 * disk.available()
                disk.fills(rate, min(entry.seconds, most / rate))
                if entry.number % 5:  # else it stays
                    clock.after(entry.seconds + entry.number % 240, lambda: disk.is_freed(0.9))
            case "presses":
                self._presses(machine.disks[first], what[1], entry.seconds)
            case "others free":
                machine.disks[first].is_freed(what[1])
            case "slow":
                mood.factor, mood.factor_until = first, ends
            case "errors":
                mood.errors, mood.errors_until = first, ends
            case "away":
                mood.away_until = ends
            case "frozen":
                mood.frozen_until = ends
            case "removal hangs":
                mood.removals_hang.append((entry.seconds, first))
                del mood.removals_hang[4:]
            case "lie":
                mood.lies.append(first)
                del mood.lies[:-4]
            case "runtime restarts":
                mood.away_until = ends
                mood.connections += 1
                mood.version = 20 + first
            case "filesystem hangs":
                disk = machine.disks[first]
                disk.hangs_until = max(disk.hangs_until, ends)
                if entry.number % 2:
                    self._others_press(disk)
            case "slow looks":
                mood.look_seconds, mood.look_until = first, ends
            case "directories are others":
                mood.directories = first
                clock.after(entry.seconds, lambda: setattr(mood, "directories", ""))
            case "pause" | "resume":
                self._paused(entry.seconds)
            case "pause unknown":
                self._paused(entry.seconds, "its file cannot be read")
            case "reload":
                self._changes = first
                self._reconfigured()
                if first and entry.seconds:
                    back = entry._replace(what=("",), number=0)
                    clock.after(entry.seconds, lambda: self._happens(back))
            case "use" | "touch" | "pod comes back":
                self._next[entry.kind].append(entry)
            case "said to have exited":
                running = [
                    container_id
                    for container_id, held in machine.containers.items()
                    if held.listed.state is RUNNING and not held.pod.over
                ]
                if running:
                    machine.said_to_have_exited(running[entry.number % len(running)], entry.seconds)
            case "list hangs":
                mood.lists_hang.append(entry.seconds)
                del mood.lists_hang[1:]
                if entry.number % 2:
                    self._others_press(None)
            case "look":
                self._post(LookWanted())
            case "request":
                self._requested(first)
            case "kill":
                self._gone()
                clock.after(entry.seconds, self._start)
            case "stop":
                if self.daemon is not None and not self.judge.stopping:
                    self.daemon.stop()
                    clock.at(now, lambda: setattr(self.judge, "stopping", True))
                    clock.after(0.1, lambda: self._drained(now + DRAIN_SECONDS, entry.seconds))
            case "clock is set":
                clock.wall_offset += first
            case "mount":
                self._mounted(first, entry.seconds)
            case "preload":
                tag = f"registry.example/preloaded:{first}"
                image_id = machine.pull(tag, image_size(tag) // 4, preloaded=True)
                # a pod uses it for a while, and the kubelet need not pull it
                if image_id is not None:
                    pod = self._pod(entry.number, (tag,))
                    pod.run_seconds = 90.0
                    machine.begin_pod(pod)
            case "tag":
                tag = f"registry.example/app{what[1]}:{what[1]}"
                image_id = machine.image_id(first)
                if image_id in machine.images and tag in machine.tags:
                    self.judge.tag_changed[image_id] = self.judge.tag_changed[machine.tags[tag]] = (
                        now
                    )
                    machine.retag(image_id, tag)
            case "pin":
                image_id = machine.image_id(first)
                if image_id in machine.images:
                    self.judge.pinned_at[image_id] = now
                    machine.pin(image_id, pinned=bool(what[1]))
            case "image goes":
                image_id = machine.image_id(first)
                if not machine.uses_of(image_id) and machine.remove_image(image_id):
                    self.judge.image_went(image_id)
            case "kubelet healthy":
                self._post(KubeletHealthy())
                if self.daemon is not None:
                    clock.at(now, lambda: setattr(self.judge, "hold_off_until", now))
            case "frees late":
                machine.frees_late_seconds = first
                clock.after(entry.seconds, lambda: setattr(machine, "frees_late_seconds", 0.0))
            case "kubelet collects":
                machine.collect(first)
            case _:
                raise AssertionError(entry.kind)

    def _pod(self, number: int, tags: tuple[str, ...], inits: int = 0) -> Pod:
        """A pod that can begin now."""
        uid, name = f"uid-{number:x}", f"p{number:x}"
        return Pod(uid, name, tags, inits, Random(number), self.clock.now)

    def _presses(self, disk: Disk, below: float, seconds: float) -> None:
        """Others write until a little less is available than the mark, which is not urgent."""
        missing = disk.available() - (self.judge.mark() - below) * disk.capacity
        if missing > 0:
            disk.fills(missing / 0.01, 0.01)
            self.clock.after(seconds, lambda: disk.is_freed(0.2))

    def _others_press(self, but: Disk | None) -> None:
        """In a moment, every filesystem but this one."""
        for disk in {
            disk.device: disk for disk in self.machine.disks.values() if disk is not but
        }.values():
            self.clock.after(0.5, lambda disk=disk: self._presses(disk, 0.02, 60.0))  # type: ignore[misc]

    def _checked(self, effect: Check) -> None:
        """An object is about to be removed: now happens what has waited for
        that, within the next moments.
        """
        if self._next["removal"] and not effect.claim.dry_run:
            entry, later = self._next["removal"].popleft(), self._later(effect)
            # it is checked next
            if entry.kind == "pin" and later and later[0] in self.machine.images:
                entry = entry._replace(what=(int(later[0][7:15], 16), True))
            seconds = (0.02, 0.4)[entry.number % 2] * (entry.number % 997) / 997
            self.clock.after(seconds, lambda: self._happens(entry, waits=False))
        if self._next["use"] and effect.claim.verdict.kind == Kind.IMAGE:
            use = self._next["use"].popleft()
            seconds = (0.004, 0.01, 0.02, 0.1)[use.number % 4] * (use.number % 997) / 997
            # it, or one of the next
            later = [effect.claim.verdict.id, *self._later(effect)][: 1 + use.number % 3]
            self.clock.after(seconds, lambda: self._used(use, later[-1]))
        making = self.machine.starting.get(effect.claim.verdict.id)
        if self._next["touch"] and making:
            pod, touch = making[0].pod, self._next["touch"].popleft()
            soon = 0.008 * (touch.number % 997) / 997
            self.clock.after(soon, lambda: self.machine.touch(pod))
            self.judge.counts["touched"] += 1
        if self._next["pod comes back"] and effect.claim.verdict.kind == Kind.CONTAINER:
            self._comes_back(effect)

    def _later(self, effect: Check) -> list[str]:
        """What its pass has planned to remove next."""
        the = None if self.daemon is None else self.daemon.world.passes.get(effect.claim.pass_id)
        plans = (
            []
            if the is None
            else [(run.plan, run.taken) for run in the.current if run.id == effect.claim.stage]
        )
        return [
            verdict.id
            for plan, taken in plans
            if plan is not None
            for verdict in plan.remove[taken:]
        ]

    def _plans(self) -> None:
        """Something is about to be planned: now happens what has waited for that."""
        if self._next["plan"]:
            entry = self._next["plan"].popleft()
            self.clock.at(self.clock.now, lambda: self._happens(entry, waits=False))

    def _comes_back(self, effect: Check) -> None:
        """A pod of which something is planned to be removed, but not checked yet, begins anew."""
        containers, later = self.machine.containers, self._later(effect)
        gone = [
            held.pod for each in later if (held := containers.get(each)) and held.pod.seen is None
        ]
        if gone:
            pod = gone[self._next["pod comes back"].popleft().number % len(gone)]
            self._line(f"-- pod {pod.name} comes back")
            self.machine.come_back(pod)
            self.judge.counts["pods back"] += 1

    def _used(self, entry: Entry, image_id: str) -> None:
        """A pod that is new, or the next container of an old one, begins to use an
        image that is about to go.
        """
        machine, which, old = self.machine, entry.number, bool(entry.what[0])
        held = machine.images.get(image_id)
        if held is None or not held.listed.repo_tags or self._quiet:
            return
        tag = held.listed.repo_tags[0]
        here = [
            pod
            for pod in machine.pods.values()
            if not pod.over and self.clock.now - pod.began_at > 40.0
        ]
        if old and here:
            pod = here[which % len(here)]
            machine.begin_container(pod, tag)
            if which % 3:  # its directory is touched once that of the container is there
                touched = 0.011 * (which % 101) / 100
                self.clock.after(touched, lambda: machine.touch(pod))
        else:
            pod = self._pod(which, (tag,))
            pod.sandbox_seconds = 0.02 + 0.2 * (which % 7)
            machine.begin_pod(pod)
        self.judge.counts["uses"] += 1

    def _drained(self, until: float, down_seconds: float) -> None:
        """It stops once no removal that it has sent is under way, or after a while."""
        daemon = self.daemon
        if daemon is None or not self.judge.stopping:
            return
        if self.clock.now < until and sent_claims(daemon.world.removals):
            self.clock.after(0.25, lambda: self._drained(until, down_seconds))
            return
        self._gone()
        self.judge.stopping = False
        self.clock.after(down_seconds, self._start)

    def _requested(self, which: str) -> None:
        if self.daemon is None or self.judge.stopping:
            return
        world = self.daemon.world
        request = {
            "dry run": Request(row=ROW, dry_run=True, every_function=True),
            "now": Request(row=ROW, now=True),
        }.get(which, Request(row=ROW, extent=Extent.ENOUGH))
        wanted = PassWanted(
            world.observations, world.decision, Trigger.REQUEST, request, None, self.clock.now
        )
        self._post(wanted)
        if which == "withdrawn":
            self.clock.after(0.5, lambda: self._post(Withdrawn(wanted)))

    def _mounted(self, path: str, seconds: float) -> None:
        """Another filesystem is mounted there, and goes again."""
        machine = self.machine
        before = machine.disks[path]
        if before.device > 2:
            return
        self._devices += 1
        machine.disks[path] = Disk(self._devices, 20 * GIB, self.clock)
        self.judge.all_dirty(40.0)

        def unmounted() -> None:
            machine.disks[path] = before
            self.judge.all_dirty(40.0)

        self.clock.after(seconds, unmounted)


def told(what: Event | Effect) -> str:
    """An event or an effect in one line."""
    name = type(what).__name__
    match what:
        case Sample():
            left = what.reading.stats.available_bytes if what.reading else what.problem
            return f"{name} {what.path} {left}"
        case Planned(pass_id, stage, plan, error):
            size = (len(plan.remove), len(plan.keep)) if plan else ()
            return f"{name} {pass_id} {stage.function} {stage.number} {size} {error}"
        case CheckEnded(claim, checked):
            return f"{name} {claim.object_id[:20]} {type(checked.answer).__name__}"
        case Ended(claim, outcome):
            return f"{name} {claim.object_id[:20]} {outcome.result} {outcome.error}"
        case Read(paths):
            return f"{name} {' '.join(paths)}"
        case Plan(pass_id, stage):
            return f"{name} {pass_id} {stage.function} {stage.number} {stage.last_resort}"
        case Check(claim) | Send(claim):
            return f"{name} {claim.pass_id} {claim.verdict.id[:20]}"
        case Watch(about) | Tell(about):
            return f"{name} {about}"
        case _:
            return name


KUBELETS = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {nodefs.available: 5%, imagefs.available: 5%, nodefs.inodesFree: 5%, imagefs.inodesFree: 5%}
"""


class Bench:
    """What all runs of a process share, in a directory: the kubelet's file, and directories of
    logs in which there are none.
    """

    def __init__(self, directory: Path) -> None:
        (directory / "kubelet.yaml").write_text(KUBELETS, encoding="utf-8")
        self._kubelet_file = str(directory / "kubelet.yaml")
        pods, containers = directory / "pods", directory / "containers"
        for path in (pods, containers):
            path.mkdir(exist_ok=True)
        self._logs = LogPaths(str(pods), str(containers))

    def run(self, seed: int, hours: float, entries: Sequence[Entry] | None = None) -> Result:
        """One run."""
        return Run(seed, hours, entries, self._kubelet_file, self._logs).run()
