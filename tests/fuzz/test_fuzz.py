"""Arbitrary texts in a file, a flag, a name or an answer are read as something valid or refused in
one sentence, quickly, and shown in one printable line.

`make fuzz` runs it: FUZZ_INPUTS in the environment is the total number of inputs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eviction.configuration.effective import load
from eviction.configuration.file import KIND
from eviction.configuration.strict_yaml import (
    LARGEST_BYTES,
    ConfigurationError,
    parse_document,
    parse_kubelets_drop_in,
    parse_kubelets_file,
)
from eviction.configuration.threshold_config import read_minimum_reclaim, read_value
from eviction.drill.scenario import ScenarioError, scenario_of
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.records.state_file import Moment, records_from_json, records_json
from eviction.types import API_VERSION, Decision
from eviction.wording.explain import outcomes_table, pass_lines
from eviction.wording.log import Log
from reclaim.images.keep_list import parse_keep_list
from reclaim.types import (
    Action,
    Image,
    ImageRecord,
    Kind,
    Outcome,
    PolicyError,
    Reason,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.quantity import (
    QuantityError,
    format_quantity,
    parse_duration,
    parse_percentage,
    parse_quantity,
    whole,
)
from signals.types import FsLayout, Signal
from tests.drill.test_scenario import RICH
from tests.hostile_http2 import ANY_BYTES, assert_clean
from tests.mutations import mutations
from tests.pure.values import GIB, observation, observations_of

PROPERTIES = 13
if inputs := int(os.environ.get("FUZZ_INPUTS", "0")):
    settings.register_profile(
        "fuzz",
        max_examples=-(-inputs // PROPERTIES),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("fuzz")

pytestmark = pytest.mark.timeout(3600)

LARGEST = 2**63 - 1
# ten times what the slowest takes on a busy machine; a quadratic or exponential reader takes minutes
MONSTER_SECONDS = 30.0
SUFFIXES = "n u m k K M G T P E Ki Mi Gi Ti Pi Ei % %% i ns us µs ms s h d e9 E-9 e+99"
WORDS = """NaN nan Inf inf -inf Infinity +Inf% NaN% nan% -inf% 0x10 1_0 null true
\u0661 \uff11 \u00b2 \u221e 1e999999999%"""
signs, points = st.sampled_from(["", "-", "+", "--", " "]), st.sampled_from(["", ".", ".."])
digits = st.text("0123456789", max_size=25)
numbers = st.tuples(signs, digits, points, digits, st.just("") | st.sampled_from(SUFFIXES.split()))
near = st.lists(numbers.map("".join), min_size=1, max_size=2).map("".join)
letters = st.text("0123456789.+-eEkKMGTPinumsh%", max_size=20)
texts = near | st.sampled_from(WORDS.split()) | st.text(max_size=40) | letters
plain = st.none() | st.booleans() | st.integers() | texts


@contextmanager
def refused_in_one_sentence(*errors: type[Exception], start: str = "") -> Iterator[None]:
    """Such an error is one sentence of one line that begins with `start`, and comes soon."""
    began = time.perf_counter()
    try:
        yield
    except errors as error:
        said = str(error)
        well_said = said.startswith(start) and "\n" not in said and len(said) < 2000
        assert well_said, said
    assert time.perf_counter() - began < MONSTER_SECONDS


@given(texts)
def test_quantities(text: str) -> None:
    """A finite exact amount within 64 bits, no finer than a billionth; a whole one
    is printed and read again.
    """
    with refused_in_one_sentence(QuantityError):
        amount = parse_quantity(text)
        assert abs(amount) <= LARGEST
        assert (amount * 10**9).denominator == 1
        assert parse_quantity(format_quantity(whole(amount))) == whole(amount)


@given(texts)
def test_percentages_and_durations(text: str) -> None:
    """A share is of any capacity, and can be printed; a duration is not more than Go can hold."""
    with refused_in_one_sentence(QuantityError):
        share = parse_percentage(text.removesuffix("%") + "%")
        assert 0 <= abs(share.of(1000)) < float("inf")
        assert str(share).endswith("%")
    with refused_in_one_sentence(QuantityError):
        assert abs(parse_duration(text)) <= LARGEST / 10**9


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


PIECES = ["a: ", "- ", "\n", "  ", "{", "}", "[", "]", "&x ", "*x", "!!int ", "|\n", "x", "'", "1"]
marked = st.text("ab01:-[]{},&*!|>'\"#%@`? \n\t\\", max_size=60)
grown = st.lists(st.sampled_from(PIECES)).map("".join)


@pytest.mark.parametrize("parse", [parse_document, parse_kubelets_file, parse_kubelets_drop_in])
@given(text=marked | grown | st.text(max_size=60))
def test_documents(parse: Callable[[str, str], dict[str, Any]], text: str) -> None:
    """A mapping whose keys are texts; ours and the kubelet's."""
    with refused_in_one_sentence(ConfigurationError, start="f: "):
        assert all(isinstance(key, str) for key in parse(text, "f"))


