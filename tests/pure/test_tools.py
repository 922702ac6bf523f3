"""The tests' own tools: a run with `HOUSE=1` is not green if tests were skipped that nothing allows
to be; a mutant is one place of a module, which is a program all the same; of pages with commands
and what they print: what counts as the same, and what is written in its place."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console_pages import Step, steps_of, with_outputs
from tests.mutants import chosen, importers
from tests.repository import ROOT
from tests.rows import rows

pytestmark = pytest.mark.house(
    *("tests/skips.py", "tests/conftest.py", "tests/mutants.py", "tests/broken_rules"),
    "tests/console_pages.py",
)

# ---- skips

TESTS = """
import pytest
def test_alone(): pass
@pytest.mark.skip(reason="no loop device")
def test_marked(): raise AssertionError
def test_fixture(absent): pass
@pytest.fixture
def absent(): pytest.skip("no runc (Debian package runc)")
@pytest.mark.skipif(True, reason="root may read everything")
def test_of_another_user(): raise AssertionError
@pytest.mark.xfail
def test_known(): raise AssertionError
"""
WHOLE = "import pytest\npytest.importorskip('no_such_module', reason='not installed')\n"
USUAL = "-q -p tests.skips -p no:cacheprovider --continue-on-collection-errors"


def outcomes(directory: Path, **variables: str) -> tuple[int, str]:
    """The exit status of a run of these tests, and pytest's last line."""
    (directory / "test_some.py").write_text(TESTS)
    (directory / "test_whole.py").write_text(WHOLE)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *USUAL.split(), str(directory)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(run.stdout, run.stderr)  # shown if a test fails: what ended pytest before its last line
    return run.returncode, run.stdout.strip().splitlines()[-1].partition(" in ")[0]


@rows("""
    variables                                         | code | said                                           | what
    {}                                                | 0    | 1 passed, 4 skipped, 1 xfailed                 | a skip is a skip, as everywhere
    {HOUSE: "1"}                                      | 1    | 1 passed, 1 skipped, 1 xfailed, 3 errors       | a mark, a fixture and a file; what root cannot test is allowed
    {HOUSE: "1", ALLOW_SKIPS: no loop *;not installed} | 1   | 1 passed, 3 skipped, 1 xfailed, 1 error        | patterns, and one of three is not named
    {HOUSE: "1", ALLOW_SKIPS: no *;not installed}     | 0    | 1 passed, 4 skipped, 1 xfailed                 | each is named
""")
def test_with_house_a_skip_that_nothing_allows_fails(
    tmp_path: Path, variables: dict[str, str], code: int, said: str
) -> None:
    """`ALLOW_SKIPS` names more that are allowed."""
    assert outcomes(tmp_path, **variables) == (code, said)


# ---- mutants


def test_the_same_seed_chooses_the_same_and_each_is_a_program() -> None:
    """Of one room."""
    first = chosen(40, 1, ["signals"])
    assert first == chosen(40, 1, ["signals"]) != chosen(40, 2, ["signals"])
    assert len({mutant.kind for mutant in first}) > 5
    for mutant in first:
        text = (ROOT / mutant.file).read_bytes()
        ast.parse(text[: mutant.start] + mutant.new.encode() + text[mutant.end :])


def test_tests_that_import_a_module_come_first_the_pure_ones_before_others() -> None:
    """By its full name."""
    found = importers("signals/interval.py")
    assert "tests/pure/signals/test_interval.py" in found
    assert found == sorted(found, key=lambda path: not path.startswith("tests/pure"))


# ---- pages

PAGE = """\
Words.

```console
# look
first of 12
…
last, 3.5MiB
# go on
```

```yaml
# not: a command
```

```console
$ make
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Three commands in two blocks."""
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_commands_are_read_with_what_they_are_shown_to_print(page: Path) -> None:
    """Only from blocks of the console."""
    assert steps_of(page) == [
        Step("# ", "look", ("first of 12", "…", "last, 3.5MiB")),
        Step("# ", "go on", ()),
        Step("$ ", "make", ()),
    ]


