"""Complete lists of the runtime, in an order that misses nothing; and a fresh list of containers before a removal.

* Images are listed first, containers after them: a container that starts in between is seen, never missed.
* Any failing call discards everything: a partial list would make a used image look unused.
* For references that no listed image has, the runtime is asked, which resolves them by its own rules.
* Which images a container mounts, and which image a sandbox was made from, never changes: it is asked once for each.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from reclaim.clock import Clock
from reclaim.cri.retry import retried
from reclaim.images.in_use import images_in_use
from reclaim.images.references import ImageIndex
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Container, Listing, PodSandboxState, RuntimeUnavailable

FRESH_SECONDS = 1.0


class Lister:
    """Lists what a runtime has. May be used from several threads."""

    def __init__(self, runtime: RuntimeService, images: ImageService, clock: Clock):
        self._runtime = runtime
        self._images = images
        self._clock = clock
        self._lock = threading.Lock()
        self._volumes: dict[str, tuple[str, ...]] = {}
        self._sandbox_images: dict[str, str | None] = {}
        self._mounts_images: bool | None = None

    def containers(self) -> Listing:
        """Containers and sandboxes only. Raises RuntimeUnavailable."""
        containers = retried(self._runtime.list_containers)
        return Listing(containers=containers, sandboxes=retried(self._runtime.list_pod_sandboxes))

    def everything(self) -> Listing:
        """Images, then containers and sandboxes, and which image is used by what. Raises RuntimeUnavailable."""
        images = retried(self._images.list_images)
        listing = replace(self.containers(), images=images)
        with self._lock:
            listing = replace(
                listing,
                sandbox_image_references=self._sandbox_image_references(listing),
                image_volumes=self._image_volumes(listing.containers),
            )
            return self._resolved(listing, ImageIndex(images))

    def refresh_containers(self, listing: Listing, index: ImageIndex) -> Listing:
        """The same images with a fresh list of containers. Raises RuntimeUnavailable."""
        containers = self._runtime.list_containers()
        with self._lock:
            fresh = replace(listing, containers=containers, image_volumes=self._image_volumes(containers))
            return self._resolved(fresh, index)

    def _sandbox_image_references(self, listing: Listing) -> frozenset[str] | None:
        """The configured one, and those that ready sandboxes were made from; None when neither is known."""
        configured = self._runtime.sandbox_image()
        ready = {sandbox.id for sandbox in listing.sandboxes if sandbox.state is PodSandboxState.READY}
        self._sandbox_images = {known: image for known, image in self._sandbox_images.items() if known in ready}
        for sandbox_id in ready - self._sandbox_images.keys():
            self._sandbox_images[sandbox_id] = self._runtime.image_of_sandbox(sandbox_id)
        references = frozenset(image for image in (configured, *self._sandbox_images.values()) if image)
        return references or None

    def _image_volumes(self, containers: tuple[Container, ...]) -> dict[str, tuple[str, ...]]:
        if self._mounts_images is None:
            self._mounts_images = self._runtime.version().mounts_images()
        if not self._mounts_images:
            return {}
        listed = {container.id for container in containers}
        self._volumes = {known: volumes for known, volumes in self._volumes.items() if known in listed}
        for container_id in listed - self._volumes.keys():
            status = self._runtime.container_status(container_id)
            if status is not None and status.id == container_id:
                self._volumes[container_id] = status.image_volumes
            elif status is not None or any(c.id == container_id for c in self._runtime.list_containers()):
                raise RuntimeUnavailable(f"container {container_id} is listed, but what it mounts is not said")
        return {container_id: volumes for container_id, volumes in self._volumes.items() if volumes}

    def _resolved(self, listing: Listing, index: ImageIndex) -> Listing:
        """Asks the runtime about references that the image list does not resolve."""
        resolved = dict(listing.resolved)
        sandbox_images = {
            reference for reference in listing.sandbox_image_references or () if not index.find(reference)
        }
        for reference in sandbox_images.union(images_in_use(listing, index).unresolved) - resolved.keys():
            image = self._images.image_status(reference)
            resolved[reference] = None if image is None else image.id
        return replace(listing, resolved=resolved)
