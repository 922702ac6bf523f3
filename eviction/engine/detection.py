"""Who uses the images, and which pods exist: asked for the image records while nothing presses."""

from __future__ import annotations

from collections.abc import Callable

from eviction.engine.effects import Refreshed
from eviction.engine.world import SELDOM_SECONDS
from reclaim.cri.inventory import GivenUp, Inventory
from reclaim.evidence.starts import PartAges, parts_of_pods
from reclaim.evidence.states import Distrust
from reclaim.images.records import ImageRecords
from reclaim.kubelet.pods import KubeletPods
from reclaim.types import RuntimeUnavailable
from signals.clock import Clock


class Detection:
    """Keeps the image records, the layers of images and the ages of pods' parts up to date.

    May block.
    """

    def __init__(
        self,
        inventory: Inventory,
        pods: KubeletPods,
        records: ImageRecords,
        *,
        part_ages: PartAges,
        clock: Clock,
    ):
        self._inventory = inventory
        self._pods = pods
        self._records = records
        self._part_ages = part_ages
        self._clock = clock

    def refresh(self, something_urgent: Callable[[], bool]) -> Refreshed:
        """Pods and images, until something more urgent comes, until the next is due at
        most. Who uses them takes a call for each container on some runtimes, minutes for
        thousands of them: the next one does not ask again about those already answered for,
        and a pass asks for itself."""
        began = self._clock.monotonic()

        def goes_on() -> bool:
            return self._clock.monotonic() - began < SELDOM_SECONDS and not something_urgent()

        try:
            self.compare_pods()
            self.images(goes_on)
        except GivenUp:
            return Refreshed(given_up=True)
        except RuntimeUnavailable as error:
            return Refreshed(str(error))
        return Refreshed()

    def images(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lists images and who uses them. `goes_on`: checked from time to time; once it is false,
        GivenUp is raised. Raises RuntimeUnavailable."""
        detected_at, wall = self._clock.monotonic(), self._clock.wall()
        evidence = self._inventory.snapshot(detected_at, goes_on)
        listing = evidence.listing
        # an older list must not bring back the record of an image that a pass has removed meanwhile
        if not goes_on():
            raise GivenUp("something more urgent has begun")
        self._records.update(
            listing.images,
            evidence.usage.ids,
            detected_at,
            wall_now=wall,
            containers=listing.containers,
        )
        directories = self._pods.pod_directories() or {}
        self._part_ages.ages(parts_of_pods(listing.containers, listing.sandboxes, directories))
        self._inventory.learn_layers(listing.images, goes_on)

    def compare_pods(self) -> Distrust | None:
        """Compares the kubelet's directories with what the runtime holds now.

        Raises RuntimeUnavailable.
        """
        return self._inventory.pods_and_containers(self._clock.monotonic())[0].doubt
