"""The function alone: without reclaimd running, on a directory of the test."""

import os
import time

from reclaimd_prune_build_cache import PruneBuildCache


def test_an_old_file_goes_and_a_young_one_stays(tmp_path):
    """Planned, checked, removed, absent."""
    old, young = tmp_path / "old", tmp_path / "young"
    for path in (old, young):
        path.write_text("x")
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))
    function = PruneBuildCache({"directory": str(tmp_path), "olderThan": "30m"})
    first, second = function.plan()
    assert (first.id, first.remove, first.reason) == (str(old), True, "not_used_lately")
    assert (second.id, second.remove, second.reason) == (str(young), False, "too_young")
    assert function.check(first) is True
    assert function.remove(first)
    assert not function.present(first)
    assert young.exists()


def test_what_was_used_after_the_plan_stays(tmp_path):
    """Whatever your check looks at deserves such a test: with nothing but the check between object and removal."""
    path = tmp_path / "old"
    path.write_text("x")
    os.utime(path, (0, 0))
    function = PruneBuildCache({"directory": str(tmp_path), "olderThan": "30m"})
    (found,) = function.plan()
    os.utime(path, (time.time(), 0))
    assert function.check(found) == "used_meanwhile"
