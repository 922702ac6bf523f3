"""The page "Write your own reclaim function" can be followed word by word: what it prints is what is beside it."""

from __future__ import annotations

import re
import tomllib

import pytest

from eviction.cli import COMMANDS
from eviction.configuration.strict_yaml import parse_document
from manual import options_of
from reclaim.plugins import ENTRY_POINT_GROUP
from tests.pages import anchors, code_blocks, headings, links, prose, rows_of, section
from tests.plugin_distributions import EXAMPLE
from tests.repository import ROOT

PAGE = EXAMPLE / "README.md"
MODULE = EXAMPLE / "reclaimd_prune_build_cache.py"
ITS_TEST = EXAMPLE / "test_reclaimd_prune_build_cache.py"


def test_what_is_printed_is_the_package() -> None:
    """Its blocks of code, in their order, are the files of the example, from the first line to the last."""
    *parts, its_test = code_blocks(PAGE, "python")
    code = [line for part in parts for line in part.splitlines() if line]
    assert code == [line for line in MODULE.read_text().splitlines() if line]
    assert its_test == ITS_TEST.read_text()
    assert code_blocks(PAGE, "toml") == [(EXAMPLE / "pyproject.toml").read_text()]


def test_it_takes_one_class_and_few_lines() -> None:
    """As its first paragraph says: four lines of configuration, between `name` and `options`."""
    assert len(re.findall(r"^class ", MODULE.read_text(), re.MULTILINE)) == 1
    (configuration,) = code_blocks(PAGE, "yaml")
    entry = configuration.partition("reclaimFunctions:\n")[2].partition("reclaimTable:")[0]
    assert re.findall(r"^ +(?:- )?(\w+):", entry, re.MULTILINE) == ["name", "plugin", "frees", "options"]


def test_its_configuration_names_what_there_is() -> None:
    """The entry point, the distribution, the filesystem and its signals, the options of the class."""
    (text,) = code_blocks(PAGE, "yaml")
    configuration = parse_document(text, "the page")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (function,) = configuration["reclaimFunctions"]
    (filesystem,) = configuration["filesystems"]
    assert function["name"] in project["entry-points"][ENTRY_POINT_GROUP]
    assert function["plugin"] == project["name"]
    assert function["frees"] == filesystem["name"]
    assert function["options"]["directory"] == filesystem["path"]
    signals = {f"{filesystem['name']}.{resource}" for resource in ("available", "inodesFree")}
    assert signals == set(configuration["reclaimTable"]) == set(configuration["evictionHard"])
    assert all(row == [function["name"]] for row in configuration["reclaimTable"].values())


def test_its_links_lead_somewhere() -> None:
    """To files of the repository, and headings in them; no heading comes twice."""
    for link in links(PAGE):
        path, _, heading = link.partition("#")
        target = (PAGE.parent / path).resolve() if path else PAGE
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not heading or heading in anchors(target), link
    assert len(set(headings(PAGE))) == len(headings(PAGE))


def test_its_commands_exist() -> None:
    """And their options."""
    lines = re.findall(r"(?:`|^# )reclaimd ([a-z]+)([^#`\n]*)", PAGE.read_text(), re.MULTILINE)
    assert {command for command, _ in lines} >= {"doctor", "config", "plan", "reclaim"}
    for command, arguments in lines:
        assert command in COMMANDS
        known = {spelling for option in options_of(command) for spelling in option.spellings}
        assert set(re.findall(r"--[a-z-]+", arguments)) <= known, command


def test_it_installs_what_is_beside_it() -> None:
    """From the root of the repository."""
    assert f"pip install --no-deps {EXAMPLE.relative_to(ROOT)}\n" in PAGE.read_text()


@pytest.mark.parametrize("part", [cells[0].strip("`") for cells in rows_of(section(PAGE, "If it is refused"))])
def test_the_sentences_that_it_explains_are_the_programs(part: str) -> None:
    """Each is in the code, as a line break leaves it."""
    assert part in (ROOT / "reclaim" / "plugins.py").read_text()


def test_every_word_for_which_the_example_keeps_a_file_is_its_own_or_told_alike() -> None:
    """None reads as something of the kubelet's."""
    words = set(re.findall(r'"([a-z]+_[a-z_]+)"', MODULE.read_text())) - {"cache_file"}
    assert words == {"too_young", "too_deep", "has_other_links", "not_used_lately", "used_meanwhile"}


def test_what_it_says_in_code_is_there() -> None:
    """Names of the public module, methods, fields."""
    public = (ROOT / "reclaim" / "plugins.py").read_text() + MODULE.read_text()
    for word in ("plan", "check", "remove", "present", "kinds", "eligible_in_seconds", "size_bytes", "data"):
        assert f"`{word}`" in prose(PAGE)
        assert re.search(rf"\b{word}\b", public)
