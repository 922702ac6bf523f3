"""What follows the version of the kubelet, row by row; each was compared with the
sources of 1.31.14 to 1.36.3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.effective import load
from eviction.configuration.kubelet import API_VERSION, KIND, read_kubelet_configuration
from eviction.engine.build import policies_of
from eviction.wording.configuration_warnings import configuration_warnings, kubelet_findings
from reclaim.images.plan import SpaceDecision, not_enough_freed
from reclaim.kubelet.versions import (
    DROP_INS_REMOVE,
    MERGES_DEFAULTS,
    NEWEST,
    OLDEST,
    SAYS_USAGE,
    Change,
    KubeletVersion,
    version_in,
)

DEFAULTS = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
NOT_NODEFS = {signal: text for signal, text in DEFAULTS.items() if signal != "nodefs.available"}
ONE = {"nodefs.available": "1Gi"}
MERGE = {"mergeDefaultEvictionSettings": True}
HARD = "evictionHard"


def told(version: str) -> KubeletVersion:
    """A version that the kubelet told."""
    return KubeletVersion(version, "")


def written(directory: Path, file: dict[str, Any], *drop_ins: dict[str, Any]) -> tuple[str, str]:
    """The kubelet's file and its directory of drop-ins with these fields."""
    head = {"apiVersion": API_VERSION, "kind": KIND}
    (directory / "conf.d").mkdir()
    (directory / "config.yaml").write_text(json.dumps({**head, **file}))
    for number, fields in enumerate(drop_ins):
        (directory / "conf.d" / f"{number}.conf").write_text(json.dumps({**head, **fields}))
    return str(directory / "config.yaml"), str(directory / "conf.d")


@pytest.mark.parametrize(
    ("change", "file", "drop_ins", "before", "since"),
    [
        (DROP_INS_REMOVE, {}, [{HARD: {"nodefs.available": None}}], DEFAULTS, NOT_NODEFS),
        (DROP_INS_REMOVE, {}, [{HARD: None}], DEFAULTS, {}),
        (DROP_INS_REMOVE, {HARD: ONE}, [{HARD: {"nodefs.available": None}}], ONE, {}),
        (
            DROP_INS_REMOVE,
            {HARD: ONE},
            [{HARD: {"nodefs.available": "2Gi"}}, {HARD: None}],
            ONE,
            {},
        ),
        (MERGES_DEFAULTS, {HARD: ONE, **MERGE}, [], ONE, {**DEFAULTS, **ONE}),
        (MERGES_DEFAULTS, {HARD: {}, **MERGE}, [], {}, DEFAULTS),
        (None, {}, [], DEFAULTS, DEFAULTS),
        (None, {HARD: ONE}, [MERGE], ONE, ONE),
        (None, {**MERGE}, [], DEFAULTS, DEFAULTS),
        (
            None,
            {},
            [{HARD: ONE}, {HARD: {"nodefs.available": "3Gi"}}],
            *[{**DEFAULTS, "nodefs.available": "3Gi"}] * 2,
        ),
        (None, {}, [{"imageMinimumGCAge": "1m"}, {"imageMinimumGCAge": None}], DEFAULTS, DEFAULTS),
        (None, {"maxPods": 50}, [{"maxPods": None}], DEFAULTS, DEFAULTS),
    ],
)
def test_the_thresholds_are_those_that_a_kubelet_of_this_version_has(
    tmp_path: Path,
    change: Change | None,
    file: dict[str, Any],
    drop_ins: list[dict[str, Any]],
    before: dict[str, str],
    since: dict[str, str],
) -> None:
    """`cmd/kubelet/app/server.go`.

    Only where a setting depends on it is the version of importance.
    """
    paths = written(tmp_path, file, *drop_ins)
    for minor in range(30, 38):
        found = read_kubelet_configuration(*paths, version=told(f"1.{minor}.4"))
        marks = {str(one.signal): one.text() for one in found.thresholds.thresholds}
        assert marks == (before if change is not None and minor < change.since else since)
        assert found.depends_on_version is (change is not None)


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("1.34.9", False),
        ("1.34.1+k3s1", False),
        ("1.35.0", True),
        ("1.35.0-alpha.0", True),
        ("1.36", True),
        ("1.100.2", True),
        ("2.0.0", True),
        ("", True),
        ("0.0.0-master+$Format:%H$", True),
    ],
)
def test_a_change_holds_from_its_minor_release_on(version: str, has: bool) -> None:
    """What is no release of Kubernetes 1 counts as the newest."""
    assert told(version).has(SAYS_USAGE) is has
    assert NEWEST.has(SAYS_USAGE)
    assert not OLDEST.has(DROP_INS_REMOVE)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "1.34.2",
            """Failed to garbage collect required amount of images.
            Attempted to free 7 bytes, but only found 3 bytes eligible to free.""",
        ),
        (
            "1.35.0",
            """Insufficient free disk space on the node's image filesystem (91% of 100 B used).
            Failed to free sufficient space by deleting unused images (freed 3 bytes).
            Investigate disk usage, as it could be used by active images, logs, volumes, or other data.""",
        ),
    ],
)
def test_the_event_of_too_little_freed_has_the_words_of_this_kubelet(
    version: str, text: str
) -> None:
    """`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect."""
    configuration = load(None, {}, {}).model_copy(update={"kubelet_version": told(version)})
    event = not_enough_freed(
        SpaceDecision(91, 100, 7), 3, says_usage=policies_of(configuration).images.says_usage
    )
    assert event is not None
    assert event.message == " ".join(text.split())


