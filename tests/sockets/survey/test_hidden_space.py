"""A look for hidden space at a filesystem that never answers: it ends in time,
and so does the next one.
"""

from __future__ import annotations

from pathlib import Path

from eviction.survey.open_files import look
from eviction.survey.trees import TimeLimit
from reclaim.workers import Workers
from signals.clock import SystemClock
from tests.sockets.mounts import dead_filesystem


def test_a_filesystem_that_never_answers_costs_the_limit_and_no_more(tmp_path: Path) -> None:
    """Nothing is known then, and the processes count as not looked at."""
    clock = SystemClock()
    workers = Workers("test", 1)
    limit = TimeLimit(workers, clock, 0.1)
    disk = tmp_path / "dead"
    disk.mkdir()
    alive = {str(tmp_path): tmp_path.stat().st_dev}
    with dead_filesystem(str(disk)):
        began = clock.monotonic()
        first, second = look({str(disk): 1}, limit), look(alive, limit)
        assert first[0] == second[0] == {}, "the first look is stuck"
        for _, unseen in (first, second):
            assert unseen is not None
            assert unseen.sentence.endswith("not all were looked at in time")
        assert clock.monotonic() - began < 10.0, "it would hang for as long as the block lasts"
    assert workers.not_started == 0
    found, unseen = look(alive, TimeLimit(Workers("test", 1), clock, 20.0))
    assert found.keys() == set(alive.values())
    assert unseen is None or "not all were looked at in time" not in unseen.sentence
