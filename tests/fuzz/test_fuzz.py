"""Arbitrary texts in a file or a flag are parsed to a valid value or refused
in one sentence, quickly.

Collected only with FUZZ_INPUTS in the environment; `make fuzz` runs it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import Configuration, load
from eviction.configuration.file import KIND
from eviction.configuration.strict_yaml import (
    LARGEST_BYTES,
    ConfigurationError,
    parse_document,
    parse_kubelets_drop_in,
    parse_kubelets_file,
)
from eviction.configuration.threshold_config import read_minimum_reclaim, read_value
from eviction.records.state_file import Moment, records_from_json, records_json
from eviction.types import API_VERSION
from reclaim.images.keep_list import parse_keep_list
from reclaim.types import Image, ImageRecord, PolicyError
from signals.quantity import (
    QuantityError,
    format_quantity,
    parse_duration,
    parse_percentage,
    parse_quantity,
    whole,
)

pytestmark = pytest.mark.timeout(3600)

LARGEST = 2**63 - 1
MONSTER_SECONDS = (
    # ten times what the slowest takes on a busy machine; a quadratic or
    # exponential reader takes minutes
    30.0
)
digits = st.text("0123456789", max_size=25)
numbers = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+", "--", " "]),
    digits,
    st.sampled_from(["", ".", ".."]),
    digits,
)
exponents = st.builds(
    "{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "-", "+"]), digits
)
SUFFIXES = "n u m k K M G T P E Ki Mi Gi Ti Pi Ei % %% i ns us µs ms s h d"
suffixes = st.sampled_from(SUFFIXES.split(" ")) | exponents
near = st.builds("{}{}{}".format, numbers, st.just("") | suffixes, st.just("") | numbers)
WORDS = """NaN nan Inf inf -inf Infinity +Inf% NaN% nan% -inf% 0x10 1_0 null true
\u0661 \uff11 \u00b2 \u221e 1e999999999%"""
words = st.sampled_from(WORDS.split())
texts = near | words | st.text(max_size=40) | st.text("0123456789.+-eEkKMGTPinumsh%", max_size=20)


@contextmanager
def fast() -> Iterator[None]:
    """Fails when the block took longer than MONSTER_SECONDS."""
    began = time.perf_counter()
    yield
    assert time.perf_counter() - began < MONSTER_SECONDS


def one_sentence(error: Exception, start: str = "") -> None:
    """Fails when a message is not one sentence of one line, or does not begin with `start`."""
    assert str(error).startswith(start)
    assert "\n" not in str(error)
    assert len(str(error)) < 2000


@given(texts)
def test_quantities(text: str) -> None:
    """A finite exact amount within 64 bits, no finer than a billionth; a whole one
    is printed and read again.
    """
    try:
        amount = parse_quantity(text)
    except QuantityError as error:
        one_sentence(error)
        return
    assert abs(amount) <= LARGEST
    assert (amount * 10**9).denominator == 1
    assert parse_quantity(format_quantity(whole(amount))) == whole(amount)


@given(texts.map(lambda text: text if text.endswith("%") else text + "%"))
def test_percentages(text: str) -> None:
    """The result is a finite share of any capacity, and can be printed."""
    try:
        share = parse_percentage(text)
    except QuantityError:
        return
    assert math.isfinite(share.fraction)
    assert abs(share.of(1000)) >= 0
    assert str(share).endswith("%")


@given(texts)
def test_durations(text: str) -> None:
    """Finite, and not more than Go can hold."""
    try:
        seconds = parse_duration(text)
    except QuantityError:
        return
    assert abs(seconds) <= LARGEST / 10**9


@given(texts)
def test_values_of_thresholds(text: str) -> None:
    """No value is negative or infinite, no quantity 0, no percentage above 100."""
    with contextlib.suppress(ValueError):
        value = read_value(text)
        assert value.amount(10**12) >= 0
        assert value.percentage is None or value.percentage.of(10**12) <= 10**12
        assert value.quantity is None or 0 < value.quantity <= LARGEST
        assert str(value)
    with contextlib.suppress(ValueError):
        reclaim = read_minimum_reclaim(text)
        assert reclaim.amount(10**12) >= 0
        assert str(reclaim)


plain = st.none() | st.booleans() | st.integers() | texts
marked = st.text("ab01:-[]{},&*!|>'\"#%@`? \n\t\\", max_size=60)
PIECES = ["a: ", "- ", "\n", "  ", "{", "}", "[", "]", "&x ", "*x", "!!int ", "|\n", "x", "'", "1"]
grown = st.lists(st.sampled_from(PIECES))


@pytest.mark.parametrize("parse", [parse_document, parse_kubelets_file, parse_kubelets_drop_in])
@given(text=marked | grown.map("".join) | st.text(max_size=60))
def test_documents(parse: Callable[[str, str], dict[str, Any]], text: str) -> None:
    """A mapping whose keys are texts, or one sentence; ours and the kubelet's."""
    try:
        document = parse(text, "f")
    except ConfigurationError as error:
        one_sentence(error, "f: ")
        return
    assert all(isinstance(key, str) for key in document)


FIELDS = """margin evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim pollFloor pollCeiling extent
kind parallelRemovals evictionPressureTransitionPeriod imageMinimumGCAge imageGCHighThresholdPercent holdOffAfterStart
imageGCLowThresholdPercent assumedFillRate rootDirectory controlSocket maximumDeadContainersPerContainer noSuchField"""
SIGNALS = [
    "nodefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "memory.available",
    "x",
]
maps = st.dictionaries(st.sampled_from(SIGNALS), plain, max_size=3)
flags = st.dictionaries(
    st.sampled_from(FIELDS.split()), plain | maps | st.lists(plain, max_size=2), max_size=4
)


