"""Pages of commands with what they print: what counts as the same, and what
is written in their place.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console_pages import Step, masked, steps_of, with_outputs

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


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        (["first of 7", "one", "two", "last, 4KiB"], True),
        (["first of 7", "one", "two", "last,  4KiB"], True),
        (["first of 7", "last, 4KiB"], False),
        (["second of 7", "one", "last, 4KiB"], False),
        (["first of 7", "one", "last, 4KiB", "beyond"], False),
        ([], False),
    ],
)
def test_a_shortened_output_is_compared_by_its_ends(
    page: Path, printed: list[str], same: bool
) -> None:
    """The lines before `…` are the first, those after it the last, and `…`
    stands for one at least.
    """
    assert steps_of(page)[0].is_what_was(printed) is same


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("head a b c d tail", True),
        ("head a x b c d tail", True),
        ("head a b x c d tail", False),
        ("head a c b d tail", False),
        ("head b c d tail", False),
        ("head a b c tail", False),
        ("head a b c d", False),
        ("head tail", False),
        ("", False),
    ],
)
def test_lines_between_two_marks_follow_each_other(printed: str, same: bool) -> None:
    """Somewhere between the first and the last, with one line at least before and after them."""
    step = Step("# ", "look", ("head", "…", "b", "c", "…", "tail"))
    assert step.is_what_was(printed.split()) is same


def test_lines_between_two_marks_are_written_anew() -> None:
    """From the same first line; a page that can no longer be kept as it is says why."""
    step = Step("# ", "look", ("…", "item 1", "old", "…"))
    assert step.shortened(["a", "item 2", "new", "b"]) == ("…", "item 2", "new", "…")
    with pytest.raises(ValueError, match="look does not print: item 1"):
        step.shortened(["a", "b", "c"])


@pytest.mark.parametrize("printed", [["a line"], [""]])
def test_a_command_that_is_shown_to_print_nothing_prints_nothing(
    page: Path, printed: list[str]
) -> None:
    """Neither words nor an empty line."""
    assert not steps_of(page)[1].is_what_was(printed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-23T03:04:26Z  12.5MiB", "2027-01-02T13:14:15Z 7B"),
        ("pod 6e1b7a4e-8f0c-5c0a-9d58-0c2fd1a3a111", "pod 11111111-2222-3333-4444-555555555555"),
        ("sha256:0123456789abcdef", "sha256:fedcba9876543210"),
        ("reclaimd-0.1.0-linux_x86_64-cp311.tar.gz", "reclaimd-0.2.0-linux_aarch64-cp313.tar.gz"),
        ("took 12ms", "took 1m3.5s"),
        ("removed 1 object  interval", "removed 12 objects  watch"),
    ],
)
def test_amounts_times_ids_and_platforms_are_masked(one: str, other: str) -> None:
    """They vary from run to run."""
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("removed 2 images", "removed 2 containers"),
        ("imagefs.available", "imagefs.inodesFree"),
        ("DiskFull", "Diskfull"),
    ],
)
def test_words_are_not_masked(one: str, other: str) -> None:
    """Another word is another output."""
    assert masked(one) != masked(other)


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
