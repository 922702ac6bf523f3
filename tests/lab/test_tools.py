"""The tests' own tools: a run with `HOUSE=1` is not green if tests were skipped that nothing allows to
be; of pages with commands and what they print: what counts as the same, and what is written in its
place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console_pages import Step, steps_of, with_outputs
from tests.repository import ROOT
from tests.rows import rows

pytestmark = pytest.mark.house("tests/skips.py", "tests/conftest.py", "tests/console_pages.py")

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


# ---- pages

PAGE = """\
Words.

```console
# look
first of 12
…
item 1
old
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


def test_commands_are_read_with_what_they_print_and_written_anew_as_short(tmp_path: Path) -> None:
    """Only blocks of the console, and what stands outside them stays. A part between two `…` is
    where its first line is."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert steps_of(page) == [
        Step("# ", "look", ("first of 12", "…", "item 1", "old", "…", "last, 3.5MiB")),
        Step("# ", "go on", ()),
        Step("$ ", "make", ()),
    ]
    outputs = [["first of 2", "b", "item 2", "new", "c", "last, 1MiB"], ["more"], ["made"]]
    written = PAGE.replace("12\n", "2\n").replace("item 1\nold", "item 2\nnew")
    written = written.replace("3.5MiB", "1MiB").replace("# go on\n", "# go on\nmore\n")
    assert with_outputs(page, outputs) == written.replace("$ make\n", "$ make\nmade\n")
    with pytest.raises(ValueError, match="look does not print: item 1"):
        with_outputs(page, [["first", "b", "c", "last"]])


@rows("""
    shown                           | printed                              | same | what
    first of 12 / … / last, 3.5MiB  | first of 7 / one / two / last, 4KiB  | yes  | lines before … are the first, those after it the last
    first of 12 / … / last, 3.5MiB  | first of 7 / one / two / last,  4KiB | yes  | however columns are padded
    first of 12 / … / last, 3.5MiB  | first of 7 / last, 4KiB              |      | … stands for one line at least
    first of 12 / … / last, 3.5MiB  | second of 7 / one / last, 4KiB       |      | another first line
    first of 12 / … / last, 3.5MiB  | first of 7 / one / last, 4KiB / more |      | another last line
    first of 12 / … / last, 3.5MiB  |                                      |      | nothing is printed
                                    | a line                               |      | something, though nothing is shown
                                    |                                      |      | an empty line, though nothing is shown
    head / … / b / c / … / tail     | head / a / b / c / d / tail          | yes  | lines between two … follow each other
    head / … / b / c / … / tail     | head / a / b / x / b / c / d / tail  | yes  | where all of them are
    head / … / b / c / … / tail     | head / a / x / b / c / d / tail      | yes  | somewhere
    head / … / b / c / … / tail     | head / a / b / x / c / d / tail      |      | something between them
    head / … / b / c / … / tail     | head / a / c / b / d / tail          |      | the other way round
    head / … / b / c / … / tail     | head / b / c / d / tail              |      | nothing before them
    head / … / b / c / … / tail     | head / a / b / c / tail              |      | nothing after them
    head / … / b / c / … / tail     | head / a / b / c / d                 |      | no end
    head / … / b / c / … / tail     | head / tail                          |      | nothing between
    2026-11-23T03:04:26Z  12.5MiB   | 2027-01-02T13:14:15Z 7B              | yes  | times and amounts vary
    pod 6e1b7a4e-8f0c-5c0a-9d58-0c2fd1a3a111 | pod 11111111-2222-3333-4444-555555555555 | yes | UIDs
    sha256:0123456789abcdef         | sha256:fedcba9876543210              | yes  | digests
    reclaimd-0.1.0-linux_x86_64-cp311.tar.gz | reclaimd-0.2.0-linux_aarch64-cp313.tar.gz | yes | platforms
    took 12ms                       | took 1m3.5s                          | yes  | durations
    removed 1 object  interval      | removed 12 objects  watch            | yes  | counts, and whichever saw it first
    removed 2 images                | removed 2 containers                 |      | words do not vary
    imagefs.available               | imagefs.inodesFree                   |      | nor names
    DiskFull                        | Diskfull                             |      | nor capitals
""")
def test_what_a_page_shows_is_compared_but_for_what_varies_or_is_left_out(
    shown: str, printed: str, same: bool
) -> None:
    """Lines are parted by ` / `."""
    step = Step("# ", "look", tuple(filter(None, shown.split(" / "))))
    assert step.is_what_was(printed.split(" / ")) is same
