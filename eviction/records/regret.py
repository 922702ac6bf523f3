"""What removals cost: each removal of an image or of a unit of a cache in the history, joined with
its next appearance.

The daemon records when an image that had gone is listed again, by its id or else by its tag,
whoever removed it (`ReturnedRecordJson`). Here this is joined with the removals of all recorded
passes. What was removed once more had come back in between, too; of a unit nothing else tells.

Unknown is not "not returned". An image counts as not returned within an hour only if a daemon has
looked for that long; if the hour is not over, or if none ran all the while, that is what it says.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from eviction.records.json_shapes import Count, Document, Seconds, Versioned
from eviction.types import Json
from reclaim.functions.caches import CACHE_UNIT
from reclaim.types import Kind, Result

WINDOWS_SECONDS = {"1h": 3600, "24h": 24 * 3600, "7d": 7 * 24 * 3600}


@dataclass(slots=True)
class Removal:
    """One removal, by a pass that began at `at` (seconds since the epoch).

    `came_back`: after how many seconds at most; None: it has not been seen since. `returned_bytes`:
    the size of what came back, as the runtime reports it. `missing`: for how many seconds at least
    it was not there; 0: nobody knows.
    """

    id: str
    name: str
    at: float
    freed_bytes: int
    came_back: float | None = None
    returned_bytes: int = 0
    missing: float = 0.0

    def returned(self, at: float, size_bytes: int | None) -> None:
        """It was there again at this time."""
        self.came_back = at - self.at
        self.returned_bytes = size_bytes or 0


class SumsJson(Document):
    """Removals of images and units of caches, and what came back."""

    removed: Count
    """How often one was removed."""
    returned: Count
    """How often it was seen to come back."""
    within: dict[str, dict[str, Count]]
    """Within an hour, a day and a week: how many came back (`returned`); were missing all the while
    (`not_returned`), or so far (`not_over`); and of how many neither is known, as no daemon ran all
    the while (`unknown`)."""
    soonest_seconds: Seconds | None
    """After how long it came back soonest; null if it did not."""
    freed_bytes: Count
    """What the filesystem gained right after the removals."""
    returned_bytes: Count
    """What came back, by the sizes that the runtime reports."""
    returned_bytes_per_gib: Count | None
    """The same for each GiB that was freed; null if nothing was."""


class ImageRegretJson(SumsJson):
    """The removals of one image or unit."""

    name: str
    """Its name."""


class RegretJson(SumsJson, Versioned):
    """What removals have cost, of images and of units of caches: the answer of `reclaimd history
    --regret`."""

    images: list[ImageRegretJson]
    """That of which the most bytes came back first."""


def removals_of(
    documents: Iterable[Json], gone: Container[str] = (), until: float | None = None
) -> list[Removal]:
    """The removals of images and units in these records, the oldest first, each with its next
    appearance. `gone`: the ids of the images that the daemon remembered as gone at the Unix time
    `until`."""
    found: list[Removal] = []
    missing: dict[str, Removal] = {}  # those that have not come back, by id
    # of what each daemon recorded: until the next one started, maybe nobody looked
    ends: list[float] = []
    before = 0.0
    for document in sorted(documents, key=_began):
        at = datetime.fromisoformat(_began(document)).timestamp()
        if document["kind"] == "started":
            ends.append(before)
        if document["kind"] == "returned" and document["gone_id"] in missing:
            removal = missing.pop(document["gone_id"])
            removal.returned(at, document["size"])
            removal.missing = min([at, *(end for end in ends if end >= removal.at)]) - removal.at
        for outcome in document.get("removals", ()):
            if (
                outcome["kind"] not in (Kind.IMAGE, CACHE_UNIT)
                or outcome["result"] != Result.REMOVED
            ):
                continue
            image_id = outcome["id"]
            if image_id in missing:
                missing[image_id].returned(at, outcome["size"])
            removal = Removal(image_id, outcome["name"], at, freed_bytes=outcome["freed"]["bytes"])
            missing[image_id] = removal
            found.append(removal)
        before = at
    for removal in missing.values():
        if until is not None and removal.id in gone:
            removal.missing = max(until - removal.at, 0.0)
    return found


def _began(document: Json) -> str:
    """When a pass began, in which images may have come back; or when something else happened."""
    return str(document.get("started", document["time"]))


def regret_of(removals: Sequence[Removal], limit: int | None = None) -> RegretJson:
    """`limit`: of the images."""
    return RegretJson(**_sums(removals), images=images_of(removals)[:limit])


def images_of(removals: Iterable[Removal]) -> list[ImageRegretJson]:
    """The removals of each image, that of which the most bytes came back first."""
    by_name: dict[str, list[Removal]] = {}
    for removal in removals:
        by_name.setdefault(removal.name, []).append(removal)
    images = [ImageRegretJson(name=name, **_sums(each)) for name, each in by_name.items()]
    return sorted(images, key=lambda each: (-each.returned_bytes, -each.removed, each.name))


def _sums(removals: Sequence[Removal]) -> Json:
    back = [removal.came_back for removal in removals if removal.came_back is not None]
    freed = sum(removal.freed_bytes for removal in removals)
    returned = sum(removal.returned_bytes for removal in removals)
    within = {}
    for name, seconds in WINDOWS_SECONDS.items():
        fates = Counter(_within(seconds, removal) for removal in removals)
        within[name] = {
            fate: fates[fate] for fate in ("returned", "not_returned", "not_over", "unknown")
        }
    return {
        "removed": len(removals),
        "returned": len(back),
        "within": within,
        "soonest_seconds": min(back, default=None),
        "freed_bytes": freed,
        "returned_bytes": returned,
        "returned_bytes_per_gib": round(returned * (1 << 30) / freed) if freed else None,
    }


def _within(seconds: int, removal: Removal) -> str:
    if removal.came_back is not None and removal.came_back <= seconds:
        return "returned"
    if removal.missing >= seconds:
        return "not_returned"
    return "not_over" if removal.came_back is None and removal.missing > 0 else "unknown"
