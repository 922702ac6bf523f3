"""The kubelet's own configuration is read as the kubelet reads it, or refused in one sentence.

Sources: https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/,
`pkg/kubelet/apis/config/v1beta1/defaults.go`, `pkg/kubelet/apis/config/validation/validation.go`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import Configuration, load
from eviction.configuration.fingerprint import drop_ins
from eviction.configuration.kubelet import (
    API_VERSION,
    KIND,
    kubelet_configuration,
    kubelets_drop_ins,
    merged,
    read_kubelet_configuration,
)
from eviction.configuration.strict_yaml import ConfigurationError
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from signals.types import Signal
from tests.pure.values import threshold

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"


def marks(found: Any) -> dict[str, str]:
    """The values of the thresholds, as texts."""
    return {str(one.signal): one.text() for one in found.thresholds.thresholds}


@pytest.fixture
def kubelets(tmp_path: Path) -> Path:
    """A directory with `config.yaml` and an empty drop-in directory `conf.d`."""
    (tmp_path / "config.yaml").write_text(HEAD)
    (tmp_path / "conf.d").mkdir()
    return tmp_path


def read(kubelets: Path, with_drop_ins: bool = True) -> Any:
    """What is in force there."""
    return read_kubelet_configuration(
        str(kubelets / "config.yaml"), str(kubelets / "conf.d") if with_drop_ins else ""
    )


def refusal(kubelets: Path) -> str:
    """The sentence with which it is refused."""
    with pytest.raises(ConfigurationError) as refused:
        read(kubelets)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_an_empty_configuration_is_the_kubelets_defaults(kubelets: Path) -> None:
    """SetDefaults_KubeletConfiguration: 85 and 80 percent, the thresholds of Linux."""
    found = read(kubelets)
    assert (found.image_gc_high_threshold_percent, found.image_gc_low_threshold_percent) == (85, 80)
    assert found.settings == {"evictionHard": KUBELET_EVICTION_HARD}
    assert marks(found) == {
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }
    assert found.thresholds.left_to_kubelet == (("memory.available", "100Mi"),)
    assert {one.origin for one in found.thresholds.thresholds} == {str(kubelets / "config.yaml")}


def test_what_is_written_is_in_force(kubelets: Path) -> None:
    """Every field that is read."""
    (kubelets / "config.yaml").write_text(
        HEAD
        + "evictionHard: {nodefs.available: 1Gi}\n"
        + "evictionSoft: {imagefs.available: 20%}\n"
        + "evictionSoftGracePeriod: {imagefs.available: 1m30s}\n"
        + "evictionMinimumReclaim: {imagefs.available: 2Gi}\n"
        + "evictionPressureTransitionPeriod: 30s\n"
        + "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\n"
        + "imageMinimumGCAge: 1m\nimageMaximumGCAge: 24h\n"
        + "containerRuntimeEndpoint: unix:///run/a.sock\nimageServiceEndpoint: unix:///run/b.sock\n"
    )
    found = read(kubelets)
    hard, soft = found.thresholds.thresholds
    assert replace(hard, origin="") == threshold(Signal.NODEFS_AVAILABLE, "1Gi")
    share = threshold(Signal.IMAGEFS_AVAILABLE, "20%", grace_seconds=90.0, min_reclaim="2Gi")
    assert replace(soft, origin="") == share
    assert (found.image_gc_high_threshold_percent, found.image_gc_low_threshold_percent) == (70, 60)
    texts = {name: text for name, text in found.settings.items() if isinstance(text, str)}
    assert texts == {
        "evictionPressureTransitionPeriod": "30s",
        "imageMinimumGCAge": "1m",
        "imageMaximumGCAge": "24h",
        "containerRuntimeEndpoint": "unix:///run/a.sock",
        "imageServiceEndpoint": "unix:///run/b.sock",
    }


@pytest.mark.parametrize(
    ("written", "signals"),
    [
        ("", 4),
        ("evictionHard: {}\n", 0),
        ("evictionHard:\n", 4),
        ("evictionHard: {nodefs.available: 1Gi}\n", 1),
        ("evictionHard: {nodefs.available: 1Gi}\nmergeDefaultEvictionSettings: true\n", 4),
        ("evictionHard: {nodefs.available: 0%}\nmergeDefaultEvictionSettings: true\n", 3),
        ("evictionHard: {}\nmergeDefaultEvictionSettings: true\n", 4),
        ("mergeDefaultEvictionSettings: false\n", 4),
    ],
)
def test_defaults_are_lost_as_soon_as_the_hard_map_is_written(
    kubelets: Path, written: str, signals: int
) -> None:
    """`cmd/kubelet/app/server.go`: nil is all defaults, {} is none,
    mergeDefaultEvictionSettings adds the missing.
    """
    (kubelets / "config.yaml").write_text(HEAD + written)
    assert len(marks(read(kubelets))) == signals


def test_drop_ins_override_the_file_in_the_order_of_their_names(kubelets: Path) -> None:
    """Maps by key, other values replaced; only *.conf; 10 comes before 9, as texts are ordered."""
    (kubelets / "config.yaml").write_text(
        HEAD
        + "evictionHard: {nodefs.available: 1Gi, imagefs.available: 1Gi}\nimageMinimumGCAge: 1m\n"
    )
    for name, text in {
        "10-a.conf": "evictionHard: {nodefs.available: 2Gi}\nimageMinimumGCAge: 3m\n",
        "9-b.conf": "evictionHard: {nodefs.available: 3Gi}\n",
        "99.yaml": "evictionHard: {nodefs.available: 4Gi}\n",
        "99.conf.bak": "nonsense",
    }.items():
        (kubelets / "conf.d" / name).write_text(HEAD + text)
    assert drop_ins(str(kubelets / "conf.d")) == [
        str(kubelets / "conf.d" / n) for n in ("10-a.conf", "9-b.conf")
    ]
    found = read(kubelets)
    assert marks(found) == {"nodefs.available": "3Gi", "imagefs.available": "1Gi"}
    assert found.settings["imageMinimumGCAge"] == "3m"
    assert marks(read(kubelets, with_drop_ins=False))["nodefs.available"] == "1Gi"


def test_null_in_a_drop_in_removes_a_value(kubelets: Path) -> None:
    """A map's entry, and a whole field, which has its default again."""
    (kubelets / "config.yaml").write_text(
        HEAD
        + "evictionHard: {nodefs.available: 1Gi, imagefs.available: 1Gi}\nimageMinimumGCAge: 1m\n"
    )
    (kubelets / "conf.d" / "1.conf").write_text(
        HEAD + "evictionHard: {nodefs.available: null}\nimageMinimumGCAge: null\n"
    )
    found = read(kubelets)
    assert marks(found) == {"imagefs.available": "1Gi"}
    assert "imageMinimumGCAge" not in found.settings


