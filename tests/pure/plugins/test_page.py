"""The page "Write your own reclaim function" can be followed: what it names is there."""

from __future__ import annotations

import re
import tomllib

import pytest

from eviction.configuration.strict_yaml import parse_document
from reclaim.plugins import ENTRY_POINT_GROUP, METHODS
from tests.pages import code_blocks, words
from tests.plugin_distributions import EXAMPLE
from tests.repository import ROOT

PAGE = EXAMPLE / "README.md"
MODULE = EXAMPLE / "reclaimd_prune_build_cache.py"
ROWS = re.findall(r"^\| ([^|]+) \|", PAGE.read_text().partition("| The message contains | Do |")[2], re.MULTILINE)
REFUSALS = re.findall(r"`([^`]+)`", " ".join(ROWS))


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


def test_it_installs_what_is_beside_it() -> None:
    """From the root of the repository."""
    assert f"pip install --no-deps {EXAMPLE.relative_to(ROOT)}\n" in PAGE.read_text()


def test_it_names_the_whole_protocol() -> None:
    """Each method, and the group of entry points."""
    assert {*METHODS, "kinds", ENTRY_POINT_GROUP} <= words(PAGE)


@pytest.mark.parametrize("part", REFUSALS)
def test_the_sentences_that_it_explains_are_the_programs(part: str) -> None:
    """Each is in the code, as a line break leaves it."""
    assert part in (ROOT / "reclaim" / "plugins.py").read_text()


def test_every_word_for_which_the_example_keeps_a_file_is_its_own_or_told_alike() -> None:
    """None reads as something of the kubelet's."""
    found = set(re.findall(r'"([a-z]+_[a-z_]+)"', MODULE.read_text())) - {"cache_file"}
    assert found == {"too_young", "too_deep", "has_other_links", "not_used_lately", "used_meanwhile"}
