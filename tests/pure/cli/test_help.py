"""The help: short, with what a command itself takes, its exit codes and an example; what
all share is in one place.
"""

from __future__ import annotations

import re
import shlex

import pytest

from eviction.cli.commands import COMMANDS
from eviction.cli.help import all_fields, shared_options
from eviction.cli.main import main
from eviction.cli.parser import command_of
from tests.repository import ROOT

ROWS, COLUMNS = 24, 80  # of the smallest terminal that is usual
WITHIN = [("ballast", "create"), ("drill", "--observe")]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints on stdout; it exits with 0, and says nothing on stderr."""
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints on stderr; it exits with 2, and prints nothing on stdout."""
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    return err


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), *WITHIN], ids=" ".join)
def test_every_help_fits_on_the_smallest_terminal(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """24 lines of 80 columns."""
    lines = printed(capsys, *words, "--help").splitlines()
    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_has_what_is_the_commands_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its options in a row with a text, and none of those that all
    commands share but a hint.
    """
    text = printed(capsys, command, "--help")
    parser, _ = command_of(command)
    assert text.splitlines()[0].startswith(f"usage: reclaimd {command} [OPTION ...]")
    for action in parser.groups()[""]:
        assert action.help, action.dest
        for spelling in action.option_strings:
            assert (
                re.search(rf"^  (-\w, )?{spelling}\b", text, re.MULTILINE)
                or f"  {spelling}, " in text
            ), spelling
    assert "--eviction-hard" not in text
    assert ("reclaimd help configuration" in text) == (
        "--eviction-hard" in parser._option_string_actions or command == "help"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_ends_with_exit_codes_and_an_example_that_can_be_typed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of that command. What belongs to one of two commands in one module is said for both."""
    end = printed(capsys, command, "--help").rpartition("\n\n")[2]
    assert re.match(r"Exit 0\b.*; 2 .*Example: ", " ".join(end.split())), end
    examples = [
        part.partition("reclaimd ")[2]
        for part in re.split(", (?:or|and later) ", end.partition("Example: ")[2])
    ]
    assert command in [example.split()[0] for example in examples]
    for name, *words in map(shlex.split, examples):
        command_of(name)[0].parse_args(words)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`reclaimd help COMMAND` and `reclaimd COMMAND --help`; without a command, that of all."""
    assert printed(capsys, "help", command) == printed(capsys, command, "--help")
    assert f"\n  {command} " in printed(capsys, "help")
    assert printed(capsys, "help") == printed(capsys, "--help") == printed(capsys, "-h")


def test_the_configuration_is_explained_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    """Every option that commands share, in lines that fit, and the file with
    every field, as it is.
    """
    text = printed(capsys, "help", "configuration")
    options, _, file = text.partition("The file, with every field:\n\n")
    assert file == all_fields() == (ROOT / "config" / "all-fields.yaml").read_text()
    assert max(map(len, options.splitlines())) <= COLUMNS
    spelled = {
        spelling
        for actions in shared_options().values()
        for action in actions
        for spelling in action.option_strings
    }
    assert {"--config", "--eviction-hard", "--logging-format", "-v"} <= spelled
    assert {word.strip(",") for word in options.split() if word.startswith("-")} == spelled


def test_without_a_command_it_says_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    """What removes nothing, then the daemon, in a few lines; each command is one."""
    text = refused(capsys)
    assert len(text.splitlines()) < ROWS // 2
    assert max(map(len, text.splitlines())) <= COLUMNS
    steps = [
        "reclaimd doctor",
        "reclaimd plan",
        "reclaimd reclaim --dry-run",
        "systemctl enable --now reclaimd",
    ]
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    for line in re.findall(r"^  reclaimd (.*?)  ", text, re.MULTILINE):
        name, *words = line.split()
        command_of(name)[0].parse_args(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("plna",), "reclaimd: unknown command 'plna'; did you mean plan? (see reclaimd --help)\n"),
        (("xyz",), "reclaimd: unknown command 'xyz' (see reclaimd --help)\n"),
        (("--verbose",), "reclaimd: unknown command '--verbose' (see reclaimd --help)\n"),
        (
            ("help", "configuratoin"),
            "reclaimd: unknown topic 'configuratoin'; did you mean configuration or config?\n",
        ),
        (("help", "xyz"), "reclaimd: unknown topic 'xyz'; reclaimd --help lists the commands\n"),
        (
            ("plan", "--signl=x"),
            (
                "reclaimd plan: unknown argument '--signl'; did you mean --signal? (see reclaimd"
                " plan --help)\n"
            ),
        ),
        (
            ("check", "--eviction-hart", "x"),
            (
                "reclaimd check: unknown argument '--eviction-hart'; did you mean --eviction-hard"
                " or --eviction-soft? (see reclaimd check --help)\n"
            ),
        ),
        (
            ("install", "--systemd", "--remove"),
            (
                "reclaimd install: there is no --remove any more: reclaimd uninstall stops the service and"
                " removes what was placed (see reclaimd install --help)\n"
            ),
        ),
        (
            ("install", "--purge", "--systemd", "--root", "/srv/look"),
            (
                "reclaimd install: there is no --purge any more: reclaimd uninstall --purge deletes"
                " configuration, records and ballast too (see reclaimd install --help)\n"
            ),
        ),
        (
            ("plan", "--leaks"),
            (
                "reclaimd plan: there is no --leaks any more: the function"
                " CollectContainerdGarbage collects what belongs to nobody in containerd;"
                " crio check --repair does in CRI-O (see reclaimd plan --help)\n"
            ),
        ),
        (
            ("plan", "--pods"),
            (
                "reclaimd plan: there is no --pods any more: the kubelet ranks pods; kubectl"
                " describe node shows their requests (see reclaimd plan --help)\n"
            ),
        ),
        (
            ("status", "--history", "-o", "json"),
            (
                "reclaimd status: there is no --history any more: reclaimd history shows the passes"
                " and removals that were kept (see reclaimd status --help)\n"
            ),
        ),
        (
            ("drill", "compare", "a.json", "b.json"),
            (
                "reclaimd drill: there is no compare any more: each drill writes its figures to a"
                " JSON document, to compare with jq (see reclaimd drill --help)\n"
            ),
        ),
        (
            ("doctor", "x"),
            (
                "reclaimd doctor: unknown argument 'x'; its own options are --output (see reclaimd"
                " doctor --help)\n"
            ),
        ),
    ],
)
def test_an_unknown_word_is_refused_with_the_nearest(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most three; if none is near, where they are listed."""
    assert refused(capsys, *words) == sentence