DEFAULTS = {
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
NOT_NODEFS = {signal: text for signal, text in DEFAULTS.items() if signal != "nodefs.available"}
MEMORY = "evictionHard: {memory.available: 200Mi}\n"
MERGE = "mergeDefaultEvictionSettings: true\n"


@pytest.mark.parametrize(
    ("file", "drop_ins", "in_force"),
    [
        ("", [MEMORY], DEFAULTS),
        ("", ["evictionHard: {nodefs.available: 1Gi}\n"], {**DEFAULTS, "nodefs.available": "1Gi"}),
        ("evictionHard: null\n", [MEMORY], DEFAULTS),
        ("", ["evictionHard: {}\n"], DEFAULTS),
        ("", ["evictionHard: null\n"], {}),
        ("", ["evictionHard: null\n", MEMORY], {}),
        ("", ["evictionHard: {nodefs.available: null}\n"], NOT_NODEFS),
        (MEMORY, [], {}),
        (MEMORY, [MERGE], {}),
        (MEMORY, [MERGE + "evictionHard: {nodefs.available: 1Gi}\n"], {"nodefs.available": "1Gi"}),
        ("evictionHard: {}\n", [MEMORY], {}),
        (MEMORY + MERGE, [], DEFAULTS),
        (MEMORY + MERGE, ["mergeDefaultEvictionSettings: false\n"], DEFAULTS),
        (MEMORY + MERGE, ["evictionHard: {nodefs.available: null}\n"], NOT_NODEFS),
        ("evictionHard: {nodefs.available: 0%}\n" + MERGE, [MEMORY], NOT_NODEFS),
        ("", ["evictionSoft: {nodefs.available: null}\n"], DEFAULTS),
    ],
)
def test_the_default_thresholds_come_in_with_the_file_and_drop_ins_after_them(
    kubelets: Path, file: str, drop_ins: list[str], in_force: dict[str, str]
) -> None:
    """`cmd/kubelet/app/server.go`, 1.36: loadConfigFile fills them in,
    mergeKubeletConfigurations patches them.
    """
    (kubelets / "config.yaml").write_text(HEAD + file)
    for number, text in enumerate(drop_ins):
        (kubelets / "conf.d" / f"{number}.conf").write_text(HEAD + text)
    assert marks(read(kubelets)) == in_force


def test_the_directories_below_a_drop_in_directory_are_walked(kubelets: Path) -> None:
    """In lexical order, entry by entry; a symlink to a directory is not
    followed, one to a file is.
    """
    conf, other = kubelets / "conf.d", kubelets / "other"
    for directory in (conf / "50-site" / "deep.conf", conf / "9", other):
        directory.mkdir(parents=True)
    names = ["10.conf", "50-site/1.conf", "50-site/deep.conf/2.conf", "50.conf"]
    for number, name in enumerate(names):
        (conf / name).write_text(HEAD + f"imageMinimumGCAge: {number + 1}m\n")
    (other / "99.conf").write_text(HEAD + "imageMinimumGCAge: 99m\n")
    (conf / "99-linked").symlink_to(other)
    assert [os.path.relpath(path, conf) for path in kubelets_drop_ins(str(conf))] == names
    assert read(kubelets).settings["imageMinimumGCAge"] == "4m"
    (conf / "99.conf").symlink_to(other / "99.conf")
    assert read(kubelets).settings["imageMinimumGCAge"] == "99m"


def test_a_drop_in_directory_that_is_a_symlink_is_not_walked(kubelets: Path) -> None:
    """Go's `filepath.WalkDir` looks at it with lstat, and takes it for a file without the
    suffix; not with a slash.
    """
    (kubelets / "conf.d" / "1.conf").write_text(HEAD + "imageMinimumGCAge: 7m\n")
    (kubelets / "link").symlink_to("conf.d")
    file, link = str(kubelets / "config.yaml"), str(kubelets / "link")
    assert "imageMinimumGCAge" not in read_kubelet_configuration(file, link).settings
    assert read_kubelet_configuration(file, f"{link}/").settings["imageMinimumGCAge"] == "7m"


@pytest.mark.regression
@pytest.mark.parametrize(("name", "age"), [("one.conf", "7m"), ("one.yaml", None)])
def test_a_drop_in_directory_that_is_a_file_is_the_only_drop_in(
    kubelets: Path, name: str, age: str | None
) -> None:
    """WalkDir calls back with it alone; without the suffix it is skipped, whatever is in it.

    So is a symlink to it.
    """
    (kubelets / name).write_text(HEAD + "imageMinimumGCAge: 7m\n" if age else "nonsense: [")
    (kubelets / f"link-{name}").symlink_to(name)
    for each in (name, f"link-{name}"):
        found = read_kubelet_configuration(str(kubelets / "config.yaml"), str(kubelets / each))
        assert found.settings.get("imageMinimumGCAge") == age


SMALL = "evictionHard: {pid.available: 5%}\n"


@pytest.mark.regression
@pytest.mark.parametrize(
    ("file", "drop_in", "in_force"),
    [
        ("", "PORT: 5\n", {"port": 0}),
        ("port: 5\n", "Port: 6\n", {"port": 5}),
        ("PORT: 5\n", "port: 6\n", {"port": 6}),
        ("PORT: 5\n", "", {"port": 0}),
        ("", "TLSCertFile: /5\n", {"tls_cert_file": "/5"}),
        ("", "TLSCertFile: /5\ntlscertfile: /7\nTLSCERTFILE: /6\n", {"tls_cert_file": "/7"}),
        ("tlsCertFile: /4\n", "TLSCertFile: /5\n", {"tls_cert_file": "/4"}),
        ("imageGCHighThresholdPercent: 90\n", "imagegchighthresholdpercent: 95\n", {"high": 95}),
        ("", "imagegchighthresholdpercent: 95\n", {"high": 95}),
        ("", "ImageGCHighThresholdPercent: 95\n", {"high": 85}),
        (
            SMALL,
            "EvictionHard: {pid.available: 6%, memory.available: 1Gi}\n",
            {"hard": ("5%", "1Gi")},
        ),
        (
            SMALL,
            "evictionhard: {pid.available: 6%, memory.available: 1Gi}\n",
            {"hard": ("6%", "1Gi")},
        ),
        (SMALL, "EvictionHard: null\n", {"hard": ("5%", None)}),
        (
            "featureGates: {A: yes}\n",
            "FeatureGates: {A: no, B: on}\n",
            {"feature_gates": {"A": True, "B": True}},
        ),
    ],
)
def test_a_key_in_other_capitals_counts_where_it_does_for_the_kubelet(
    kubelets: Path, file: str, drop_in: str, in_force: dict[str, Any]
) -> None:
    """What kubelet 1.36 made of each: never in the file; in a drop-in by encoding/json,
    in the order of the keys.
    """
    (kubelets / "config.yaml").write_text(HEAD + file)
    (kubelets / "conf.d" / "1.conf").write_text(HEAD + drop_in)
    found = read(kubelets)
    hard = found.eviction_hard.get
    seen = {
        "high": found.image_gc_high_threshold_percent,
        "hard": (hard("pid.available"), hard("memory.available")),
    }
    assert {
        name: seen[name] if name in seen else getattr(found, name) for name in in_force
    } == in_force


@pytest.mark.regression
def test_a_file_that_a_kubelet_accepts_keeps_nobody_from_starting(kubelets: Path) -> None:
    """A key twice, an alias, a merge key, truth values and numbers of YAML 1.1, in
    the file and in a drop-in.
    """
    (kubelets / "config.yaml").write_text(
        HEAD + "imageGCHighThresholdPercent: 70\nfromTheFuture: &x {nodefs.available: 5%}\nport: &y"
        " 0x5B\n"
        + "imageGCHighThresholdPercent: 91.0\nmergeDefaultEvictionSettings: yes\nreadOnlyPort: *y\n"
        + "evictionHard: {<<: *x, pid.available: 1%}\n"
    )
    (kubelets / "conf.d" / "1.conf").write_text(
        HEAD
        + "x: &x {imagefs.available: 6%}\nevictionHard: *x\nhealthzPort: 0133\nfeatureGates: {A:"
        " on}\n"
    )
    found = load(
        None,
        {},
        {
            "kubeletConfig": str(kubelets / "config.yaml"),
            "kubeletConfigDir": str(kubelets / "conf.d"),
        },
    ).kubelet
    assert found is not None
    assert (found.port, found.healthz_port) == (91, 91)
    assert (found.image_gc_high_threshold_percent, found.feature_gates) == (91, {"A": True})
    assert found.eviction_hard == {
        **KUBELET_EVICTION_HARD,
        "nodefs.available": "5%",
        "pid.available": "1%",
        "imagefs.available": "6%",
    }


@pytest.mark.parametrize(
    ("documents", "result"),
    [
        ([], {}),
        ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ([{"a": {"x": 1, "y": 1}}, {"a": {"y": 2}}], {"a": {"x": 1, "y": 2}}),
        ([{"a": [1, 2]}, {"a": [3]}], {"a": [3]}),
        ([{"a": {"x": 1}}, {"a": 5}], {"a": 5}),
        ([{"a": 5}, {"a": {"x": 1}}], {"a": {"x": 1}}),
        ([{"a": 5}, {"a": None}], {}),
        ([{"a": None}], {}),
        ([{}, {"a": {"x": None}}], {"a": {}}),
        ([{"a": {"x": {"y": 1}}}, {"a": {"x": {"y": None, "z": 2}}}], {"a": {"x": {"z": 2}}}),
    ],
)
def test_documents_are_merged_by_key(
    documents: list[dict[str, Any]], result: dict[str, Any]
) -> None:
    """Maps deeply, lists and scalars replaced, null removes; the documents are unchanged."""
    before = repr(documents)
    assert merged(documents) == result
    assert repr(documents) == before


@pytest.mark.parametrize("text", ["0s", "0", "0m0s"])
def test_a_transition_period_of_0_counts_as_not_set(kubelets: Path, text: str) -> None:
    """SetDefaults_KubeletConfiguration:

    0 becomes 5 minutes, and 2 minutes for imageMinimumGCAge.
    """
    (kubelets / "config.yaml").write_text(
        HEAD + f"evictionPressureTransitionPeriod: '{text}'\nimageMinimumGCAge: '{text}'\n"
    )
    found = load(None, {}, {"kubeletConfig": str(kubelets / "config.yaml")})
    assert (found.transition_period_seconds, found.image_minimum_gc_age_seconds) == (300.0, 120.0)


def test_other_fields_are_ignored(kubelets: Path) -> None:
    """A kubelet of another release may have fields that are unknown here."""
    (kubelets / "config.yaml").write_text(
        HEAD + "clusterDNS: [10.0.0.10]\nfromTheFuture: {a: [1]}\nmaxPods: 110\n"
    )
    assert read(kubelets) == kubelet_configuration({}, str(kubelets / "config.yaml"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "imageGCHighThresholdPercent: '85'\n",
            "imageGCHighThresholdPercent: must be a whole number, but it",
        ),
        (
            "imageGCHighThresholdPercent: 101\n",
            "imageGCHighThresholdPercent: must be at most 100, but it was 101",
        ),
        (
            "imageGCLowThresholdPercent: -1\n",
            "imageGCLowThresholdPercent: must be at least 0, but it was -1",
        ),
        (
            "imageGCHighThresholdPercent: true\n",
            "imageGCHighThresholdPercent: must be a whole number",
        ),
        (
            "evictionHard: {nodefs.available: 10}\n",
            "evictionHard.nodefs.available: must be a text, in quotes",
        ),
        ("evictionHard: [a]\n", "evictionHard: must be a mapping of names to values"),
        (
            "evictionPressureTransitionPeriod: 30\n",
            "evictionPressureTransitionPeriod: must be a text, in quotes",
        ),
        (
            "mergeDefaultEvictionSettings: 'true'\n",
            "mergeDefaultEvictionSettings: must be true or false",
        ),
        ("containerRuntimeEndpoint: 5\n", "containerRuntimeEndpoint: must be a text"),
        (
            "evictionHard: {nodefs.available: '0'}\n",
            "evictionHard: nodefs.available: must be above 0",
        ),
        (
            "evictionSoft: {nodefs.available: 5%}\n",
            "evictionSoft: nodefs.available: needs a grace period",
        ),
        (
            "evictionHard: {nodefs.inodesfree: 5%}\n",
            "evictionHard: unknown signal 'nodefs.inodesfree'",
        ),
    ],
)
def test_what_the_kubelet_would_refuse_is_refused(kubelets: Path, text: str, problem: str) -> None:
    """Types are strict, and the sentence names the file and the field."""
    (kubelets / "config.yaml").write_text(HEAD + text)
    assert refusal(kubelets).startswith(f"{kubelets / 'config.yaml'}: {problem}")


