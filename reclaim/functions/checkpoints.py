"""`DeleteCheckpoints`: removes checkpoints of pods that are gone, the oldest first.

A checkpoint holds what a container had in memory and on its disk, and no kubelet ever removes one:

* `checkpoints/checkpoint-<pod>_<namespace>-<container>-<time>.tar` below the kubelet's root
  (`pkg/kubelet/kubelet.go`, CheckpointContainer);
* `pod-checkpoints/checkpoint-<pod>_<namespace>-<time>.tar`, of a whole pod, which may be a
  directory (KEP-5823, alpha).

Where namespace ends and container begins the name does not tell, so a checkpoint is that of every
pod whose name and namespace it begins with. It goes only if none of them exists, neither by the
kubelet's directories nor by what the runtime holds. A file `<name>.keep` beside it keeps it, as for
https://github.com/checkpoint-restore/checkpoint-restore-operator.

How one goes: `units`.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from reclaim.evidence.files_in_use import files_in_use
from reclaim.evidence.states import PodStates
from reclaim.function import ReclaimContext, ReclaimFunction
from reclaim.functions.units import (
    USED_LATELY,
    Unit,
    UnitStage,
    directory_of,
    examine_roots,
    measured,
)
from reclaim.pod_logs.directories import names_in, opened
from reclaim.types import Listing, Plan, Reason, ReclaimError
from signals.types import FilesystemRole

CHECKPOINT = "checkpoint"
DIRECTORIES = ("checkpoints", "pod-checkpoints")
KEEP = b".keep"
NEWEST = "newest_checkpoint"
_NAME = re.compile(rb"checkpoint-(?P<of>.+)-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.Z+-]+\.tar")


class CheckpointSettings(NamedTuple):
    """`root`: the kubelet's. `keep`: how many of each container, or of a pod as a whole, are kept.
    `min_age_seconds`: since it was written or read."""

    root: str
    min_age_seconds: float
    keep: int

    @property
    def directories(self) -> tuple[str, ...]:
        """Those in which checkpoints lie, where they exist."""
        return tuple(filter(os.path.isdir, (os.path.join(self.root, name) for name in DIRECTORIES)))


def delete_checkpoints_function(
    name: str, settings: CheckpointSettings, frees: FilesystemRole
) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that holds the kubelet's root."""
    return ReclaimFunction(
        name,
        frees,
        (CHECKPOINT,),
        stages=lambda context: (Checkpoints(settings, context),),
        examine=lambda runtime, _: examine_roots(settings.directories, "checkpoints", runtime),
    )


def of_what(name: bytes) -> str:
    """Which pod and container a checkpoint is of, as its name has it; empty for another name."""
    match = _NAME.fullmatch(name)
    return os.fsdecode(match["of"]) if match else ""


def _is_of(of: str, pods: Iterable[str]) -> bool:
    return any(of == pod or of.startswith(f"{pod}-") for pod in pods)


def plan_checkpoints(
    units: Iterable[Unit],
    pods: Collection[str] | None,
    settings: CheckpointSettings,
    *,
    now: float,
    marked: Collection[str] = (),
) -> Plan:
    """The plan for every checkpoint, the oldest first. `pods`: those that may exist, as
    `<pod>_<namespace>`; None: not known. `now`: wall seconds. `marked`: the ids of those that a
    file keeps."""
    seen = Counter[tuple[str, str]]()
    verdicts = []
    for unit in sorted(units, key=lambda unit: (unit.used_at, unit.id), reverse=True):
        of, age = of_what(unit.names[-1]), now - unit.used_at
        seen[unit.root, of] += 1
        if unit.problem or unit.left_behind:
            why = unit.problem
        elif not of:
            why = Reason.NOT_KUBELETS
        elif unit.id in marked:
            why = Reason.KEEP_LIST
        elif pods is None:
            why = Reason.POD_UNKNOWN
        elif _is_of(of, pods):
            why = Reason.POD_ALIVE
        elif seen[unit.root, of] <= settings.keep:
            why = NEWEST
        else:
            why = USED_LATELY if age < settings.min_age_seconds else ""
        verdicts.append(
            unit.verdict(
                CHECKPOINT, why, Reason.POD_GONE, age=age, min_age=settings.min_age_seconds
            )
        )
    return Plan.of(reversed(verdicts))


def pods_that_may_exist(states: PodStates, listing: Listing) -> frozenset[str] | None:
    """As `<pod>_<namespace>`; None if the kubelet's directories are not trusted, or if there is a
    pod of which the runtime holds nothing yet, whose name is not known."""
    if states.doubt is not None or states.present is None:
        return None
    if states.present - {part.pod_uid for part in listing.parts}:
        return None
    return frozenset(
        f"{part.pod_name}_{part.pod_namespace}"
        for part in listing.parts
        if not states.gone(part.pod_uid)
    )


class Checkpoints(UnitStage):
    """The stage: what lies in the kubelet's directories of checkpoints."""

    def __init__(self, settings: CheckpointSettings, context: ReclaimContext):
        super().__init__(context.runtime, context.clock)
        self._settings = settings
        self._context = context

    def plan(self) -> Plan | None:
        """None if there are no checkpoints. Raises ReclaimError."""
        used, marked = files_in_use(self.runtime.runtime_path), []
        for root in self._settings.directories:
            try:
                with opened(root) as directory:
                    names = dict.fromkeys(names_in(directory))
                    for name in names:
                        if name.endswith(KEEP) and name.removesuffix(KEEP) in names:
                            continue
                        with suppress(FileNotFoundError):
                            unit = measured(directory, Unit(root, (name,)), used)
                            self.units[unit.id] = unit
                            marked += [unit.id] * (name + KEEP in names)
            except OSError as error:
                raise ReclaimError(f"{root} cannot be read: {error.strerror}") from error
        if not self.units:
            return None
        return plan_checkpoints(
            self.units.values(),
            self._pods(),
            self._settings,
            now=self._context.clock.wall(),
            marked=marked,
        )

    def still_kept(self, unit: Unit) -> str:
        """Whether a file keeps it by now, or its pod exists."""
        with directory_of(unit) as directory, suppress(FileNotFoundError):
            os.lstat(unit.names[-1] + KEEP, dir_fd=directory)
            return Reason.KEEP_LIST
        pods = self._pods()
        if pods is None:
            return Reason.POD_UNKNOWN
        return Reason.POD_ALIVE if _is_of(of_what(unit.names[-1]), pods) else ""

    def _pods(self) -> frozenset[str] | None:
        return pods_that_may_exist(
            *self._context.inventory.pods_and_containers(self._context.not_older_than())
        )
