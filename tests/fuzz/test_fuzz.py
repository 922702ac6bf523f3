"""No text from outside crashes a reader, and nothing nonsensical is accepted.

The number of inputs of each test comes from the environment (`FUZZ_EXAMPLES`, 1 000 unless set).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eviction.configuration import Configuration, ConfigurationError, load
from eviction.documents import DocumentError, parse_document, read_document
from signals.quantity import QuantityError, parse_duration, parse_percentage, parse_quantity

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "1000")), deadline=None, suppress_health_check=list(HealthCheck)
)
amounts = st.text() | st.from_regex(
    r"[+-]?[0-9.]{0,12}([eE][+-]?[0-9]{0,5}|[numkMGTPEi]{0,3}|%+|[smhnuµd]{0,3})", fullmatch=True
)
scalars = amounts | st.integers() | st.floats() | st.booleans() | st.none()
signals = st.sampled_from(["nodefs.available", "imagefs.inodesFree", "memory.available", "containerfs.available", "x"])
fields = st.sampled_from(
    ["evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "margin", "pollFloor",
     "extent", "parallelRemovals", "imageGCHighThresholdPercent", "kubeletConfig", "rootDirectory", "controlSocket"]
)  # fmt: skip
documents = st.dictionaries(
    fields | st.text(), scalars | st.dictionaries(signals, scalars) | st.lists(scalars), max_size=6
)
HEAD = {"apiVersion": "reclaimd.io/v1alpha1", "kind": "ReclaimdConfiguration"}


@fuzzed
@given(amounts)
def test_amounts_are_finite_or_refused(text: str) -> None:
    """A quantity is a number of at most 63 bits, a percentage and a duration are finite; the rest is QuantityError."""
    with contextlib.suppress(QuantityError):
        assert abs(parse_quantity(text)) < 2**63
    with contextlib.suppress(QuantityError):
        assert math.isfinite(parse_percentage(text).fraction)
    with contextlib.suppress(QuantityError):
        assert math.isfinite(parse_duration(text))


@fuzzed
@given(st.text() | documents.map(lambda document: json.dumps(document)))
def test_a_document_is_a_mapping_of_plain_values_or_refused(text: str) -> None:
    """No float, no date, no object of another kind ever comes out of YAML; the sentence has one line."""
    pending: list[object] = []
    sentence = ""
    try:
        pending.append(parse_document(text, "fuzz"))
    except DocumentError as error:
        sentence = str(error)
    assert "\n" not in sentence
    while pending:
        match pending.pop():
            case dict() as entries:
                assert all(isinstance(key, str) for key in entries)
                pending += entries.values()
            case list() as items:
                pending += items
            case value:
                assert value is None or isinstance(value, str | int)


@fuzzed
@given(documents)
def test_a_configuration_is_sensible_or_refused(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]
) -> None:
    """Every mark that is accepted is positive and finite, every period at least 0; the sentence has one line."""
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(json.dumps({**HEAD, "kubeletConfig": "", **document}), errors="surrogatepass")
    sentence = ""
    try:
        assert_sensible(load(str(path), {}, {}))
    except ConfigurationError as error:
        sentence = str(error)
    assert "\n" not in sentence


def assert_sensible(found: Configuration) -> None:
    capacity = 2**40
    for threshold in found.thresholds:
        assert 0 <= threshold.effective(capacity, with_min_reclaim=True) < math.inf
        assert 0 <= threshold.grace_seconds < math.inf
    assert 0.001 <= found.poll_floor_seconds <= found.poll_ceiling_seconds < math.inf
    assert 0 <= found.image_gc_low_threshold_percent < found.image_gc_high_threshold_percent <= 100
    assert 1 <= found.parallel_removals <= 64


@pytest.mark.parametrize(
    "monster",
    ["x: " + "9" * 10**7, "[" * 10**6, "{" * 10**6, "x: " + "- " * 10**5, "a: &a [" + "x," * 10**5 + "]\nb: [*a,*a]",
     "\n".join(f"k{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), "? " * 10**5, "!!python/object/new:x {}"],
)  # fmt: skip
def test_a_monster_is_refused_fast(tmp_path: Path, monster: str) -> None:
    """10 MB of digits, a million brackets, a bomb of aliases: refused within seconds, and not by a crash."""
    path = tmp_path / "monster.yaml"
    path.write_text(monster)
    began = time.monotonic()
    with pytest.raises(DocumentError):
        read_document(str(path))
    assert time.monotonic() - began < 20.0


@pytest.mark.parametrize(
    "text", ["9" * 10**7, "1e400", "1" + "0" * 10**6 + "%", "NaN%", "inf%", "-inf", "1e99999%", "9" * 10**6 + "h"]
)
def test_a_monstrous_amount_is_capped_or_refused_fast(text: str) -> None:
    """Never infinite, never slow."""
    began = time.monotonic()
    with contextlib.suppress(QuantityError):
        assert abs(parse_quantity(text)) < 2**63
    with contextlib.suppress(QuantityError):
        assert abs(parse_duration(text)) < 2**63
    with contextlib.suppress(QuantityError):
        assert math.isfinite(parse_percentage(text).fraction)
    assert time.monotonic() - began < 5.0