INHERITED = [
    ("imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 0\n", ""),
    ("imageMaximumGCAge: 121s\n", ""),
    (
        "imageGCHighThresholdPercent: 80\n",
        "imageGCLowThresholdPercent: must be below imageGCHighThresholdPercent (80)",
    ),
    (
        "imageGCLowThresholdPercent: 86\n",
        "imageGCLowThresholdPercent: must be below imageGCHighThresholdPercent (85)",
    ),
    ("imageMinimumGCAge: -1s\n", "imageMinimumGCAge: must not be negative, but it was '-1s'"),
    ("imageMaximumGCAge: -1s\n", "imageMaximumGCAge: must not be negative, but it was '-1s'"),
    (
        "imageMaximumGCAge: 2m\n",
        "imageMaximumGCAge: must be above imageMinimumGCAge (120s), but it was 120s",
    ),
    (
        "evictionPressureTransitionPeriod: 1d\n",
        "evictionPressureTransitionPeriod: '1d' is not a Go duration",
    ),
    ("podLogsDir: logs\n", "podLogsDir: must be an absolute path in ASCII without"),
    ("podLogsDir: /srv/./logs\n", "podLogsDir: must be an absolute path in ASCII without"),
    ("podLogsDir: //srv\n", "podLogsDir: must be an absolute path in ASCII without"),
    ("podLogsDir: /srv/l\xf6gs\n", "podLogsDir: must be an absolute path in ASCII without"),
]


