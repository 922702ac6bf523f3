"""The matrix of fills beside a kubelet: which runs it makes, how a run is kept, what counts as made;
and that the pages and their picture show what the files say."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import product
from pathlib import Path

import pytest

from tests.kubelet.node import MIB
from tests.lab.bench import ablate
from tests.lab.duel import DuelRun, Event
from tests.lab.matrix import all_runs, is_whole, thinned, write
from tests.lab.matrix_page import (
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

pytestmark = pytest.mark.house("README.md", "tests/README.md", "tests/lab")

PUBLISHED = read_all(MEASURED)
ROUNDS = """
1 ext4 reclaimd, 1 ext4 nobody, 1 btrfs nobody, 1 btrfs reclaimd, 1 xfs reclaimd, 1 xfs nobody
2 ext4 nobody, 2 ext4 reclaimd, 2 btrfs reclaimd, 2 btrfs nobody, 2 xfs nobody, 2 xfs reclaimd
3 ext4 reclaimd, 3 ext4 nobody, 3 btrfs nobody, 3 btrfs reclaimd, 3 xfs reclaimd, 3 xfs nobody
4 ext4 nobody, 4 ext4 reclaimd, 4 xfs reclaimd, 4 xfs nobody, 4 btrfs nobody, 4 btrfs reclaimd
"""
WITH_RECLAIMD = min(MEASURED.glob("*_reclaimd_*"), key=lambda file: file.stat().st_size)


def test_each_round_has_every_fill_once_and_what_is_compared_comes_one_after_another() -> None:
    """In a new order, so that a slow hour meets all alike; being the first of two favours nobody;
    each run has a file of its own."""
    runs = list(all_runs("node", ("ext4", "xfs", "btrfs"), 100, 4))
    told = [f"{run.number} {run.filesystem} {run.responder}" for run in runs]
    assert told == re.split(r"[\n,] *", ROUNDS.strip())
    assert len({run.file(Path()) for run in runs}) == len(runs)


def test_a_run_is_written_as_it_is_read(tmp_path: Path) -> None:
    """Every one that is published; nothing of another name is left."""
    names = {each.name for each in dataclasses.fields(DuelRun)}
    for recorded in PUBLISHED:
        summary = {name: each for name, each in recorded.summary.items() if name in names}
        events = tuple(Event(**each) for each in recorded.events)
        run = DuelRun(**summary, samples=tuple(recorded.samples), events=events)
        write(tmp_path / "a.jsonl", recorded.head, run)
        assert read_all(tmp_path) == [
            dataclasses.replace(recorded, summary=summary, samples=thinned(recorded.samples))
        ]
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_the_lowest_reading_of_each_tenth_of_a_second_is_kept_unless_it_says_the_same_again() -> (
    None
):
    """The second tenth has what the first one had."""
    readings = [(0.01, 50, 0), (0.02, 30, 1), (0.09, 40, 1), (0.11, 30, 1), (0.31, 20, 2)]
    assert thinned(readings) == [(0.02, 30, 1), (0.31, 20, 2)]


def test_only_a_whole_file_of_the_same_reclaimd_counts(tmp_path: Path) -> None:
    """What was cut off anywhere is made again, and what another commit has made; the kubelet alone
    has no commit."""
    file, commit = tmp_path / "a.jsonl", Recorded.read(WITH_RECLAIMD).head["reclaimd"]
    assert not is_whole(file, commit)
    assert is_whole(WITH_RECLAIMD, commit)
    assert not is_whole(WITH_RECLAIMD, "4567abcd")
    lines = WITH_RECLAIMD.read_text().splitlines(keepends=True)
    for count, characters in product(range(len(lines)), (0, 7)):
        file.write_text("".join(lines[:count]) + lines[count][:characters])
        assert not is_whole(file, commit), (count, characters)
        with pytest.raises(ValueError, match=r"a\.jsonl"):
            Recorded.read(file)
    assert all(is_whole(alone, "4567abcd") for alone in MEASURED.glob("*_nobody_*"))


# ---- what is published


def test_what_the_pages_say_is_what_the_files_say() -> None:
    """`python -m tests.lab.matrix_page` makes the table, the root page's item and the picture; the
    other item is of the fills of a large disk, with no rule left out."""
    (shown,) = re.findall(re.escape(table([]).splitlines()[0]) + r"\n(?:\|.*\n)*", PAGE.read_text())
    assert shown == table(PUBLISHED)
    root_page = ROOT_PAGE.read_text()
    assert sentence(PUBLISHED) in root_page
    for written, file in ((ablate.sentence, "large.json"), (ablate.slow_sentence, "slow.json")):
        assert written(json.loads((MEASURED.parent / file).read_text())) in root_page
    assert PICTURE.read_text() == picture(PUBLISHED)


def test_published_runs_agree_with_themselves() -> None:
    """The lowest point of each is among its samples; none has paths of the machine; all are small;
    those on one filesystem are of one commit."""
    assert sum(file.stat().st_size for file in MEASURED.glob("*.jsonl")) < 2 * MIB
    heads = [run.head for run in PUBLISHED if run.head["reclaimd"]]
    commits = {(head["filesystem"], head["reclaimd"]) for head in heads}
    assert len(dict(commits)) == len(commits)
    assert not any(commit.endswith("-changed") for _, commit in commits)
    for run in PUBLISHED:
        assert min(left for _, left, _ in run.samples) == run.summary["lowest_bytes"], run.node
        told = json.dumps([run.head, run.events])
        assert not re.search(r"/(tmp|opt|srv|root|home)\b", told), run.node
