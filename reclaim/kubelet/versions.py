"""Differences between the kubelets of Kubernetes 1.31 to 1.37 that change what reclaimd does.

Nothing else compares versions: the code asks `KubeletVersion.has`. Kubelets that are older
count as 1.31, newer ones as 1.37. On all of them ImageMaximumGCAge and
KubeletSeparateDiskGC are on by default, and so are the same thresholds, ages and
percentages. These differences change nothing here:

* 1.32: containerfs signals have rows in the reclaim table; before, the kubelet reclaims nothing for
  them. It takes images and writable layers to be apart only beside CRI-O; before, beside any
  runtime that reports two mount points. A soft eviction gives a pod at most its own grace period,
  and its message names init containers too. A drop-in needs `apiVersion` and `kind`, and a duration
  of 0 in it is the default; before, it is 0.
* 1.35: image volumes are on by default and count as use. Here they always count.
* 1.36: a pod that restarts in place loses all its containers, and keeps their logs (KEP-5532). A
  negative `imageMinimumGCAge` is rejected; here it always is.

A kubelet tells its version only in a metric of `GET /metrics`, `kubernetes_build_info`
(`staging/src/k8s.io/component-base/metrics/prometheus/version`), to an identity that may get
`nodes/metrics`. It serves no `/version`, and `/configz` does not contain it. `kubelet --version` is
not run: that would be a process of 100 MiB within our own limit. While the version is not told,
1.36 is assumed: what 1.37 proves must be told.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

_BUILD_INFO = re.compile(
    rb'^kubernetes_build_info\{[^\n]{0,2000}?git_version="v([0-9A-Za-z.+-]{1,64})"', re.MULTILINE
)


class Change(NamedTuple):
    """A change of what the kubelet decides.

    `since`: the minor release of Kubernetes 1 that brought it.
    """

    since: int
    what: str


# cmd/kubelet/app/server.go, mergeKubeletConfigurations
DROP_INS_REMOVE = Change(32, "null in a drop-in removes also what the file or a default set")
# cmd/kubelet/app/server.go, loadConfigFile
MERGES_DEFAULTS = Change(33, "mergeDefaultEvictionSettings is not ignored")
# pkg/features/kube_features.go (KEP-2535; since 1.33 if the gate is switched on)
RECORDS_PULLS = Change(35, "the images that it pulls are recorded in <root>/image_manager")
RECORDS_PULLS_GATE = "KubeletEnsureSecretPulledImages"
# pkg/kubelet/images/image_gc_manager.go, GarbageCollect
SAYS_USAGE = Change(35, "FreeDiskSpaceFailed says how full the filesystem is")
# pkg/kubelet/apis/pods/server.go, validateReady
LISTS_ALL_SOURCES = Change(37, "its socket lists no pods before all their sources are ready")


@dataclass(frozen=True)
class KubeletVersion:
    """The version of the node's kubelet."""

    version: str = "1.36"
    """The version of Kubernetes."""
    assumed: str = "it is not asked"
    """Why it is assumed; empty: the kubelet told it."""

    def has(self, change: Change) -> bool:
        """Whether this kubelet has the change."""
        release = re.match(r"1\.(\d{1,3})\b", self.version)
        return release is None or int(release[1]) >= change.since

    @property
    def origin(self) -> str:
        """Whether it is assumed, and why, or told."""
        return f"assumed, as {self.assumed}" if self.assumed else "told by the kubelet"


NEWEST = KubeletVersion()  # of those whose settings differ
OLDEST = KubeletVersion("1.0")


def version_in(metrics: bytes) -> KubeletVersion | None:
    """The version in a kubelet's metrics; None if it is not there."""
    found = _BUILD_INFO.search(metrics)
    return KubeletVersion(found[1].decode(), "") if found else None