@pytest.mark.parametrize(("text", "problem"), INHERITED)
def test_what_is_inherited_is_validated_as_by_the_kubelet(
    kubelets: Path, text: str, problem: str
) -> None:
    """ValidateKubeletConfiguration: low below high, ages not negative, the maximum above
    the minimum, where logs are.

    The sentence names the kubelet's file; a value of our own takes the place of one that is wrong.
    """
    path = str(kubelets / "config.yaml")
    (kubelets / "config.yaml").write_text(HEAD + text)
    if not problem:
        assert isinstance(load(None, {}, {"kubeletConfig": path}), Configuration)
        return
    with pytest.raises(ConfigurationError) as refused:
        load(None, {}, {"kubeletConfig": path})
    assert str(refused.value).startswith(f"{path}: {problem}")
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    own = {
        name: defaults[name]
        for name in defaults
        if name.startswith("image") or name == "podLogsDir"
    }
    own |= {"kubeletConfig": path, "evictionPressureTransitionPeriod": "1m"}
    assert isinstance(load(None, {}, own), Configuration)


@pytest.mark.regression
@pytest.mark.parametrize(
    "text",
    [
        "enforceNodeAllocatable: [pods, of-a-later-kubelet]\n",
        "enforceNodeAllocatable: [system-reserved]\n",
        "cgroupsPerQOS: false\n",
    ],
)
def test_what_reclaimd_does_not_use_is_left_to_the_kubelet(kubelets: Path, text: str) -> None:
    """A value that only a later kubelet knows must not keep the node without relief."""
    (kubelets / "config.yaml").write_text(HEAD + text)
    assert len(marks(read(kubelets))) == 4


