"""Complete lists as evidence of who uses each image, and for how long they count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reclaim.evidence.references import ImagesInUse, images_in_use
from reclaim.evidence.starts import Directories
from reclaim.types import Listing, Verdict

FRESH_SECONDS = 1.0  # how old the lists behind a plan may be; each removal is checked against newer ones


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows that nobody uses an image. Times are monotonic seconds."""

    listing: Listing
    usage: ImagesInUse
    """Which images the lists show in use."""
    directories: Directories | None
    """Those of pods, read right before the list of containers was begun; None if they could not be read."""
    begun_at: float
    """When the list of containers was begun."""
    answered_at: float

    @property
    def as_of(self) -> float:
        """When it counts from: its beginning; but its answer, if the list was slow, as it would never be fresh enough.
        What has begun meanwhile is seen by the last look."""
        return self.answered_at if self.answered_at - self.begun_at >= FRESH_SECONDS / 2 else self.begun_at

    def without(self, planned: Iterable[Verdict]) -> Evidence:
        """How a dry run continues after planning to remove these objects."""
        listing = self.listing.without(planned)
        return replace(self, listing=listing, usage=images_in_use(listing))

    def nothing_has_begun_since(self, by: float | None = None) -> bool:
        """The last look (`Directories.nothing_has_begun_since`); False if it cannot be taken."""
        return self.directories is not None and self.directories.nothing_has_begun_since(self.listing.containers, by)


def usable(evidence: Evidence, asked_at: float) -> bool:
    """Whether it shows who uses an image at this time (monotonic seconds)."""
    return evidence.as_of > asked_at
