"""What our configuration inherits from the kubelet's, what it replaces, and the
recorded origin of values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eviction import types
from eviction.configuration import file
from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.kubelet import API_VERSION, KIND
from eviction.types import Threshold
from signals.types import Signal
from tests.pure.values import GIB, MIB, value

OURS = f"apiVersion: {types.API_VERSION}\nkind: {file.KIND}\n"
KUBELETS = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
NODEFS, IMAGEFS = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE


class Files:
    """A kubelet's file and ours, with drop-in directories for both."""

    def __init__(self, directory: Path):
        self.kubelet, self.ours = directory / "kubelet.yaml", directory / "reclaimd.yaml"
        self.kubelet_dir, self.our_dir = directory / "kubelet.d", directory / "reclaimd.d"
        self.kubelet_dir.mkdir()
        self.our_dir.mkdir()
        self.write("")

    def write(self, kubelet: str, ours: str = "") -> None:
        """Writes both files."""
        self.kubelet.write_text(KUBELETS + kubelet)
        named = f"kubeletConfig: {self.kubelet}\nkubeletConfigDir: {self.kubelet_dir}\n"
        self.ours.write_text(OURS + named + ours)

    def load(self, **flags: Any) -> Configuration:
        """What is in force."""
        return load(str(self.ours), {}, flags, directory=str(self.our_dir))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Both files, empty but for their heads."""
    return Files(tmp_path)


def only(found: Configuration, signal: Signal) -> Threshold:
    """The one threshold on a signal."""
    (one,) = (threshold for threshold in found.thresholds if threshold.signal is signal)
    return one


@pytest.mark.parametrize(
    ("margin", "space", "inodes"),
    [
        ("5%", "10% + 5%", "7% + 5%"),
        ("2Gi", "10% + 2Gi", "7%"),
        ("{percent: 5%, atMost: 2Gi}", "10% + 5% (at most 2Gi)", "7% + 5%"),
        ("{percent: 8%}", "10% + 8% (at most 20Gi)", "7% + 8%"),
        ("{atMost: 30Gi}", "10% + 5% (at most 30Gi)", "7% + 5%"),
        ("{percent: null}", "10% + 5% (at most 20Gi)", "7% + 5%"),
        ("0%", "10%", "7%"),
        ("'0'", "10%", "7%"),
    ],
)
def test_the_kubelets_thresholds_are_inherited_with_the_margin(
    files: Files, margin: str, space: str, inodes: str
) -> None:
    """A margin of bytes raises the marks of bytes only, and a bound binds those only. What is not
    written of the default stays."""
    files.write(
        "evictionHard: {nodefs.available: 10%, nodefs.inodesFree: 7%}\n", f"margin: {margin}\n"
    )
    found = files.load()
    assert {str(one.signal): one.text() for one in found.thresholds} == {
        "nodefs.available": space,
        "nodefs.inodesFree": inodes,
    }
    _, _, added = space.partition(" + ")
    with_margin = f"{files.kubelet} plus margin {added}"
    assert only(found, NODEFS).origin == (with_margin if added else str(files.kubelet))


def test_the_margin_and_the_value_are_computed_on_one_capacity_each_truncated(files: Files) -> None:
    """70% + 5% of 100 are 69 + 5, and not 75."""
    files.write("evictionHard: {nodefs.available: 70%}\n", "margin: 5%\n")
    assert only(files.load(), NODEFS).mark(100) == 69 + 5


@pytest.mark.parametrize(
    ("capacity", "margin"), [(40 * GIB, 2 * GIB), (400 * GIB, 20 * GIB), (2000 * GIB, 20 * GIB)]
)
def test_the_default_margin_is_5_percent_up_to_20_gibibytes(
    files: Files, capacity: int, margin: int
) -> None:
    """A disk of 2 TB does not keep 100 GB empty; its inodes are not bound."""
    files.write("evictionHard: {nodefs.available: 1Gi, nodefs.inodesFree: 1Gi}\n")
    found = files.load()
    assert abs(only(found, NODEFS).mark(capacity) - GIB - margin) < MIB
    inodes = only(found, Signal.NODEFS_INODES_FREE).mark(capacity)
    assert abs(inodes - GIB - capacity // 20) < MIB


@pytest.mark.regression
def test_a_margin_with_which_an_inherited_mark_reaches_the_capacity_is_refused(
    files: Files,
) -> None:
    """The margin that is written is at fault, not the kubelet's value: the default one
    is accepted, and warned of.
    """
    files.write("evictionHard: {nodefs.available: 60%}\n", "margin: 40%\n")
    sentence = (
        "margin: must be less, as with the kubelet's nodefs.available of 60% it reaches 100%, but"
        " it was 40%"
    )
    with pytest.raises(ConfigurationError, match=f"^{files.ours}: {sentence}$"):
        files.load()
    files.write("evictionHard: {nodefs.available: 60%}\n", "margin: 39%\n")
    assert only(files.load(), NODEFS).text() == "60% + 39%"
    files.write("evictionHard: {nodefs.available: 96%}\n")
    assert only(files.load(), NODEFS).text() == "96% + 5% (at most 20Gi)"


def test_an_own_value_replaces_the_inherited_one_of_its_signal_without_a_margin(
    files: Files,
) -> None:
    """Hard and soft each by itself; the other signals stay inherited."""
    files.write(
        "evictionHard: {nodefs.available: 10%, imagefs.available: 15%}\n",
        "evictionHard: {nodefs.available: 3Gi}\n",
    )
    found = files.load()
    assert (only(found, NODEFS).text(), only(found, NODEFS).origin) == ("3Gi", str(files.ours))
    assert only(found, IMAGEFS).text() == "15% + 5% (at most 20Gi)"


@pytest.mark.parametrize("off", ["0%", "100%"])
def test_an_own_0_percent_switches_an_inherited_threshold_off(files: Files, off: str) -> None:
    """The other signals stay."""
    files.write(
        "evictionHard: {nodefs.available: 10%, imagefs.available: 15%}\n",
        f"evictionHard: {{{NODEFS}: {off}}}",
    )
    assert [one.signal for one in files.load().thresholds] == [IMAGEFS]


def test_what_the_kubelet_switched_off_stays_off(files: Files) -> None:
    """Its written map is all that counts; a margin does not revive a signal."""
    files.write("evictionHard: {nodefs.available: 0%}\n")
    assert files.load().thresholds == ()


def test_soft_thresholds_are_inherited_with_their_grace_and_the_margin(files: Files) -> None:
    """And an own grace replaces the inherited one."""
    kubelet = (
        "evictionHard: {}\nevictionSoft: {nodefs.available: 20%}\nevictionSoftGracePeriod:"
        " {nodefs.available: 2m}"
    )
    files.write(kubelet)
    soft = only(files.load(), NODEFS)
    assert (soft.text(), soft.grace_seconds) == ("20% + 5% (at most 20Gi)", 120.0)
    files.write(kubelet, "evictionSoftGracePeriod: {nodefs.available: 30s}\n")
    soft = only(files.load(), NODEFS)
    assert (soft.text(), soft.grace_seconds) == ("20% + 5% (at most 20Gi)", 30.0)


def test_an_own_soft_threshold_may_use_the_kubelets_grace(files: Files) -> None:
    """The maps are merged before they are checked."""
    files.write(
        "evictionSoft: {nodefs.available: 20%}\nevictionSoftGracePeriod: {nodefs.available: 2m}\n"
    )
    soft = [one for one in files.load(evictionSoft={NODEFS: "9Gi"}).thresholds if not one.hard]
    assert [(one.text(), one.grace_seconds, one.origin) for one in soft] == [
        ("9Gi", 120.0, "flags")
    ]


def test_a_minimum_reclaim_is_ours_else_the_kubelets_else_2_percent(files: Files) -> None:
    """In this order, by signal."""
    files.write("")
    assert only(files.load(), NODEFS).min_reclaim == value("2%")
    files.write("evictionMinimumReclaim: {nodefs.available: 500Mi, nodefs.inodesFree: 1k}\n")
    assert only(files.load(), NODEFS).min_reclaim == value("500Mi")
    assert only(files.load(), IMAGEFS).min_reclaim == value("2%")
    assert only(files.load(), Signal.NODEFS_INODES_FREE).min_reclaim == value("1k")
    assert only(files.load(evictionMinimumReclaim={NODEFS: "0"}), NODEFS).min_reclaim == value("0")


def test_the_other_settings_of_the_kubelet_are_inherited_and_replaced(files: Files) -> None:
    """Transition period, image ages and percentages, endpoints; an own value
    wins, each by itself.
    """
    files.write(
        "evictionPressureTransitionPeriod: 1m\nimageMinimumGCAge: 90s\nimageGCHighThresholdPercent:"
        " 75\nimageGCLowThresholdPercent: 70\ncontainerRuntimeEndpoint:"
        " unix:///a\nimageServiceEndpoint: unix:///b\nimageMaximumGCAge: 48h\npodLogsDir:"
        " /srv/logs\n"
    )
    found = files.load()
    assert (found.transition_period_seconds, found.image_minimum_gc_age_seconds) == (60.0, 90.0)
    assert (found.image_gc_high_threshold_percent, found.image_gc_low_threshold_percent) == (75, 70)
    assert (found.runtime_endpoint, found.image_endpoint) == ("unix:///a", "unix:///b")
    assert (found.image_maximum_gc_age_seconds, found.pod_logs_dir) == (172_800.0, "/srv/logs")
    own = files.load(imageMinimumGCAge="5s", containerRuntimeEndpoint="unix:///own")
    assert (own.image_minimum_gc_age_seconds, own.transition_period_seconds) == (5.0, 60.0)
    assert (own.runtime_endpoint, own.image_endpoint) == ("unix:///own", "unix:///b")


@pytest.mark.regression
@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", ("127.0.0.1", 10248)),
        ("healthzPort: 10348\n", ("127.0.0.1", 10348)),
        ("healthzPort: 0\n", None),
        ("healthzBindAddress: 0.0.0.0\n", ("127.0.0.1", 10248)),
        ("healthzBindAddress: '::'\nhealthzPort: 1\n", ("::1", 1)),
        ("healthzBindAddress: 192.0.2.1\n", ("192.0.2.1", 10248)),
    ],
)
def test_the_kubelet_is_asked_for_its_health_where_it_serves_it(
    files: Files, text: str, endpoint: tuple[str, int] | None
) -> None:
    """Else a healthy kubelet with another port would hold everything off for 5 minutes.

    An own value wins.
    """
    files.write(text)
    assert files.load().kubelet_healthz == endpoint
    assert files.load(kubeletHealthzEndpoint="127.0.0.1:9").kubelet_healthz == ("127.0.0.1", 9)


@pytest.mark.parametrize(
    "text", ["healthzPort: 65536\n", "healthzPort: -1\n", "healthzBindAddress: here\n"]
)
def test_where_no_health_can_be_served_is_refused_by_the_kubelets_file(
    files: Files, text: str
) -> None:
    """As by the kubelet."""
    files.write(text)
    with pytest.raises(ConfigurationError, match=f"^{files.kubelet}: kubeletHealthzEndpoint: "):
        files.load()


def test_a_negative_transition_period_of_the_kubelets_is_refused_unless_our_own_replaces_it(
    files: Files,
) -> None:
    """The kubelet does not validate it and hides every condition with it; here it is an error."""
    files.write("evictionPressureTransitionPeriod: -30s\n")
    with pytest.raises(ConfigurationError) as refused:
        files.load()
    problem = "evictionPressureTransitionPeriod: must not be negative, but it was '-30s'"
    assert str(refused.value) == f"{files.kubelet}: {problem}"
    assert files.load(evictionPressureTransitionPeriod="1m").transition_period_seconds == 60.0
    with pytest.raises(ConfigurationError, match=f"^flags: {problem}$"):
        files.load(evictionPressureTransitionPeriod="-30s")


@pytest.mark.parametrize("text", ["0s", "0", "-0s", "0h0m"])
def test_a_transition_period_of_0_counts_as_not_set_in_our_own_sources_too(
    files: Files, text: str
) -> None:
    """SetDefaults_KubeletConfiguration: 0 would hide every condition.

    The kubelet's own counts then, else 5 minutes.
    """
    files.write("", f"evictionPressureTransitionPeriod: '{text}'\n")
    found = files.load()
    assert (
        found.transition_period_seconds,
        found.effective["evictionPressureTransitionPeriod"],
    ) == (300.0, "5m")
    assert found.origins["evictionPressureTransitionPeriod"] == "default"
    files.write("evictionPressureTransitionPeriod: 1m\n", "evictionPressureTransitionPeriod: 2m\n")
    assert files.load().transition_period_seconds == 120.0
    found = files.load(evictionPressureTransitionPeriod=text)
    assert found.transition_period_seconds == 60.0
    assert found.origins["evictionPressureTransitionPeriod"] == str(files.kubelet)


@pytest.mark.parametrize("text", ["0", "[]", "''", "x"])
def test_what_is_no_transition_period_is_not_taken_for_0(files: Files, text: str) -> None:
    """A number without quotes, a list and an empty text are refused as anywhere."""
    files.write("", f"evictionPressureTransitionPeriod: {text}\n")
    with pytest.raises(
        ConfigurationError, match=r"/reclaimd\.yaml: evictionPressureTransitionPeriod: "
    ):
        files.load()


@pytest.mark.parametrize(
    ("text", "seconds"), [("400h", 1_440_000.0), ("1h0m0.5s", 3600.5), ("1us", 1e-6), ("1ns", 1e-9)]
)
def test_very_long_and_very_short_periods_are_inherited_exactly(
    files: Files, text: str, seconds: float
) -> None:
    """Neither is written down with an exponent on the way, which no duration has."""
    files.write(f"evictionPressureTransitionPeriod: {text}\nimageMinimumGCAge: {text}\n")
    found = files.load()
    assert (found.transition_period_seconds, found.image_minimum_gc_age_seconds) == (
        seconds,
        seconds,
    )


def test_our_drop_ins_override_our_file(files: Files) -> None:
    """In the order of their names, maps by key, null removes; flags come last;
    the origin is the drop-in.
    """
    files.write(
        "evictionHard: {nodefs.available: 10%}\n",
        "evictionHard: {nodefs.available: 3Gi}\nextent: all\n",
    )
    first, second = files.our_dir / "1.conf", files.our_dir / "2.conf"
    first.write_text(
        OURS + "evictionHard: {nodefs.available: 4Gi, imagefs.available: 5Gi}\nextent: null\n"
    )
    second.write_text(OURS + "evictionHard: {imagefs.available: 6Gi}\n")
    (files.our_dir / "3.yaml").write_text("nonsense")
    found = files.load()
    assert {str(one.signal): one.text() for one in found.thresholds} == {
        "nodefs.available": "4Gi",
        "imagefs.available": "6Gi",
    }
    assert (only(found, NODEFS).origin, only(found, IMAGEFS).origin) == (str(first), str(second))
    assert (found.extent, found.origins["extent"]) == ("enough", "default")
    second.write_text(
        OURS + "evictionHard: {imagefs.available: null, nodefs.available: null}\nmargin: null\n"
    )
    found = files.load()
    assert [(one.text(), one.origin) for one in found.thresholds] == [
        ("10% + 5% (at most 20Gi)", f"{files.kubelet} plus margin 5% (at most 20Gi)")
    ]
    second.write_text(OURS + "evictionHard: {imagefs.available: 6Gi}\n")
    assert only(files.load(evictionHard={IMAGEFS: "7Gi"}), IMAGEFS).text() == "7Gi"
    second.write_text("kind: x\n")
    with pytest.raises(ConfigurationError, match=r"2\.conf: apiVersion is missing"):
        files.load()


def test_a_drop_in_directory_that_is_missing_is_refused(files: Files) -> None:
    """By name, ours and the kubelet's."""
    with pytest.raises(
        ConfigurationError, match=r"/none: cannot be read: No such file or directory$"
    ):
        load(str(files.ours), {}, {}, directory=str(files.our_dir / "none"))
    files.kubelet_dir.rmdir()
    with pytest.raises(
        ConfigurationError, match=r"/kubelet\.d: cannot be read: No such file or directory$"
    ):
        files.load()


