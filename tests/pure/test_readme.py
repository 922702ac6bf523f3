"""What the READMEs and the annotated configuration say is what the code does, and every page can be followed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eviction.cli import COMMANDS
from eviction.cli.manual import options_of
from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.file import ConfigurationFile
from eviction.decision.reclaim_table import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES, RECLAIM_TABLE
from eviction.drill.report.timeline import NAMESPACE
from eviction.drill.scenario.reader import find_scenario
from eviction.pod_eviction import ranking
from eviction.reporting import pod_evictions
from eviction.reporting.attribution import About
from eviction.reporting.explain import REASONS
from eviction.reporting.filesystem_facts import TRAITS
from reclaim import ballast, programs, rotated_logs
from reclaim.containerd_garbage import UNREFERENCED
from reclaim.events import EventReason
from reclaim.types import Reason
from signals.types import KUBELET_ROLES, KUBELET_SIGNALS, FilesystemRole, FsLayout, Signal
from tests.pages import (
    EVICTION,
    FIRST_HOUR,
    INSTALLATION,
    PAGES,
    RECLAIM,
    SAFETY_CASE,
    SIGNALS,
    anchors,
    headings,
    links,
    name_of,
    prose,
    rows_of,
    section,
)
from tests.repository import ROOT

CONFIGURATION = ROOT / "config" / "reclaimd.yaml"
LARGEST_FIRST_PAGE = 14 * 1024
LONGEST_DECISION = 5
WRITTEN = (*PAGES, SAFETY_CASE)
TEXT = "\n".join(page.read_text() for page in WRITTEN)


# ---- the pages themselves


def test_the_first_page_is_short() -> None:
    """Who only installs reads one page of at most 14 KiB."""
    assert len(INSTALLATION.read_bytes()) <= LARGEST_FIRST_PAGE


def test_the_first_page_names_the_five_others() -> None:
    """In its table, each once; and there is no further README in a package."""
    named = {link for cells in rows_of(section(INSTALLATION, "More")) for link in re.findall(r"\]\((.+?)\)", cells[0])}
    assert named == {name_of(page) for page in PAGES if page != INSTALLATION}
    packages = ("signals", "reclaim", "eviction", "tests")
    assert {page for package in packages for page in (ROOT / package).rglob("README.md")} == set(PAGES) - {INSTALLATION}


@pytest.mark.parametrize("page", [*WRITTEN, FIRST_HOUR], ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and where it names a heading, to one that is there."""
    targets = [link for link in links(page) if not link.startswith("https://")]
    assert targets
    for link in targets:
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_every_path_exists(page: Path) -> None:
    """A path in code that begins like one of ours, and the name of a test module, is that of a file or a folder."""
    words = re.findall(r"`([\w./-]+)`", prose(page))
    for word in words:
        if word.split("/")[0] in {"config", "signals", "reclaim", "eviction", "tests"} and "/" in word:
            assert (ROOT / word).exists(), word
        elif re.fullmatch(r"test_\w+\.py", word):
            assert list((ROOT / "tests").rglob(word)), word


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_no_heading_comes_twice(page: Path) -> None:
    """A link to a heading leads to one place."""
    assert [title for title, count in Counter(headings(page)).items() if count > 1] == []


def decisions() -> list[tuple[str, list[str]]]:
    """Each decision: its heading, and its lines, those of a table of measurements aside."""
    texts = [text.splitlines() for text in section(EVICTION, "Decisions").split("\n### ")[1:]]
    return [(title, [line for line in lines if line and not line.startswith("|")]) for title, *lines in texts]


def test_there_are_decisions() -> None:
    """At least as many as were made before the first release."""
    assert len(decisions()) >= 25


@pytest.mark.parametrize(("title", "lines"), decisions(), ids=lambda value: str(value)[:40])
def test_a_decision_is_short_and_has_a_price(title: str, lines: list[str]) -> None:
    """At most five lines of at most 132 characters below its heading; the price is said."""
    assert len(lines) <= LONGEST_DECISION, title
    assert all(len(line) <= 132 for line in lines)
    assert "Price: " in " ".join(lines).replace("\n", " ")


# ---- what they say of the code


