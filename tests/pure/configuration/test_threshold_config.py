"""The four maps become thresholds, or are refused, by the rules of the kubelet.

Source: `pkg/kubelet/eviction/helpers.go` (ParseThresholdConfig, parseThresholdStatement,
parsePercentage, parseGracePeriods, parseMinimumReclaims).
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.kubelet import settings_in
from eviction.configuration.threshold_config import (
    KUBELET_EVICTION_HARD,
    LEFT_TO_KUBELET,
    FieldError,
    ParsedThresholds,
    parse_threshold_config,
)
from eviction.types import Threshold
from reclaim.kubelet.versions import NEWEST
from signals.types import KUBELET_SIGNALS, Signal
from tests.pure.values import threshold, value

NODEFS, IMAGEFS = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE
Map = dict[str, str]


def parsed(
    hard: Map | None = None,
    soft: Map | None = None,
    grace: Map | None = None,
    reclaim: Map | None = None,
) -> ParsedThresholds:
    """The thresholds of these maps."""
    return parse_threshold_config(
        hard or {}, soft or {}, grace or {}, minimum_reclaims=reclaim or {}, origin="test"
    )


def thresholds(
    hard: Map | None = None,
    soft: Map | None = None,
    grace: Map | None = None,
    reclaim: Map | None = None,
) -> tuple[Threshold, ...]:
    """The same, without the part that is left to the kubelet."""
    return parsed(hard, soft, grace, reclaim).thresholds


def refusal(
    hard: Map | None = None,
    soft: Map | None = None,
    grace: Map | None = None,
    reclaim: Map | None = None,
) -> str:
    """The sentence with which these maps are refused."""
    with pytest.raises(FieldError) as refused:
        parsed(hard, soft, grace, reclaim)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"{refused.value.field}: ")
    return str(refused.value)


def same(found: tuple[Threshold, ...], *expected: Threshold) -> bool:
    """Whether these are the thresholds, in this order, minimum reclaim and all;
    origins are not compared.
    """
    return [(t.signal, t.value, t.grace_seconds, t.min_reclaim) for t in found] == [
        (t.signal, t.value, t.grace_seconds, t.min_reclaim) for t in expected
    ]


def test_parse_threshold_config_hard_comes_before_soft_in_the_order_of_the_signals() -> None:
    """Whatever the order of writing; the kubelet leaves it open inside hard and soft."""
    names = [str(signal) for signal in KUBELET_SIGNALS]
    hard, soft = dict.fromkeys(reversed(names), "5%"), dict.fromkeys(reversed(names), "10%")
    found = thresholds(hard, soft, dict.fromkeys(names, "1m"))
    assert [t.signal for t in found] == [*KUBELET_SIGNALS, *KUBELET_SIGNALS]
    assert [t.grace_seconds for t in found] == [0.0] * 6 + [60.0] * 6


def test_parse_threshold_config_of_nothing_is_nothing() -> None:
    """Empty maps are no thresholds."""
    assert parsed() == ParsedThresholds(())


@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize(
    "name", ["nodefs.inodesfree", "NODEFS.available", "nodefs", "", "nodefs.available "]
)
def test_unknown_signals_are_refused_in_every_field(field: int, name: str) -> None:
    """parseThresholdStatement, parseGracePeriods, parseMinimumReclaims: names
    are compared byte for byte.
    """
    maps: list[Map] = [{}, {}, {}, {}]
    maps[field] = {name: "1s" if field == 2 else "1Gi"}
    assert f"unknown signal {name!r}; allowed are nodefs.available, " in refusal(*maps)


@pytest.mark.parametrize("name", [*KUBELET_SIGNALS, *LEFT_TO_KUBELET])
def test_every_signal_is_accepted_in_every_field(name: str) -> None:
    """containerfs in any layout, memory and pid too: the map of signals to resources
    is the list of valid names.
    """
    found = thresholds({name: "1Gi"}, {name: "2Gi"}, {name: "1m"}, {name: "1Gi"})
    assert len(found) == (0 if name in LEFT_TO_KUBELET else 2)


@pytest.mark.parametrize("off", ["0%", "100%"])
@pytest.mark.parametrize("field", [0, 1])
def test_parse_threshold_statement_drops_0_and_100_percent_silently(off: str, field: int) -> None:
    """As texts, in hard and in soft; a soft threshold that is dropped needs no grace period."""
    maps: list[Map] = [{}, {}]
    maps[field] = {NODEFS: off}
    assert thresholds(*maps) == ()


@pytest.mark.parametrize(
    "text",
    [
        "0.0%",
        "00%",
        "0.%",
        "+0%",
        "-0%",
        "-1e-60%",
        "0%%",
        "100.0%",
        "0100%",
        "1e2%",
        "100%%",
        "100.000001%",
    ],
)
def test_parse_threshold_statement_keeps_other_spellings_of_0_and_100_percent(text: str) -> None:
    """They are recognised as texts, not as numbers; in single precision
    100.000001 is 100, and -1e-60 is 0.
    """
    assert same(thresholds({NODEFS: text}), threshold(NODEFS, text))


@pytest.mark.parametrize("text", ["-1%", "-0.0001%", "100.001%", "101%", "1e3%"])
@pytest.mark.parametrize("field", [0, 1])
def test_parse_threshold_statement_refuses_percentages_outside_0_and_100(
    text: str, field: int
) -> None:
    """Below 0 and above 100, in hard and in soft."""
    maps: list[Map] = [{}, {}]
    maps[field] = {NODEFS: text}
    name = ("evictionHard", "evictionSoft")[field]
    assert (
        refusal(*maps)
        == f"{name}: nodefs.available: must be between 0% and 100%, but it was {text!r}"
    )


@pytest.mark.parametrize("text", ["0", "0Mi", "-1", "-1Gi", "0e5", "-0"])
def test_parse_threshold_statement_refuses_quantities_that_are_not_positive(text: str) -> None:
    """A quantity of 0 is an error, not a way to switch a signal off."""
    assert refusal({NODEFS: text}).startswith(
        "evictionHard: nodefs.available: must be above 0 (0% switches"
    )
    assert refusal({}, {NODEFS: text}).startswith(
        "evictionSoft: nodefs.available: must be above 0 (0% switches"
    )


@pytest.mark.parametrize(
    "text", ["1Ki", "1.5Gi", ".5G", "5.", "100m", "1n", "2E3", "1E", "100k", "1e-3"]
)
@pytest.mark.parametrize("signal", [NODEFS, Signal.NODEFS_INODES_FREE])
def test_parse_threshold_statement_takes_every_positive_quantity(text: str, signal: Signal) -> None:
    """A fraction is a positive amount; the suffixes of bytes serve for inodes too."""
    assert same(thresholds({signal: text}), threshold(signal, text))


@pytest.mark.parametrize(
    "text", ["", "abc", "1K", "1 Gi", "1GB", "foo%", "%", "12%345", "NaN%", "inf%", "10 %"]
)
@pytest.mark.parametrize("field", [0, 1, 3])
def test_parse_percentage_and_parse_quantity_refuse_unreadable_text(text: str, field: int) -> None:
    """One sentence with the text and both allowed forms; NaN and infinities too,
    which Go's reader would take.
    """
    maps: list[Map] = [{}, {}, {}, {}]
    maps[field] = {NODEFS: text}
    assert f"nodefs.available: {text!r} is neither a Kubernetes quantity" in refusal(*maps)


def test_a_megabyte_of_text_is_shown_only_at_its_beginning() -> None:
    """The sentence stays a sentence, for values and for names."""
    assert len(refusal({NODEFS: "9" * 2**20})) < 250
    assert len(refusal({"x" * 2**20: "1"})) < 500


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("0%", False),
        ("0.0%", False),
        ("00%", False),
        ("-1%", False),
        ("1e-60%", False),  # 0 in single precision
        ("100%", True),
        ("100.0%", True),
        ("500%", True),
        ("0.001%", True),
        ("0", True),
        ("0Mi", True),
        ("1Gi", True),
        ("-1", False),
        ("-1Gi", False),
    ],
)
def test_parse_minimum_reclaims(text: str, accepted: bool) -> None:
    """0 as a quantity and any share above 0 are accepted, 100 % and more too; negative
    ones and 0 % are refused.
    """
    if accepted:
        assert same(
            thresholds({NODEFS: "1Gi"}, reclaim={NODEFS: text}),
            threshold(NODEFS, "1Gi", min_reclaim=text),
        )
    else:
        sentence = refusal({NODEFS: "1Gi"}, reclaim={NODEFS: text})
        assert sentence.startswith("evictionMinimumReclaim: nodefs.available: must ")
        assert sentence.endswith(f", but it was {text!r}")


def test_parse_threshold_config_gives_a_minimum_reclaim_to_hard_and_soft() -> None:
    """It is keyed by signal, and other signals have none."""
    found = thresholds(
        {NODEFS: "1Gi", IMAGEFS: "1Gi"},
        {NODEFS: "2Gi"},
        {NODEFS: "1m"},
        {NODEFS: "10%", "pid.available": "5"},
    )
    assert same(
        found,
        threshold(NODEFS, "1Gi", min_reclaim="10%"),
        threshold(IMAGEFS, "1Gi"),
        threshold(NODEFS, "2Gi", grace_seconds=60.0, min_reclaim="10%"),
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("1m30s", 90.0), ("1.5h", 5400.0), ("250ms", 0.25), ("0", 0.0), ("0s", 0.0)],
)
def test_parse_grace_periods_reads_go_durations(text: str, seconds: float) -> None:
    """A grace of 0 is accepted and makes the soft threshold a hard one."""
    (found,) = thresholds(soft={NODEFS: "1Gi"}, grace={NODEFS: text})
    assert (found.grace_seconds, found.hard) == (seconds, seconds == 0)


@pytest.mark.parametrize("text", ["", "5", "1d", "s", "1 s", "-1", "1e3s"])
def test_parse_grace_periods_refuses_unreadable_durations(text: str) -> None:
    """A bare number other than 0 and days are refused."""
    assert refusal(grace={NODEFS: text}).startswith(
        f"evictionSoftGracePeriod: nodefs.available: {text!r} is not a Go"
    )


def test_parse_grace_periods_refuses_negative_durations() -> None:
    """One nanosecond below 0 is too much."""
    sentence = "evictionSoftGracePeriod: nodefs.available: must not be negative, but it was '-1ns'"
    assert refusal(grace={NODEFS: "-1ns"}) == sentence


def test_entries_of_a_signal_without_a_threshold_are_checked_and_have_no_effect() -> None:
    """A grace period or minimum reclaim alone is no threshold."""
    assert parsed(grace={NODEFS: "1m"}, reclaim={NODEFS: "1Gi"}) == ParsedThresholds(())


def test_parse_threshold_config_refuses_soft_without_grace() -> None:
    """The whole configuration; memory and pid thresholds too."""
    for name in (NODEFS, "memory.available", "pid.available"):
        found = refusal({IMAGEFS: "1Gi"}, {name: "1Gi"}, {IMAGEFS: "1m"})
        assert found.startswith(
            f"evictionSoft: {name}: needs a grace period in evictionSoftGracePeriod, a Go duration"
        )


def test_parse_threshold_config_does_not_compare_soft_with_hard() -> None:
    """A soft mark below the hard one is accepted."""
    assert len(thresholds({NODEFS: "10%"}, {NODEFS: "5%"}, {NODEFS: "1m"})) == 2


@pytest.mark.parametrize("left", list(itertools.combinations(range(4), 2)))
def test_parse_threshold_config_checks_hard_soft_grace_reclaim_in_this_order(
    left: tuple[int, int],
) -> None:
    """Of two problems the first one is raised."""
    fields = ("evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim")
    maps: list[Map] = [{}, {}, {}, {}]
    for field in left:
        maps[field] = {NODEFS: "bad"}
    assert refusal(*maps).startswith(f"{fields[left[0]]}: ")


def test_parse_threshold_config_checks_soft_without_grace_last() -> None:
    """An invalid minimum reclaim is raised before it."""
    assert refusal(soft={NODEFS: "1Gi"}, reclaim={NODEFS: "bad"}).startswith(
        "evictionMinimumReclaim: "
    )


def test_memory_and_pid_thresholds_are_checked_and_left_to_the_kubelet() -> None:
    """They come back as written, the soft ones marked, without those that are
    switched off; none is copied.
    """
    found = parsed(
        {
            "memory.available": "100Mi",
            "pid.available": "10%",
            "allocatableMemory.available": "0%",
            NODEFS: "10%",
        },
        {"memory.available": "300Mi", "pid.available": "100%"},
        {"memory.available": "1m"},
    )
    assert same(found.thresholds, threshold(NODEFS, "10%"))
    assert found.left_to_kubelet == (
        ("memory.available", "100Mi"),
        ("pid.available", "10%"),
        ("memory.available", "300Mi (soft)"),
    )
    assert refusal({"memory.available": "0"}).startswith(
        "evictionHard: memory.available: must be above 0"
    )


def test_a_soft_memory_threshold_with_a_grace_of_0_is_hard_everywhere() -> None:
    """Hard means a grace of 0: it is not reported as soft, and it is copied for
    what pods may use.
    """
    found = parsed({}, {"memory.available": "300Mi"}, {"memory.available": "0s"})
    assert found.left_to_kubelet == (("memory.available", "300Mi"),)
    found = parsed(
        {"memory.available": "100Mi"}, {"memory.available": "300Mi"}, {"memory.available": "0"}
    )
    assert found.left_to_kubelet == (("memory.available", "100Mi"), ("memory.available", "300Mi"))
    soft = parsed({}, {"memory.available": "300Mi"}, {"memory.available": "1ns"})
    assert soft.left_to_kubelet == (("memory.available", "300Mi (soft)"),)


def test_an_origin_is_what_was_given_or_the_name_of_the_map() -> None:
    """For people: where the value comes from."""
    maps: tuple[Map, ...] = ({NODEFS: "1Gi"}, {NODEFS: "2Gi"}, {NODEFS: "1m"}, {})
    assert [t.origin for t in parse_threshold_config(*maps, origin="a file").thresholds] == [
        "a file",
        "a file",
    ]
    assert [t.origin for t in parse_threshold_config(*maps).thresholds] == [
        "evictionHard",
        "evictionSoft",
    ]


def test_the_defaults_are_those_of_linux() -> None:
    """`pkg/kubelet/eviction/defaults_linux.go`."""
    assert settings_in({}, [], {}, version=NEWEST)["evictionHard"] == {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }


@pytest.mark.parametrize(
    ("written", "merge_defaults", "expected"),
    [
        (None, False, dict(KUBELET_EVICTION_HARD)),
        (None, True, dict(KUBELET_EVICTION_HARD)),
        ({}, False, {}),
        ({}, True, dict(KUBELET_EVICTION_HARD)),
        ({"nodefs.available": "1Gi"}, False, {"nodefs.available": "1Gi"}),
        ({"nodefs.available": "1Gi"}, True, {**KUBELET_EVICTION_HARD, "nodefs.available": "1Gi"}),
        ({"nodefs.available": "0%"}, True, {**KUBELET_EVICTION_HARD, "nodefs.available": "0%"}),
        ({"pid.available": "5%"}, True, {**KUBELET_EVICTION_HARD, "pid.available": "5%"}),
    ],
)
def test_merge_default_eviction_settings(
    written: Map | None, merge_defaults: bool, expected: Map
) -> None:
    """`cmd/kubelet/app/server.go`: not set is all defaults, set is just that, merged
    adds what is not written.
    """
    document = {"evictionHard": written, "mergeDefaultEvictionSettings": merge_defaults}
    assert settings_in(document, [], {}, version=NEWEST) == {**document, "evictionHard": expected}
    assert settings_in({}, [], {}, version=NEWEST)["evictionHard"] is not KUBELET_EVICTION_HARD


texts = st.sampled_from(["0%", "100%", "5%", "1Gi", "0", "-1", "x", "200%", "0.0%", "1m"])
maps = st.dictionaries(
    st.sampled_from([*KUBELET_SIGNALS, *LEFT_TO_KUBELET, "unknown"]), texts, max_size=3
)


@given(maps, maps, maps, maps)
def test_maps_are_read_or_refused_and_what_is_read_is_sound(
    hard: Map, soft: Map, grace: Map, reclaim: Map
) -> None:
    """Nothing negative, nothing without its grace, nothing twice, nothing that was
    switched off. A soft threshold whose grace is 0 acts at once, as a hard one does, also
    beside that of its signal."""
    try:
        found = parse_threshold_config(hard, soft, grace, minimum_reclaims=reclaim).thresholds
    except FieldError:
        return
    assert len({(t.signal, t.origin) for t in found}) == len(found)
    for one in found:
        text = {"evictionHard": hard, "evictionSoft": soft}[one.origin][one.signal]
        assert one.hard or one.origin == "evictionSoft"
        assert text not in (None, "0%", "100%")
        assert one.value == value(text)
        assert one.value.amount(1000) >= 0
        assert one.min_reclaim is None or one.min_reclaim.amount(1000) >= 0
