"""Tests of the function alone, without a running reclaimd, on a temporary directory."""

import os
import time

from reclaimd_prune_build_cache import PruneBuildCache


def test_an_old_file_is_removed_and_a_young_one_kept(tmp_path):
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


def test_a_file_used_after_the_plan_is_kept(tmp_path):
    """Whatever your check looks at deserves such a test, in which only the check prevents the removal."""
    path = tmp_path / "old"
    path.write_text("x")
    os.utime(path, (0, 0))
    function = PruneBuildCache({"directory": str(tmp_path), "olderThan": "30m"})
    (found,) = function.plan()
    os.utime(path, (time.time(), 0))
    assert function.check(found) == "used_meanwhile"
