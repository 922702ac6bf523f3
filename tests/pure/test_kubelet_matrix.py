"""The matrix of fills beside a kubelet: its order, its files, and that the page's
table is what the files say.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bench import ablate
from tests.kubelet.bench import Program, combinations, is_whole, write
from tests.kubelet.duel import DuelRun, Event, Responder, Sample
from tests.kubelet.matrix_page import (
    MEASURED,
    PAGE,
    PICTURE,
    ROOT_PAGE,
    Recorded,
    picture,
    read_all,
    sentence,
    table,
)

pytestmark = pytest.mark.house("README.md", "tests/README.md", "tests/bench", "tests/kubelet")

MIB = 1 << 20
ROUNDS, RATES_MIB = 3, (20, 100)
PUBLISHED = read_all(MEASURED)
A_RUN: dict[str, Any] = yaml.safe_load("""
rate_mib: 100
runtime: containerd 1.6.20
capacity_bytes: 6291456000
mark_bytes: 943718400
own_mark_bytes: 1258291200
fill_bytes: 1328545792
pressure: false
evicted: []
crossed_seconds: 2.0
first_freed_seconds: 0.05
lowest_bytes: 1153433600
below_mark_seconds: 0.0
images_before: 31
images_left: 15
restarted: []
idle_share: 0.5
stolen_share: 0.0
""")
SAMPLES = (0.01, 50, 0), (0.02, 30, 1), (0.09, 40, 1), (0.11, 30, 1), (0.31, 20, 2)
HEADER: dict[str, Any] = yaml.safe_load("""
kubelet: 1.36.2
runtime: containerd 1.6.20~ds1
filesystem: ext4
rate_mib: 100
responder: reclaimd
reclaimd: 0123abcd
kernel: "6.18"
machine: {processors: 2}
""")


def write_run(path: Path, **header: object) -> None:
    """One that ended well."""
    events = (Event(0.0, "fill", "begins"),)
    samples = tuple(Sample(*each) for each in SAMPLES)
    run = DuelRun(**A_RUN, responder=Responder.RECLAIMD, samples=samples, events=events)
    write(path, {**HEADER, **header}, run)


def test_each_round_has_every_combination_once_and_each_responder_comes_first() -> None:
    """So that a slow hour meets all alike, and each run has a file of its own. The responders of
    one node come one after another: what is compared is measured within minutes, and being the
    first of two favours nobody."""
    kubelet, *runtimes = (Program("P", Path(f"/{each}"), each) for each in ("1.36", "1.6", "2.1"))
    runs = list(
        combinations([kubelet], runtimes, ["ext4", "xfs"], RATES_MIB, list(Responder), ROUNDS)
    )
    assert len({run.name for run in runs}) == len(runs) == 2 * 2 * 2 * 2 * ROUNDS
    rounds = [[run for run in runs if run.number == number + 1] for number in range(ROUNDS)]
    assert list(chain(*rounds)) == runs
    orders = [[run.name.rsplit("_", 2)[0] for run in each] for each in rounds]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1] != orders[2]
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    for pair in pairs:
        assert len({(run.runtime, run.filesystem, run.rate_mib) for run in pair}) == 1
        assert {run.responder for run in pair} == set(Responder)
    assert set(Counter(first.responder for first, _ in pairs).values()) == {12}


def test_a_run_is_written_whole_and_read_back(tmp_path: Path) -> None:
    """With the lowest reading of each tenth of a second, but what says the same again. Nothing of
    another name is left."""
    write_run(tmp_path / "a.jsonl")
    (recorded,) = read_all(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    assert recorded.head == HEADER
    assert recorded.samples == [(0.02, 30, 1), (0.31, 20, 2)]
    assert recorded.events == [{"at": 0.0, "whose": "fill", "what": "begins"}]
    assert recorded.summary["lowest_bytes"] == 1100 * MIB


def test_only_a_whole_file_of_the_same_reclaimd_counts(tmp_path: Path) -> None:
    """What was cut off anywhere is run again, and what another commit has run; the
    kubelet alone has no commit.
    """
    file = tmp_path / "a.jsonl"
    assert not is_whole(file, "0123abcd")
    write_run(file)
    assert [is_whole(file, commit) for commit in ("0123abcd", "4567abcd")] == [True, False]
    lines = file.read_text().splitlines(keepends=True)
    for count, characters in product(range(len(lines)), (0, 7)):
        file.write_text("".join(lines[:count]) + lines[count][:characters])
        assert not is_whole(file, "0123abcd"), (count, characters)
        with pytest.raises(ValueError, match=r"a\.jsonl"):
            Recorded.read(file)
    write_run(file, responder=Responder.NOBODY, reclaimd=None)
    assert is_whole(file, "4567abcd")


# ---- what is published


def test_what_the_pages_say_is_what_the_files_say() -> None:
    """`python -m tests.kubelet.bench page` makes the table and the root page's item."""
    (shown,) = re.findall(re.escape(table([]).splitlines()[0]) + r"\n(?:\|.*\n)*", PAGE.read_text())
    assert shown == table(PUBLISHED)
    assert sentence(PUBLISHED) in ROOT_PAGE.read_text()


def test_the_root_page_says_of_fills_what_their_file_says() -> None:
    """Those of a large disk, with no rule left out."""
    fills = json.loads((MEASURED.parent / "large.json").read_text())
    assert ablate.sentence(fills) in ROOT_PAGE.read_text()


@pytest.mark.skipif(not PUBLISHED, reason="no run is published")
def test_published_runs_agree_with_the_picture_and_with_themselves() -> None:
    """The lowest point of each is among its samples; none has paths of the machine; all are small;
    those on one filesystem are of one commit."""
    assert PICTURE.read_text() == picture(PUBLISHED)
    assert sum(file.stat().st_size for file in MEASURED.glob("*.jsonl")) < 2 * MIB
    ran = {
        (recorded.head["filesystem"], recorded.head["reclaimd"])
        for recorded in PUBLISHED
        if recorded.head["reclaimd"]
    }
    assert len(dict(ran)) == len(ran)
    assert not any(commit.endswith("-changed") for _, commit in ran)
    for recorded in PUBLISHED:
        assert (
            min(available for _, available, _ in recorded.samples)
            == recorded.summary["lowest_bytes"]
        ), recorded.node
        assert not re.search(
            r"/(tmp|opt|srv|root|home)\b", json.dumps([recorded.head, recorded.events])
        ), recorded.node