FIELDS = """margin evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim pollFloor pollCeiling extent
kind parallelRemovals evictionPressureTransitionPeriod imageMinimumGCAge imageGCHighThresholdPercent holdOffAfterStart
imageGCLowThresholdPercent assumedFillRate rootDirectory controlSocket maximumDeadContainersPerContainer noSuchField"""
SIGNALS = "nodefs.available imagefs.inodesFree containerfs.available memory.available x"
maps = st.dictionaries(st.sampled_from(SIGNALS.split()), plain, max_size=3)
values = plain | maps | st.lists(plain, max_size=2)


@given(st.dictionaries(st.sampled_from(FIELDS.split()), values, max_size=4))
def test_configurations(flags: dict[str, Any]) -> None:
    """Every number of the effective configuration is finite and not negative."""
    with refused_in_one_sentence(ConfigurationError):
        found = load(None, {}, {"kubeletConfig": "", **flags})
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
        low, high = found.image_gc_low_threshold_percent, found.image_gc_high_threshold_percent
        assert 0 <= low < high <= 100
        assert 1 <= found.parallel_removals <= 64
        assert 0 < found.assumed_fill_rate <= LARGEST


@given(mutations(RICH))
def test_scenarios(written: Any) -> None:
    """A scenario with valid numbers."""
    with refused_in_one_sentence(ScenarioError, start="f: "):
        found = scenario_of(written, "f")
        assert all(each.rate > 0 and each.after_seconds >= 0 for each in found.pressures)
        assert all(
            each.size_bytes > 0 and each.inodes > 0 for each in found.node.filesystems.values()
        )


HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\nkubeletConfig: ''\n"
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a: &a {x: 1}\nb: {<<: [" + ",".join(["*a"] * 10_000) + "]}\n"
BLOCKS = "".join("  " * n + "a:\n" for n in range(500))
# a piece and how many of them, between a beginning and an end
MONSTERS: dict[str, tuple[str, str, int, str]] = {
    "a bomb of aliases": (HEAD, LAUGHS, 1, ""),
    "a bomb of merges": (HEAD, MERGES, 1, ""),
    "10 MB in one value": (f"{HEAD}margin: '", "9", 10_000_000, "'\n"),
    "10 MB of blanks": (HEAD, " ", 10_000_000, ""),
    "nested lists": (f"{HEAD}a: ", "[", 100_000, ""),
    "nested maps": (f"{HEAD}a: ", "{a: ", 100_000, ""),
    "nested blocks": (HEAD, BLOCKS, 1, ""),
    "nested dashes": (f"{HEAD}a:\n", "- ", 100_000, "x\n"),
    "very many documents": ("", "---\n", 200_000, ""),
    "a key of 900 kB": (HEAD, "k", 900_000, ": 1\n"),
    "a value of 900 kB": (f"{HEAD}margin: '", "9", 900_000, "'\n"),
    "a number of 900 kB": (f"{HEAD}parallelRemovals: ", "9", 900_000, "\n"),
    "an endless quote": (f"{HEAD}margin: '", "x\n", 400_000, ""),
    "900 kB of anchors": (f"{HEAD}a: ", "&a ", 300_000, ""),
    "900 kB of question marks": (HEAD, "? ", 450_000, ""),
}


@pytest.mark.parametrize("monster", MONSTERS)
def test_monsters_are_refused_fast(monster: str, tmp_path: Path) -> None:
    """Sooner than a quadratic reader could finish."""
    path = tmp_path / "c.yaml"
    start, piece, count, end = MONSTERS[monster]
    path.write_text(start + piece * count + end)
    began = time.perf_counter()
    with pytest.raises(ConfigurationError, match=r"\A.{,2000}\Z") as refused:
        load(str(path), {}, {})
    assert time.perf_counter() - began < MONSTER_SECONDS
    assert str(refused.value).startswith(str(path))
    with refused_in_one_sentence(ConfigurationError):
        parse_kubelets_file(path.read_text()[:LARGEST_BYTES], str(path))


