"""The manual page and the completions are those of this program, and man
and the shells accept them.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from eviction.cli.commands import COMMANDS
from eviction.cli.help import all_fields
from eviction.cli.parser import command_of
from eviction.configuration.file import FIELDS
from manual import documents, options_of
from tests.repository import ROOT

CONFIG = ROOT / "config"


@pytest.mark.parametrize(("name", "text"), documents())
def test_what_is_committed_is_current(name: str, text: str) -> None:
    """`make manual` would change nothing."""
    assert (CONFIG / name).read_text() == text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_manual(command: str) -> None:
    """Under its command, or where those that commands share are; with the exit codes
    and the example of the help.
    """
    own = section_of(f".SS {command}\n").partition(".SS ")[0]
    shared = section_of(".SH SHARED OPTIONS\n")
    assert ".PP\nExit 0" in own
    assert ".PP\nExample: reclaimd " in own
    options = set(command_of(command)[0].groups()[""])
    for option in options_of(command):
        for spelling in set(option.spellings) - {"-h", "--help"}:
            where = own if any(spelling in action.option_strings for action in options) else shared
            assert f"\\fB{spelling}\\fR".replace("-", r"\-") in where, spelling


def test_every_field_of_the_configuration_is_in_the_manual() -> None:
    """In its file, with the words that are said of it there."""
    section = section_of(".SH CONFIGURATION FILE\n").replace(r"\-", "-")
    assert set(re.findall(r"^#?([a-zA-Z]+): ", section, re.MULTILINE)) >= FIELDS.keys()
    told = set(re.findall(r"[\w.:/-]{9,}", all_fields())) - set(
        re.findall(r"[\w.:/-]{9,}", section)
    )
    assert all("schema" in word or "yaml-language-server" in word for word in told), told


def section_of(heading: str) -> str:
    """The text of a section of the manual."""
    return (CONFIG / "man" / "reclaimd.1").read_text().partition(heading)[2].partition("\n.SH ")[0]


def test_man_has_no_complaint() -> None:
    """groff, with all warnings."""
    man = shutil.which("man")
    if man is None:
        pytest.skip("no man (Debian package man-db)")
    command = [man, "--warnings", "-l", str(CONFIG / "man" / "reclaimd.1")]
    process = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"MANWIDTH": "80", "LC_ALL": "C"}
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert "EXIT STATUS" in process.stdout


def completed(*words: str) -> list[str]:
    """The completions that bash offers for the last of these words."""
    script = (
        'source "$1"; shift; COMP_WORDS=(reclaimd "$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ));'
        ' _reclaimd; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", script, "bash", str(CONFIG / "completions" / "reclaimd.bash"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("re",), ["reclaim", "resume", "reload"]),
        (("reclaim", "--dry"), ["--dry-run"]),
        (("reclaim", "--signal", "nodefs.i"), ["nodefs.inodesFree"]),
        (("plan", "-o", ""), ["table", "json"]),
        (("check", "--npd", "--out"), ["--output"]),
        (("ballast", "st"), ["status"]),
        (("help", "con"), ["config", "configuration"]),
        (("check", "--eviction-h"), ["--eviction-hard"]),
        (("nonsense", "--"), []),
    ],
)
def test_bash_completes_commands_options_and_choices(
    words: tuple[str, ...], offered: list[str]
) -> None:
    """Those that begin with the typed text, and nothing else."""
    assert completed(*words) == offered


@pytest.mark.parametrize(("shell", "name"), [("zsh", "_reclaimd"), ("fish", "reclaimd.fish")])
def test_other_shells_can_read_their_completions(shell: str, name: str) -> None:
    """Their own syntax check, where the shell is installed."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} (Debian package {shell})")
    process = subprocess.run(
        [program, "-n", str(CONFIG / "completions" / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