def test_the_kubelets_drop_ins_count(files: Files) -> None:
    """What they change is what is inherited."""
    (files.kubelet_dir / "1.conf").write_text(KUBELETS + "evictionHard: {nodefs.available: 9Gi}\n")
    assert only(files.load(), NODEFS).text() == "9Gi + 5% (at most 20Gi)"


def test_every_value_has_an_origin(files: Files) -> None:
    """Each field, and each entry of the four maps, says where it is from."""
    files.write(
        "evictionHard: {nodefs.available: 10%}\nimageMinimumGCAge: 90s\n"
        "evictionMinimumReclaim: {imagefs.available: 3%}\n",
        "margin: 3%\nevictionHard: {imagefs.available: 3Gi}\n",
    )
    found = load(str(files.ours), {"CONTAINER_RUNTIME_ENDPOINT": "unix:///e"}, {"extent": "all"})
    maps = {name: entries for name, entries in found.effective.items() if isinstance(entries, dict)}
    fields = {name for name in found.effective if name not in maps}
    entries = {f"{name}.{key}" for name, written in maps.items() for key in written}
    assert set(found.origins) == fields | entries
    expected = {
        "margin": str(files.ours),
        "extent": "flags",
        "containerRuntimeEndpoint": "environment",
        "imageMinimumGCAge": str(files.kubelet),
        "pollFloor": "default",
        "evictionHard.nodefs.available": str(files.kubelet),
        "evictionHard.imagefs.available": str(files.ours),
        "evictionMinimumReclaim.imagefs.available": str(files.kubelet),
        "evictionMinimumReclaim.nodefs.available": "default",
    }
    assert {name: found.origins[name] for name in expected} == expected
    assert found.effective["evictionHard"] == {
        "nodefs.available": "10%",
        "imagefs.available": "3Gi",
    }
    assert (found.effective["imageMinimumGCAge"], found.effective["extent"]) == ("90s", "all")