@given(flags)
def test_configurations(given_flags: dict[str, Any]) -> None:
    """The effective configuration is valid: no negative, infinite or missing number anywhere."""
    try:
        found = load(None, {}, {"kubeletConfig": "", **given_flags})
    except ConfigurationError as error:
        one_sentence(error)
        return
    assert_sound(found)


def assert_sound(found: Configuration) -> None:
    """Every number in it is finite and not negative."""
    for threshold in found.thresholds:
        for capacity in (0, 1, 10**12, LARGEST):
            assert threshold.mark_with_min_reclaim(capacity) >= threshold.mark(capacity) >= 0
        assert 0 <= threshold.grace_seconds <= LARGEST / 10**9
        assert threshold.text()
    for seconds in (
        found.transition_period_seconds,
        found.image_minimum_gc_age_seconds,
        found.hold_off_seconds,
    ):
        assert 0 <= seconds <= LARGEST / 10**9
    assert 0.001 <= found.poll_floor_seconds <= found.poll_ceiling_seconds
    assert 0 <= found.image_gc_low_threshold_percent < found.image_gc_high_threshold_percent <= 100
    assert 1 <= found.parallel_removals <= 64
    assert 0 < found.assumed_fill_rate <= LARGEST


HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\nkubeletConfig: ''\n"
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MONSTERS: dict[str, Callable[[], str]] = {
    "a bomb of aliases": lambda: HEAD + LAUGHS,
    "a bomb of merges": lambda: (
        HEAD + "a: &a {x: 1}\nb: {<<: [" + ",".join(["*a"] * 10_000) + "]}\n"
    ),
    "10 MB in one value": lambda: HEAD + "margin: '" + "9" * 10_000_000 + "'\n",
    "10 MB of blanks": lambda: HEAD + " " * 10_000_000,
    "nested lists": lambda: HEAD + "a: " + "[" * 100_000,
    "nested maps": lambda: HEAD + "a: " + "{a: " * 100_000,
    "nested blocks": lambda: HEAD + "".join("  " * n + "a:\n" for n in range(500)),
    "nested dashes": lambda: HEAD + "a:\n" + "- " * 100_000 + "x\n",
    "very many documents": lambda: "---\n" * 200_000,
    "a key of 900 kB": lambda: HEAD + "k" * 900_000 + ": 1\n",
    "a value of 900 kB": lambda: HEAD + "margin: '" + "9" * 900_000 + "'\n",
    "a number of 900 kB": lambda: HEAD + "parallelRemovals: " + "9" * 900_000 + "\n",
    "an endless quote": lambda: HEAD + "margin: '" + "x\n" * 400_000,
    "900 kB of anchors": lambda: HEAD + "a: " + "&a " * 300_000,
    "900 kB of question marks": lambda: HEAD + "? " * 450_000,
}


@pytest.mark.parametrize("monster", MONSTERS)
def test_monsters_are_refused_fast(monster: str, tmp_path: Path) -> None:
    """The error is one sentence, and comes sooner than a quadratic reader could finish."""
    path = tmp_path / "c.yaml"
    path.write_text(MONSTERS[monster]())
    with fast(), pytest.raises(ConfigurationError) as refused:
        load(str(path), {}, {})
    one_sentence(refused.value, str(path))
    with fast(), contextlib.suppress(ConfigurationError):
        parse_kubelets_file(path.read_text()[:LARGEST_BYTES], str(path))


@pytest.mark.parametrize("read", [parse_quantity, parse_percentage, parse_duration])
@pytest.mark.parametrize("unit", ["9", "0", ".", "1s", "%", "-", "e9", "1h1m"])
def test_10_mb_of_anything_are_refused_fast(read: Callable[[str], object], unit: str) -> None:
    """They are refused by their length, before they are parsed."""
    with fast(), pytest.raises(QuantityError) as refused:
        read(unit * (10_000_000 // len(unit)))
    assert len(str(refused.value)) < 300


KEPT_IMAGE = Image(
    "sha256:" + "a" * 64,
    ("docker.io/library/app:1",),
    (f"docker.io/library/app@sha256:{'b' * 64}",),
)
entries = st.text(max_size=40) | st.text("*", max_size=10) | st.text("ab*:/@.-_1[", max_size=600)


@given(entries)
def test_keep_lists(text: str) -> None:
    """An entry is refused in one sentence, or it either matches the image
    or is listed as unmatched.
    """
    with fast():
        try:
            keep = parse_keep_list([text])
        except PolicyError as error:
            one_sentence(error)  # the field is named by who reads it
            return
        kept = keep.kept_ids([KEPT_IMAGE])
        assert keep.unmatched([KEPT_IMAGE]) == (() if kept else (text,))


NOW = Moment(1000.0, 1_800_000_000.0, "boot")
GONE = ImageRecord(10.0, tag="app:1", removed=True)
GOOD_RECORDS = records_json({KEPT_IMAGE.id: ImageRecord(10.0, 20.0)}, NOW, {KEPT_IMAGE.id: GONE})


@given(
    st.binary(max_size=200), st.integers(0, len(GOOD_RECORDS)), st.integers(0, len(GOOD_RECORDS))
)
def test_records(inserted: bytes, start: int, end: int) -> None:
    """A valid text with a part replaced is refused in one sentence, or has
    only records of the past.
    """
    with fast():
        try:
            found = records_from_json(GOOD_RECORDS[:start] + inserted + GOOD_RECORDS[end:], NOW)
        except ValueError as error:
            one_sentence(error)
            return
        assert all(record.first_detected <= NOW.monotonic for record in found.records.values())
