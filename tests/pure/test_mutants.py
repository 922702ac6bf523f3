"""The mutator: what it changes is one place of a module, which is a program all the same."""

from __future__ import annotations

import ast

import pytest

from tests.mutants import chosen, importers, mutants_of
from tests.repository import ROOT

pytestmark = pytest.mark.house("tests/mutants.py", "tests/broken_rules.py")

MODULE = """
def least(left: int | None, right: int, *, names: list[str]) -> None:
    if left is None or not names:
        return
    found = min(left + 2, right)
    names.append(f"{found:>3}")
    print(found < 0, flush=True)
"""


@pytest.fixture
def changed() -> dict[str, list[str]]:
    """By kind, the module after each mistake."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of("module.py", MODULE.encode()):
        text = MODULE[: mutant.start] + mutant.new + MODULE[mutant.end :]
        assert MODULE[mutant.start : mutant.end] == mutant.old
        found.setdefault(mutant.kind, []).append(ast.unparse(ast.parse(text)))
    return found


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("comparison", "if left is not None or not names:"),
        ("and-or", "if left is None and (not names):"),
        ("not", "if left is None or names:"),
        ("no guard", "if False:"),
        ("arithmetic", "found = min(left - 2, right)"),
        ("off by one", "found = min(left + 3, right)"),
        ("unit", "found = min(left + 2000, right)"),
        ("min-max", "found = max(left + 2, right)"),
        ("no statement", "pass"),
        ("constant", "print(found < 0, flush=False)"),
        ("early return", "return"),
    ],
)
def test_each_kind_changes_one_line(changed: dict[str, list[str]], kind: str, line: str) -> None:
    """The others are as they were."""
    before = ast.unparse(ast.parse(MODULE)).splitlines()
    for text in changed[kind]:
        pairs = zip(before, text.splitlines(), strict=True)
        assert sum(one != other for one, other in pairs) == 1
    assert any(line in map(str.strip, text.splitlines()) for text in changed[kind])


def test_annotations_and_texts_stay(changed: dict[str, list[str]]) -> None:
    """Nobody runs them."""
    for text in (text for texts in changed.values() for text in texts):
        assert "def least(left: int | None, right: int, *, names: list[str]) -> None:" in text
        assert "names.append(f'{found:>3}')" in text or "pass" in text


def test_the_same_seed_chooses_the_same_and_each_is_a_program() -> None:
    """Of the whole product."""
    first = chosen(40, 1)
    assert first == chosen(40, 1) != chosen(40, 2)
    assert len({mutant.kind for mutant in first}) > 5
    for mutant in first:
        text = (ROOT / mutant.file).read_bytes()
        ast.parse(text[: mutant.start] + mutant.new.encode() + text[mutant.end :])


def test_tests_that_import_a_module_come_first_the_pure_ones_before_others() -> None:
    """By its full name."""
    found = importers("signals/interval.py")
    assert "tests/pure/signals/test_interval.py" in found
    assert found == sorted(found, key=lambda path: not path.startswith("tests/pure"))
