"""The manual page and the completions are those of this program, and man and the shells accept them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from eviction.cli import COMMANDS
from manual import documents, options_of
from tests.repository import ROOT

CONFIG = ROOT / "config"


@pytest.mark.parametrize(("name", "text"), documents())
def test_what_is_committed_is_current(name: str, text: str) -> None:
    """`make manual` would change nothing."""
    assert (CONFIG / name).read_text() == text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_manual(command: str) -> None:
    """Under its command, in the spelling of the help."""
    section = (CONFIG / "man" / "reclaimd.1").read_text().partition(f".SS {command}\n")[2].partition(".SS ")[0]
    for option in options_of(command):
        for spelling in set(option.spellings) - {"-h", "--help"}:
            assert spelling.replace("-", r"\-") in section, spelling


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
        'source "$1"; shift; COMP_WORDS=(reclaimd "$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _reclaimd;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", script, "bash", str(CONFIG / "completions" / "reclaimd.bash"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("re",), ["reclaim", "resume"]),
        (("reclaim", "--dry"), ["--dry-run"]),
        (("reclaim", "--signal", "nodefs.i"), ["nodefs.inodesFree"]),
        (("plan", "-o", ""), ["table", "json"]),
        (("check", "--npd", "--out"), ["--output"]),
        (("ballast", "st"), ["status"]),
        (("nonsense", "--"), []),
    ],
)
def test_bash_completes_commands_options_and_choices(words: tuple[str, ...], offered: list[str]) -> None:
    """Those that begin with the typed text, and nothing else."""
    assert completed(*words) == offered


@pytest.mark.parametrize(("shell", "name"), [("zsh", "_reclaimd"), ("fish", "reclaimd.fish")])
def test_other_shells_can_read_their_completions(shell: str, name: str) -> None:
    """Their own syntax check, where the shell is installed."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} (Debian package {shell})")
    process = subprocess.run(
        [program, "-n", str(CONFIG / "completions" / name)], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")