@rows("""
    shown                          | printed                                        | same | what
    first of 12 / … / last, 3.5MiB | first of 7 / one / two / last, 4KiB            | yes  | its ends
    first of 12 / … / last, 3.5MiB | first of 7 / one / two / last,  4KiB           | yes  | in columns
    first of 12 / … / last, 3.5MiB | first of 7 / last, 4KiB                        |      | one line at least is left out
    first of 12 / … / last, 3.5MiB | second of 7 / one / last, 4KiB                 |      | another begin
    first of 12 / … / last, 3.5MiB | first of 7 / one / last, 4KiB / beyond         |      | another end
    first of 12 / … / last, 3.5MiB |                                                |      | nothing
    head / … / b / c / … / tail    | head / a / b / c / d / tail                    | yes  | lines between two marks
    head / … / b / c / … / tail    | head / a / x / b / c / d / tail                | yes  | anywhere
    head / … / b / c / … / tail    | head / a / b / x / c / d / tail                |      | following each other
    head / … / b / c / … / tail    | head / a / c / b / d / tail                    |      | in their order
    head / … / b / c / … / tail    | head / b / c / d / tail                        |      | with a line before them
    head / … / b / c / … / tail    | head / a / b / c / tail                        |      | and one after them
    head / … / b / c / … / tail    | head / a / b / c / d                           |      | another end
    head / … / b / c / … / tail    | head / tail                                    |      | none of them
    NOTHING                        | NOTHING                                        | yes  | no line
    NOTHING                        | a line                                         |      | a line in place of none
    NOTHING                        |                                                |      | an empty line, too
    2026-11-23T03:04:26Z  12.5MiB  | 2027-01-02T13:14:15Z 7B                        | yes  | times and amounts
    pod 6e1b7a4e-8f0c-5c0a-9d58-0c2fd1a3a111 | pod 11111111-2222-3333-4444-555555555555 | yes | UIDs
    sha256:0123456789abcdef        | sha256:fedcba9876543210                        | yes  | digests
    reclaimd-0.1.0-linux_x86_64-cp311.tar.gz | reclaimd-0.2.0-linux_aarch64-cp313.tar.gz | yes | platforms
    took 12ms                      | took 1m3.5s                                    | yes  | durations
    removed 1 object  interval     | removed 12 objects  watch                      | yes  | what a pass was begun by
    removed 2 images               | removed 2 containers                           |      | another word
    imagefs.available              | imagefs.inodesFree                             |      | another signal
    DiskFull                       | Diskfull                                       |      | another case
""")
def test_an_output_is_compared_by_what_is_shown_of_it(shown: str, printed: str, same: bool) -> None:
    """What stands before `…` is the first, what stands behind it the last, and `…` is one line at
    least. What varies from run to run is masked; another word is another output."""
    lines, others = ((each.split(" / ") if each != "NOTHING" else []) for each in (shown, printed))
    assert Step("# ", "look", tuple(lines)).is_what_was(others) is same


def test_lines_between_two_marks_are_written_anew() -> None:
    """From the same first line; a page that can no longer be kept as it is says why."""
    step = Step("# ", "look", ("…", "item 1", "old", "…"))
    assert step.shortened(["a", "item 2", "new", "b"]) == ("…", "item 2", "new", "…")
    with pytest.raises(ValueError, match="look does not print: item 1"):
        step.shortened(["a", "b", "c"])


def test_a_page_is_written_anew_as_short_as_it_was(page: Path) -> None:
    """What stands outside the blocks stays, and a page that has just been
    written is what was printed.
    """
    outputs = [["first of 2", "b", "c", "last, 1MiB"], ["more"], ["made"]]
    page.write_text(with_outputs(page, outputs))
    assert page.read_text() == PAGE.replace("first of 12", "first of 2").replace(
        "3.5MiB", "1MiB"
    ).replace("# go on\n", "# go on\nmore\n").replace("$ make\n", "$ make\nmade\n")
    assert all(
        step.is_what_was(printed) for step, printed in zip(steps_of(page), outputs, strict=True)
    )