LINE = (
    'kubernetes_build_info{build_date="2025-11-11T19:03:14Z",compiler="gc",git_commit="f3f8",'
    'git_tree_state="clean",git_version="v%s",go_version="go1.24.9",major="1",minor="31",platform="linux/amd64"} 1\n'
)


@pytest.mark.parametrize(
    ("metrics", "version"),
    [
        (LINE % "1.31.14", "1.31.14"),
        (
            "# HELP kubernetes_build_info a\n" + LINE % "1.30.6-eks-94953ac" + "x 1\n",
            "1.30.6-eks-94953ac",
        ),
        (LINE % "1.33.5+k3s1", "1.33.5+k3s1"),
        ("", None),
        ("x" + LINE % "1.31.14", None),
        (LINE % "", None),
        (LINE % ("1" * 65), None),
        ('kubernetes_build_info{a="b"} 1\ny{git_version="v1.31.14"} 1\n', None),
    ],
)
def test_the_version_is_read_from_the_metrics(metrics: str, version: str | None) -> None:
    """Prometheus' text format; of anything else there is no version."""
    found = version_in(metrics.encode())
    assert found == (None if version is None else told(version))


def test_an_unknown_version_is_told_where_a_setting_depends_on_it(tmp_path: Path) -> None:
    """As a warning with both changes; not if the kubelet told it, or has the
    same settings in any version.
    """
    file, directory = written(tmp_path, {HARD: ONE, **MERGE})
    found = load(
        None, {}, {"kubeletConfig": file, "kubeletConfigDir": directory, "kubeletEndpoint": ""}
    )
    assert (found.kubelet_version, len(found.thresholds)) == (NEWEST, 4)
    (warning,) = configuration_warnings(found)
    assert (
        warning
        == "the kubelet's settings depend on its version, for which 1.36 is assumed: since 1.32"
        " null in a drop-in removes also what the file or a default set; since 1.33"
        " mergeDefaultEvictionSettings is not ignored; it is not asked; set kubeletEndpoint, for"
        " an identity that may get nodes/metrics"
    )
    assert not list(kubelet_findings(found.model_copy(update={"kubelet_version": told("1.36.0")})))
    (tmp_path / "config.yaml").write_text(
        json.dumps({"apiVersion": API_VERSION, "kind": KIND, HARD: ONE})
    )
    assert not list(kubelet_findings(load(None, {}, {"kubeletConfig": file})))
