"""Parses the kubelet's answer to `GET /stats/summary` into what each pod uses.

Source: `staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go` (Summary), tag v1.36.0. Every number may be
absent. The kubelet's own evictions go by the same ones: what it renews for them is CPU and memory
(`pkg/kubelet/server/stats/summary.go`, Get). Those of containers are as old as the runtime's, those of volumes up to a
minute (`volumeStatsAggPeriod`).
"""

from __future__ import annotations

from collections.abc import Mapping

from eviction.pod_eviction.types import ContainerUsage, FsUsage, PodUsage
from reclaim.pods.pod_list import Field, parse_answer


def parse_stats_summary(body: bytes) -> Mapping[str, PodUsage]:
    """The usage of each pod by UID. Raises KubeletAnswerError, and nothing else, for anything that is no summary.

    Of a UID that is there twice the last one counts (`pkg/kubelet/eviction/helpers.go`, cachedStatsFunc), of a volume
    the first (podLocalVolumeUsage).
    """
    summary = parse_answer(body)
    if not summary.get("node").names():
        raise summary.get("node").error("is not there")
    return dict(_pod(pod) for pod in summary.get("pods").elements())


def _pod(pod: Field) -> tuple[str, PodUsage]:
    uid = pod.get("podRef").get("uid")
    if not uid.text():
        raise uid.error("is not there")
    volumes: dict[str, FsUsage] = {}
    for volume in pod.get("volume").elements():
        volumes.setdefault(volume.get("name").text(), _usage(volume))
    containers = tuple(
        ContainerUsage(each.get("name").text(), _usage(each.get("rootfs")), _usage(each.get("logs")))
        for each in pod.get("containers").elements()
    )
    return uid.text(), PodUsage(containers, volumes, _usage(pod.get("ephemeral-storage")))


def _usage(statistics: Field) -> FsUsage:
    return FsUsage(statistics.get("usedBytes").integer(), statistics.get("inodesUsed").integer())