@pytest.mark.parametrize("where", ["config.yaml", "conf.d/1.conf"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", f"apiVersion is missing; it must be '{API_VERSION}'"),
        ("apiVersion: v1\n", f"apiVersion must be '{API_VERSION}', but it was 'v1'"),
        (f"apiVersion: {API_VERSION}\nkind: Pod\n", f"kind must be '{KIND}', but it was 'Pod'"),
        (HEAD + "a: [\n", "not readable as YAML"),
        (HEAD + "kind: x\n", ""),
    ],
)
def test_a_file_of_another_kind_is_refused(
    kubelets: Path, where: str, text: str, problem: str
) -> None:
    """The sentence names the file, also a drop-in."""
    (kubelets / where).write_text(text)
    twice = "not readable as YAML in line 3: the key 'kind' occurs twice"
    problem = problem or (
        f"kind must be '{KIND}', but it was 'x'" if where == "config.yaml" else twice
    )
    assert refusal(kubelets).startswith(f"{kubelets / where}: {problem}")


def test_a_missing_file_and_a_missing_directory_are_refused(kubelets: Path) -> None:
    """Both by name."""
    (kubelets / "conf.d").rmdir()
    assert refusal(kubelets) == f"{kubelets / 'conf.d'}: cannot be read: No such file or directory"
    (kubelets / "config.yaml").unlink()
    assert (
        refusal(kubelets)
        == f"{kubelets / 'config.yaml'}: cannot be read: No such file or directory"
    )