def test_the_list_of_reasons_is_that_of_the_code() -> None:
    """Neither has a word that the other has not, none stands there twice, and each has a sentence for people."""
    documented = [word for cells in rows_of(section(RECLAIM, "Reasons")) for word in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(documented) == sorted(REASONS)
    assert set(REASONS) == {*Reason, *ballast.REASONS, *programs.REASONS, *rotated_logs.REASONS, UNREFERENCED}


def test_the_list_of_reasons_of_an_eviction_is_that_of_the_code() -> None:
    """In its order, and each has words for people."""
    table = rows_of(section(EVICTION, "Whom the kubelet would evict"))
    assert [cells[0].strip("`") for cells in table] == list(pod_evictions.REASONS) == list(ranking.Reason)


@pytest.mark.parametrize("reason", EventReason)
def test_every_reason_of_an_event_is_documented(reason: EventReason) -> None:
    """Where the events are."""
    assert f"`{reason}`" in section(EVICTION, "Deployment")


def test_the_table_of_commands_is_that_of_the_code() -> None:
    """Every command that the parser knows has a row, and no other."""
    rows = rows_of(section(EVICTION, "Commands"))
    assert sorted(re.findall(r"`reclaimd (\w+)", cells[0])[0] for cells in rows) == sorted(COMMANDS)


@pytest.mark.parametrize("signal", KUBELET_SIGNALS)
def test_every_signal_is_documented(signal: Signal) -> None:
    """In the table of what it counts."""
    assert f"`{signal}`" in section(SIGNALS, "Signals")


def test_the_table_of_what_can_jump_is_that_of_the_code() -> None:
    """Every type that is known has a row, and no other has."""
    documented = [re.findall(r"`(\w+)`", cells[0]) for cells in rows_of(section(SIGNALS, "Signals"))]
    assert {kind for kinds in documented for kind in kinds if kind in TRAITS} == set(TRAITS)


def test_every_remark_is_documented() -> None:
    """Each word that a remark is about, and no other."""
    rows = rows_of(section(RECLAIM, "Where the bytes are"))
    assert [word for cells in rows for word in re.findall(r"`(\w+)`", cells[0])] == list(About)


def test_the_table_of_layouts_is_that_of_the_code() -> None:
    """Each layout has a row."""
    documented = [cells[0].strip("`") for cells in rows_of(section(SIGNALS, "Layouts"))]
    assert documented == list(FsLayout)


@pytest.mark.parametrize("role", KUBELET_ROLES)
def test_the_table_of_rows_is_that_of_the_code(role: FilesystemRole) -> None:
    """The page's row of each filesystem reads as the literal table does."""
    letters = {DELETE_ALL_UNUSED_CONTAINERS: "C", DELETE_UNUSED_IMAGES: "I"}
    cells = [", ".join(letters[f] for f in RECLAIM_TABLE[role, layout]) or "(none)" for layout in FsLayout]
    table = section(EVICTION, "The table")
    assert f"| `{role}.available`, `{role}.inodesFree` | {' | '.join(cells)} |" in table
    assert all(f"{letter} = `{function}`" in table for function, letter in letters.items())


def test_the_annotated_configuration_is_the_defaults() -> None:
    """Loading the annotated file gives what no file gives."""
    annotated, defaults = load(str(CONFIGURATION), {}, {}), load(None, {}, {})
    assert replace(annotated, origins={}) == replace(defaults, origins={})


def test_the_annotated_configuration_has_every_field() -> None:
    """A field that the refusal of an unknown one lists stands in the annotated file."""
    fields = set(re.findall(r"^#?([a-zA-Z]+):", CONFIGURATION.read_text(), re.MULTILINE))
    with pytest.raises(ConfigurationError) as refusal:
        load(None, {}, {"noSuchField": 1})
    allowed = str(refusal.value).partition("allowed are ")[2].split(", ")
    assert fields == set(allowed)


@pytest.mark.regression
def test_the_annotated_configuration_changes_nothing_that_is_inherited(tmp_path: Path) -> None:
    """Who installs it as it is has the kubelet's values: a field that is inherited is a comment, with its default."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nimageMinimumGCAge: 7m\n"
        "imageMaximumGCAge: 9h\nimageGCHighThresholdPercent: 71\nimageGCLowThresholdPercent: 61\npodLogsDir: /logs\n"
        "containerRuntimeEndpoint: unix:///other.sock\nimageServiceEndpoint: unix:///images.sock\nhealthzPort: 1\n"
        "evictionPressureTransitionPeriod: 11m\n"
    )
    inherited = {"kubeletConfig": str(kubelet)}
    annotated, bare = load(str(CONFIGURATION), {}, inherited), load(None, {}, inherited)
    assert replace(annotated, origins={}) == replace(bare, origins={})
    commented = dict(re.findall(r"^#([a-zA-Z]+): (.*)$", CONFIGURATION.read_text(), re.MULTILINE))
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    assert {name: text.strip('"') for name, text in commented.items()} == {n: str(defaults[n]) for n in commented}


def test_the_table_of_the_configuration_has_every_field_and_its_default() -> None:
    """Neither has a field that the other has not; the default of a row of one field is the code's."""
    rows = rows_of(section(EVICTION, "Configuration"))
    named = [(re.findall(r"`(\w+)`", cells[0]), re.findall(r"`([^`]*)`", cells[1]) or [cells[1]]) for cells in rows]
    fields = ConfigurationFile.model_fields.keys() - {"apiVersion", "kind"}
    assert sorted(name for names, _ in named for name in names) == sorted(fields)
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    for names, documented in named:
        if len(names) == len(documented) and names != ["kubeletConfig"]:
            values = [defaults[name] for name in names]
            assert documented == [
                str(value).lower() if isinstance(value, bool) else "" if value in (None, [], {}) else str(value)
                for value in values
            ]


def test_every_option_in_the_pages_is_one() -> None:
    """Of one of our commands, or of the few others that the pages show."""
    ours = {spelling for command in COMMANDS for option in options_of(command) for spelling in option.spellings}
    others = {"--now"}  # of systemctl enable
    shown = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", TEXT))
    assert "--standalone" in shown
    assert shown - others <= ours


def test_every_option_is_in_a_page() -> None:
    """But for the one whose short form, `-o`, is shown."""
    ours = {spelling for command in COMMANDS for option in options_of(command) for spelling in option.spellings}
    shown = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", TEXT))
    assert {option for option in ours if option.startswith("--")} - shown == {"--output"}


def test_every_command_line_in_the_pages_begins_with_a_command() -> None:
    """`reclaimd x` names a subcommand that exists."""
    shown = set(re.findall(r"(?:`|^# |bin/)reclaimd ([a-z]+)", TEXT, re.MULTILINE))
    assert shown == set(COMMANDS)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:`|^[#$] )make ([a-z-]+)", TEXT, re.MULTILINE))))
def test_every_target_of_make_exists(target: str) -> None:
    """`make x` names one."""
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def sources() -> str:
    """All of the product's code, with what a line break cuts apart in a text joined."""
    code = "".join(
        path.read_text() for room in ("signals", "reclaim", "eviction") for path in (ROOT / room).rglob("*.py")
    )
    return re.sub(r'"\s*\n\s*f?"', "", code)


def test_what_the_troubleshooting_quotes_is_a_message_of_the_program() -> None:
    """Every text in quotes is the beginning or a part of one that the code has; every word in code is one of ours."""
    text, code = section(EVICTION, "Troubleshooting"), sources()
    quotes = re.findall(r'"([^"]+)"', re.sub(r"`[^`]*`", "", text))
    assert len(quotes) >= 10
    assert [quote for quote in quotes if quote not in code] == []
    rules = (ROOT / "config" / "prometheus" / "rules.yaml").read_text()
    words = set(re.findall(r"`([a-z_]+|[A-Z]\w+)`", text))
    known = {str(reason) for reason in Reason} | {"statvfs", "events", "not_enough"} | set(COMMANDS)
    assert {word for word in words if word not in known and f"alert: {word}" not in rules} <= set(
        ConfigurationFile.model_fields
    )


def test_the_picture_is_small_and_of_the_scenario_that_make_run_runs() -> None:
    """As `make picture` draws it: one sheet, nothing loaded from anywhere, everything held."""
    svg = (ROOT / "config" / "pictures" / "pressured-node.svg").read_text()
    assert len(svg) < 32 * 1024
    shown = [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{{{NAMESPACE}}}text")]  # noqa: S314 # our own
    scenario = find_scenario("pressured-node")
    assert shown[:2] == [scenario.name, scenario.why]
    assert shown[2].startswith("everything held")
    assert not re.search(r"https?://|url\(", svg.replace(NAMESPACE, ""))


# ---- the safety case

# How many hazards each class has that the design began with. A: something is removed that must stay. B: removal goes
# wrong. C: the agent itself fails or misleads. A row that was found later has a letter behind the number: A9b.
HAZARDS = {"A": 16, "B": 11, "C": 10}


def hazards() -> dict[str, tuple[str, str]]:
    """The rows of the safety case, by their number: hazard and guard."""
    rows = rows_of(section(RECLAIM, "Safety case"))
    return {re.findall(r"^\[(\w+)\]", cells[0])[0]: (cells[1], cells[2]) for cells in rows}


def held_by() -> dict[str, list[str]]:
    """The tests that hold each guard, by the number of its row."""
    sections = SAFETY_CASE.read_text().split("\n## ")[1:]
    return {text.splitlines()[0]: re.findall(r"^\* `(\w+)`$", text, re.MULTILINE) for text in sections}


def test_the_safety_case_answers_every_hazard() -> None:
    """Every number of every class has a row, and every row one of them; each has a hazard and a guard."""
    answered = {number.rstrip("bcdefg") for number in hazards()}
    assert answered == {f"{letter}{number + 1}" for letter, count in HAZARDS.items() for number in range(count)}
    assert all(hazard and guard for hazard, guard in hazards().values())


def test_every_row_of_the_safety_case_links_to_its_tests() -> None:
    """The number is the link, the headings there come in the same order, and none is without a row."""
    linked = re.findall(
        r"^\| \[(\w+)\]\(\.\./tests/safety_case\.md#(\w+)\)", section(RECLAIM, "Safety case"), re.MULTILINE
    )
    assert [(number, number.lower()) for number in hazards()] == linked
    assert list(held_by()) == list(hazards())


@pytest.fixture(scope="module")
def tests_of_the_tree() -> str:
    """All test modules as one text."""
    return "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))


@pytest.mark.parametrize("number", held_by())
def test_every_guard_is_held_by_tests_that_exist(number: str, tests_of_the_tree: str) -> None:
    """At least one; each name is that of exactly one test function, which has a story of its own."""
    names = held_by()[number]
    assert names
    for name in names:
        found = re.findall(rf'^def {name}\([^"]*?\) -> None:\n    """\S', tests_of_the_tree, re.MULTILINE)
        assert len(found) == 1, f"{name}: {len(found)} tests have this name"
        assert len(re.findall(rf"^def {name}\(", tests_of_the_tree, re.MULTILINE)) == 1, name
