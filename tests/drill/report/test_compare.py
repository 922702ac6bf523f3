"""The comparison of two runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from eviction.drill.judgement.judge import Response
from eviction.drill.measurement.measurements import EndedPod, Episode, MeasuredRemoval, Sample
from eviction.drill.report.document import report_of, result_json
from eviction.drill.report.lines import comparison_table
from eviction.drill.report.page import comparison_page, comparison_picture
from eviction.drill.report.timeline import NAMESPACE
from tests.drill.documents import MIB
from tests.drill.report.test_report import HOSTILE, assert_self_contained, parsed, report, result, texts
from tests.reclaimd_process import reclaimd, reclaimd_here

SLOW: dict[str, Any] = {
    "samples": (Sample(0.0, ((50 * MIB, 900),)), Sample(3.0, ((8 * MIB, 800),)), Sample(14.0, ((20 * MIB, 900),))),
    "episodes": (Episode(3.0, 13.5),),
    "removals": (MeasuredRemoval(13.0, "image", "a:1", "id a"), MeasuredRemoval(13.2, "image", "b:1", "id b")),
    "ended": 14.0,
}


def test_the_table_has_both_runs_side_by_side() -> None:
    """Times from crossing, lowest points, removed objects."""
    rows = {line[:26].strip(): line[26:].split() for line in comparison_table(report(), report(**SLOW))}
    assert rows["crossing to first removal"] == ["100ms", "10s"]
    assert rows["crossing to relief"] == ["200ms", "10.5s"]
    assert rows["lowest nodefs.available"] == ["9.0MiB", "8.0MiB"]
    assert rows["images removed"] == ["1", "2"]
    assert rows["held"] == ["yes", "yes"]


def test_different_scenarios_are_named() -> None:
    """The numbers are compared anyway."""
    head, *_ = comparison_table(report(), replace(report(), scenario="other"))
    assert head.split() == ["WHAT", "A", "(small)", "B", "(other)"]


def test_an_observed_run_is_compared_with_one_of_reclaimd() -> None:
    """The heads name what relieved the node; what is not known of an observed run is a dash."""
    made = replace(result(layers=None, passes=(), ended_pods=(EndedPod(1.5, "default/web", "u"),)), checks=())
    observed = report_of(result_json(replace(made, response=Response.OBSERVED)), "b.json")
    head, *lines = comparison_table(report(), observed)
    assert head.split("  ")[-1].strip() == "B (small, observed)"
    rows = {line[:26].strip(): line[26:].split() for line in lines}
    assert rows["pods ended"] == ["0", "1"]
    assert rows["images beyond need"] == ["0", "-"]
    assert_self_contained(comparison_page(report(), observed))


def test_the_page_draws_both_lines_from_the_moment_of_crossing() -> None:
    """One chart with a line for each run, and a key."""
    html = comparison_page(report(), report(**SLOW))
    assert_self_contained(html)
    lines = [path.get("class") for path in parsed(html).iter("path")]
    assert lines == ["a", "b"]
    assert "0 s" in texts(parsed(html), "text")


def test_the_picture_has_both_lines_and_the_events_of_both() -> None:
    """One sheet that loads nothing, with what became of each run in one line."""
    svg = comparison_picture(report(), report(**SLOW, ended_pods=(EndedPod(9.0, "default/web", "u"),)))
    root = ElementTree.fromstring(svg)  # noqa: S314 # our own
    shown = texts(root, f"{{{NAMESPACE}}}text")
    assert [path.get("class") for path in root.iter(f"{{{NAMESPACE}}}path")] == ["a", "b"]
    assert {"A: images removed", "B: images removed", "B: pods ended", "A: ReclaimPressure"} <= set(shown)
    assert "A: pods ended" not in shown
    told = " ".join(shown)
    assert "B: from crossing the mark: first removal 10s, " in told
    assert "lowest point 8.0MiB" in told
    assert not re.search(r"https?://|url\(", svg.replace(NAMESPACE, ""))


def test_where_one_run_crossed_no_mark_both_are_drawn_from_their_beginning() -> None:
    """Else one line would be moved beside the other for no reason; the page says from when seconds count."""
    calm = report(episodes=(), removals=(), passes=(), condition_periods=())
    for page in (comparison_page(report(**SLOW), calm), comparison_page(calm, report(**SLOW))):
        assert "seconds since the start of each run, as not both crossed a mark" in page
        first, second = (path.get("d", "") for path in parsed(page).iter("path"))
        assert first.partition(" ")[0] == second.partition(" ")[0]
    assert "seconds since the moment at which each run crossed" in comparison_page(report(), report(**SLOW))


def test_a_run_that_crossed_no_mark_can_be_compared() -> None:
    """It is drawn from its beginning; a time that does not exist is a dash."""
    calm = report(episodes=(), removals=(), passes=(), condition_periods=())
    table = comparison_table(calm, report())
    assert any(line.split() == ["crossing", "to", "relief", "-", "200ms"] for line in table)
    assert_self_contained(comparison_page(calm, report()))


def test_hostile_names_of_a_report_are_escaped() -> None:
    """A report may come from an untrusted source."""
    hostile = replace(report(), scenario=HOSTILE, why=HOSTILE)
    html = comparison_page(hostile, report())
    assert "<script" not in html
    assert_self_contained(html)
    assert "\x1b" not in "".join(comparison_table(hostile, report()))


def test_the_command_compares_two_files(tmp_path: Path) -> None:
    """`reclaimd drill compare A.json B.json`: a table on stdout, a page in the report's directory."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, document in zip(paths, (result_json(result()), result_json(result(**SLOW))), strict=True):
        assert report_of(document, "a").scenario == "small"
        path.write_text(json.dumps(document))
    process = reclaimd("drill", "compare", *map(str, paths), "--report", str(tmp_path / "report"))
    assert process.returncode == 0, process.stderr
    assert "10.5s" in process.stdout
    assert_self_contained((tmp_path / "report" / "comparison.html").read_text())
    assert "comparison.svg" in process.stderr
    ElementTree.parse(tmp_path / "report" / "comparison.svg")  # noqa: S314 # our own
    refused = reclaimd_here("drill", "compare", *map(str, paths), "--report", str(paths[0]))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "the comparison could not be written: " in refused.stderr


def test_the_command_refuses_a_file_that_is_not_a_report(tmp_path: Path) -> None:
    """Exit 2 and one sentence, for a file that is not a report and for a single file."""
    path = tmp_path / "a.json"
    path.write_text("{}")
    for arguments, said in (((str(path), str(path)), "not a report of a drill"), ((str(path),), "two reports")):
        process = reclaimd_here("drill", "compare", *arguments, "--report", str(tmp_path / "report"))
        assert process.returncode == 2
        assert said in process.stderr
        assert process.stderr.count("\n") == 1
    assert not (tmp_path / "report").exists()