values = st.none() | st.booleans() | st.integers(-10, 200) | st.sampled_from(["1m", "5%", "x", ""])
documents = st.dictionaries(
    st.sampled_from(
        [
            "evictionHard",
            "evictionSoft",
            "imageGCHighThresholdPercent",
            "imageMinimumGCAge",
            "other",
        ]
    ),
    values
    | st.dictionaries(
        st.sampled_from(["nodefs.available", "pid.available", "x"]), values, max_size=2
    ),
)


@given(st.lists(documents, max_size=3))
def test_any_documents_are_read_or_refused(documents: list[dict[str, Any]]) -> None:
    """Nothing but ConfigurationError comes out."""
    with contextlib.suppress(ConfigurationError):
        kubelet_configuration(merged(documents), "f")


@pytest.mark.parametrize(
    ("written", "directory"),
    [
        ("", "/var/log/pods"),
        ("podLogsDir: ''\n", "/var/log/pods"),
        ("podLogsDir: /srv/logs\n", "/srv/logs"),
    ],
)
def test_the_directory_of_pod_logs(kubelets: Path, written: str, directory: str) -> None:
    """Empty is the default, as SetDefaults_KubeletConfiguration fills it in."""
    (kubelets / "config.yaml").write_text(HEAD + written)
    assert (
        load(None, {}, {"kubeletConfig": str(kubelets / "config.yaml")}).pod_logs_dir == directory
    )