@pytest.mark.parametrize("read", [parse_quantity, parse_percentage, parse_duration])
@pytest.mark.parametrize("unit", ["9", "0", ".", "1s", "%", "-", "e9", "1h1m"])
def test_10_mb_of_anything_are_refused_fast(read: Callable[[str], object], unit: str) -> None:
    """They are refused by their length, before they are parsed."""
    with refused_in_one_sentence(), pytest.raises(QuantityError) as refused:
        read(unit * (10_000_000 // len(unit)))
    assert len(str(refused.value)) < 300


APP = "docker.io/library/app"
KEPT_IMAGE = Image("sha256:" + "a" * 64, (f"{APP}:1",), (f"{APP}@sha256:{'b' * 64}",))
entries = st.text(max_size=40) | st.text("*", max_size=10) | st.text("ab*:/@.-_1[", max_size=600)


@given(entries)
def test_keep_lists(text: str) -> None:
    """An entry either matches the image or is listed as unmatched."""
    with refused_in_one_sentence(PolicyError):  # the field is named by who reads it
        keep = parse_keep_list([text])
        kept = keep.kept_ids([KEPT_IMAGE])
        assert keep.unmatched([KEPT_IMAGE]) == (() if kept else (text,))


NOW = Moment(1000.0, 1_800_000_000.0, "boot")
GONE = ImageRecord(10.0, tag="app:1", removed=True)
RECORDS = records_json({KEPT_IMAGE.id: ImageRecord(10.0, 20.0)}, NOW, {KEPT_IMAGE.id: GONE})
place = st.integers(0, len(RECORDS))


@given(st.binary(max_size=200), place, place)
def test_records(inserted: bytes, start: int, end: int) -> None:
    """A valid text with a part replaced has only records of the past."""
    with refused_in_one_sentence(ValueError):
        found = records_from_json(RECORDS[:start] + inserted + RECORDS[end:], NOW)
        assert all(record.first_detected <= NOW.monotonic for record in found.records.values())


@given(ANY_BYTES, st.booleans())
def test_servers(sent: bytes, greeted: bool) -> None:
    """Whatever the server on the runtime's socket sends, after a greeting or instead of it, a call
    is answered or raises a CallError, in time."""
    assert_clean(sent, greeted)


# Names of the runtime are UTF-8, names on a disk are any bytes: those come as surrogates.
CONTROLS = '\n|\r\n|\x1b[2J|\x1b]0;x\x07|\x9b31m|\u202e|\u2066|\u200b|\u2028|\x00|../|"'
on_disk = st.binary(max_size=40).map(os.fsdecode)
named = (
    st.lists(st.sampled_from(CONTROLS.split("|")) | st.text(max_size=8), max_size=8).map("".join)
    | on_disk
)
OBSERVATIONS = observations_of(observation(Signal.NODEFS_AVAILABLE, GIB, time=100.0), time=100.0)
IDLE = Decision(frozenset(), (), None, (), FsLayout.SINGLE)


@given(named, named)
def test_names_and_error_texts(name: str, message: str) -> None:
    """There are as many lines as rows of a table or a pass, each printable, and all can be written
    as UTF-8; a line of the log is one, and as JSON one object with exactly that text."""
    removed = Verdict(Kind.POD_LOG, name, name, Action.REMOVE, Reason.POD_GONE, 1, 1.0)
    kept = removed._replace(action=Action.KEEP, reason=Reason.RUNNING)
    outcomes = (Outcome(removed, Result.FAILED, message),)
    function = ReclaimResult("f", outcomes=outcomes, kept=(Outcome(kept),), error=message)
    record = Pass("0" * 12, 1_800_000_000.0, Trigger.INTERVAL, OBSERVATIONS, IDLE, ())
    failed = replace(record, functions=(function,), result=PassResult.FAILED, reason=message)
    lines = outcomes_table([*failed.removals, *failed.kept])
    assert len(lines) == 3
    as_json, as_text = io.StringIO(), io.StringIO()
    for stream in (as_json, as_text):
        log = Log(lambda: 1_800_000_000.0, as_json=stream is as_json, stream=stream)
        log.warning(message, object=name, record=to_json(pass_json(failed)))
        assert stream.getvalue().endswith("\n")
        lines.append(stream.getvalue()[:-1])
    for line in [*lines, *pass_lines(failed)]:
        assert line.isprintable()
        line.encode("utf-8")
    found = json.loads(as_json.getvalue())
    assert (found["message"], found["object"]) == (message, name)
    assert found["record"]["removals"][0]["error"] == (message or None)
