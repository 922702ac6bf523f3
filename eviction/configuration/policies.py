"""The policies of garbage collection, from the configuration."""

from __future__ import annotations

from eviction.configuration.effective import Configuration
from eviction.types import Extent
from reclaim.containers.plan import ContainerGCPolicy
from reclaim.function import Policies
from reclaim.images.plan import ImageGCPolicy
from reclaim.kubelet.versions import SAYS_USAGE


def policies_of(configuration: Configuration) -> Policies:
    """With `extent: all`, as the kubelet does, our stricter guards are off."""
    return Policies(
        ContainerGCPolicy(
            min_age_seconds=configuration.minimum_container_ttl_seconds,
            max_per_pod_container=configuration.maximum_dead_containers_per_container,
            max_containers=configuration.maximum_dead_containers,
            cautious=configuration.extent is not Extent.ALL,
        ),
        ImageGCPolicy(
            min_age_seconds=configuration.image_minimum_gc_age_seconds,
            max_age_seconds=configuration.image_maximum_gc_age_seconds,
            high_threshold_percent=configuration.image_gc_high_threshold_percent,
            low_threshold_percent=configuration.image_gc_low_threshold_percent,
            keep=configuration.keep_images,
            keep_not_pulled=configuration.keep_images_not_pulled,
            pod_start_seconds=configuration.pod_start_seconds,
            keep_newest_per_repository=configuration.keep_newest_per_repository,
            says_usage=configuration.kubelet_version.has(SAYS_USAGE),
            order=configuration.image_order,
        ),
    )
