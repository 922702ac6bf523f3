"""Complete lists as evidence of who uses each image, and for how long they count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reclaim.evidence.references import ImagesInUse, images_in_use
from reclaim.evidence.starts import FRESH_SECONDS, nothing_has_begun
from reclaim.evidence.states import PodDirectories
from reclaim.types import Listing, Verdict


class Evidence(NamedTuple):
    """What shows that nobody uses an image. Times are monotonic seconds."""

    listing: Listing
    usage: ImagesInUse
    """Which images the lists show in use."""
    directories: PodDirectories | None
    """Those of pods, looked at right before the list of containers was begun; None
    if they could not be read.
    """
    begun_at: float
    """When the list of containers was begun."""
    answered_at: float
    """When it was answered."""
    read_at: float
    """By when what else belongs to it was read."""

    @property
    def as_of(self) -> float:
        """When it counts from: its beginning; but its end, if it was slow, as it would never be
        fresh enough. What has begun meanwhile is seen by the last look; where there is none, only
        the list of containers may be slow."""
        end = self.answered_at if self.directories is None else self.read_at
        return end if end - self.begun_at >= FRESH_SECONDS / 2 else self.begun_at

    def without(self, planned: Sequence[Verdict]) -> Evidence:
        """How a dry run continues after planning to remove these objects."""
        if not planned:
            return self
        listing = self.listing.without(planned)
        return self._replace(listing=listing, usage=images_in_use(listing))

    def holds(self, directories_now: PodDirectories | None) -> bool:
        """Whether nothing has begun since, by another look; False if that is not known."""
        before = self.directories
        return before is not None and nothing_has_begun(
            before, directories_now, self.listing.containers
        )