def test_memory_and_pid_thresholds_are_left_to_the_kubelet(files: Files) -> None:
    """Shown; no function here acts on them."""
    files.write(
        "evictionHard: {memory.available: 200Mi, pid.available: 5%, nodefs.available: 10%}\n"
    )
    found = files.load()
    assert found.left_to_kubelet == (
        ("memory.available", "200Mi"),
        ("pid.available", "5%"),
    )
    assert [one.signal for one in found.thresholds] == [NODEFS]


@pytest.mark.parametrize("named", ["", "kubeletConfig: ''\n", "kubeletConfig: null\n"])
def test_without_a_kubelet_configuration_its_defaults_are_taken(files: Files, named: str) -> None:
    """Empty: none is read. Not named, or null: the usual one, where it exists."""
    files.ours.write_text(OURS + named)
    found = files.load()
    assert found.kubelet is None
    assert only(found, NODEFS).origin == "the kubelet's default plus margin 5% (at most 20Gi)"
    assert found.origins["evictionHard.nodefs.available"] == "the kubelet's default"


def test_a_kubelet_configuration_that_is_named_must_be_there(files: Files) -> None:
    """The error is one sentence with its path, also for an error in its content."""
    files.kubelet.unlink()
    with pytest.raises(
        ConfigurationError, match=r"/kubelet\.yaml: cannot be read: No such file or directory$"
    ):
        files.load()
    files.kubelet.write_text(KUBELETS + "evictionHard: {nodefs.available: '0'}\n")
    with pytest.raises(
        ConfigurationError, match=r"/kubelet\.yaml: evictionHard: nodefs\.available: must be above"
    ):
        files.load()


def test_our_problems_with_inherited_values_name_who_wrote_them(files: Files) -> None:
    """An own low percentage of 90 above the kubelet's high one of 85."""
    files.write("imageGCHighThresholdPercent: 85\n", "imageGCLowThresholdPercent: 90\n")
    with pytest.raises(
        ConfigurationError, match=r"/reclaimd\.yaml: imageGCLowThresholdPercent: must be below"
    ):
        files.load()
