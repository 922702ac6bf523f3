"""The kubelet's configuration as the kubelet itself tells it: `GET /configz`, where it is asked anyway.

It is the whole one, as it is in force: defaults, drop-ins and flags are in it (`pkg/kubelet/server/server.go`,
`staging/src/k8s.io/component-base/configz`). One exchange with a deadline, like that for the kubelet's pods. Whose
identity may get the pods need not be allowed to get this: a role must name `nodes/configz`, or `nodes/proxy` before
Kubernetes 1.33.
"""

from __future__ import annotations

import json
import time

from eviction.configuration.kubelet import KubeletConfiguration, KubeletConfigurationError, kubelet_configuration
from eviction.configuration.kubelet_client import CONFIGZ
from eviction.configuration.kubelet_endpoint import KubeletEndpoint
from eviction.configuration.kubelet_ways import KubeletPlace, KubeletWay, asked_by_the_first, kubelet_ways
from reclaim.pods.pod_list import KubeletUnavailable

NAME = "the kubelet's /configz"
KEY = "kubeletconfig"
SECONDS = 2.0  # for all ways together


def asked_of_kubelet(
    endpoint: KubeletEndpoint | None, place: KubeletPlace | None, remark: str
) -> tuple[KubeletConfiguration | None, str]:
    """What the kubelet tells of itself at the endpoint, or where `place` leads, if it is asked for its pods there; else
    None, and why as a sentence that begins with `remark`: why no file of it is known. Takes 2 s at most.

    An answer that is wrong in some way ends no start: then the kubelet's defaults are taken, as without one.
    """
    if endpoint is None and place is None:
        return None, remark
    ways = kubelet_ways(place) if place is not None else [KubeletWay("the configured identity", endpoint)]
    try:
        _, body = asked_by_the_first(ways, time.monotonic() + SECONDS, CONFIGZ)
        return kubelet_configuration(_document(body), NAME), ""
    except KubeletUnavailable as error:
        why = f"{NAME} was asked for in vain: {error}"
    except KubeletConfigurationError as error:  # with which no kubelet would have started
        why = str(error)
    except ValueError as error:
        why = f"{NAME} cannot be read: {error}"
    return None, f"{remark}, and {why}"


def _document(body: bytes) -> dict[str, object]:
    """Raises ValueError."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    document = answer.get(KEY) if isinstance(answer, dict) else None
    if isinstance(document, dict):
        return document
    raise ValueError(f"it has no object {KEY}")
