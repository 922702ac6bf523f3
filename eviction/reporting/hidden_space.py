"""Joins what was found of hidden space with what was counted: deleted files that are open, and the remarks.

Covers: one look for a survey. Does not cover: looking (`signals.hidden_space`), sentences (`remarks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eviction.reporting.attribution import Counted, Remark
from eviction.reporting.filesystem_facts import paths_that_answer
from eviction.reporting.remarks import OtherOverlays, not_of_the_runtime, not_seen, remarks_of
from signals.clock import Clock
from signals.disk_usage import SparseFile, TreeUsage
from signals.hidden_space import HiddenSpaceMeter, Survey
from signals.overlays import WritableOverlay
from signals.types import SignalObservations

LOOK_SECONDS = 1.0  # for all processes, as far as they can be seen
MOST_OVERLAYS = 8  # whose bytes are counted


class Look:
    """What one look has found, and which overlays beside the runtime's write to each filesystem."""

    def __init__(self, survey: Survey, overlays: Mapping[int, Sequence[WritableOverlay]]):
        self._survey = survey
        self._overlays = overlays

    @property
    def uppers(self) -> list[str]:
        """The upper directories that are to be counted."""
        return [overlay.upper for each in self._overlays.values() for overlay in each][:MOST_OVERLAYS]

    @property
    def deleted_open(self) -> dict[int, Counted]:
        """The bytes of deleted files that are open, by device; a lower bound where not every process was seen."""
        complete = not_seen(self._survey) is None
        found = self._survey.filesystems.items()
        return {device_id: Counted(space.open_files.deleted_bytes, complete) for device_id, space in found}

    def remarks(
        self, observations: SignalObservations, usages: Iterable[TreeUsage], of_upper: Mapping[str, TreeUsage]
    ) -> dict[int, tuple[Remark, ...]]:
        """The remarks by device; who was not seen is said of the first filesystem only. `usages`: what was counted."""
        sparsest: dict[int, SparseFile] = {}
        for usage in usages:
            if usage.device_id is not None and usage.sparsest is not None:
                known = sparsest.get(usage.device_id)
                if known is None or known.missing < usage.sparsest.missing:
                    sparsest[usage.device_id] = usage.sparsest
        unseen = not_seen(self._survey)
        found: dict[int, tuple[Remark, ...]] = {}
        for identity, stats in observations.filesystems.values():
            device_id = identity.device_id
            if device_id in found or (space := self._survey.filesystems.get(device_id)) is None:
                continue
            others = OtherOverlays.counted(self._overlays.get(device_id, ()), of_upper)
            here = {role: each for role, (each, _) in observations.filesystems.items() if each.device_id == device_id}
            limits = {each.path: observations.limits.get(role) for role, each in here.items()}
            remarks = remarks_of(stats, space, sparsest.get(device_id), others, limits)
            found[device_id] = (*remarks, *([] if unseen is None or found else [unseen]))
        return found


class HiddenSpaceLooker:
    """Looks for a survey; takes at most a second and a half."""

    def __init__(self, clock: Clock):
        self._meter = HiddenSpaceMeter(clock, LOOK_SECONDS)

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        return self._meter.threads_not_started

    def look(self, observations: SignalObservations, imagefs: str | None) -> Look:
        """Looks at the observed filesystems that answer. `imagefs`: where the runtime's images are, None if unknown."""
        answering = paths_that_answer(observations)
        identities = [identity for identity, _ in observations.filesystems.values() if identity.path in answering]
        survey = self._meter.measure({identity.path: identity.device_id for identity in identities})
        overlays = {
            device_id: not_of_the_runtime(space.overlays, imagefs) for device_id, space in survey.filesystems.items()
        }
        return Look(survey, overlays)
