"""The request to the daemon: its options, and the control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eviction.cli.client import CONTROL_SOCKET, files_seen, read_arguments, seen_in
from eviction.surface import answer
from eviction.surface.answer import OptionRefused
from eviction.surface.check import CheckOptions
from eviction.surface.requests import ReclaimOptions, read_options
from eviction.types import EvictionError
from signals.types import Signal


@pytest.mark.parametrize(
    ("words", "options", "files"),
    [
        ([], {}, {}),
        (["--all", "--dry-run", "--now"], {"all": True, "dry_run": True, "now": True}, {}),
        (["--signal", "x", "--until=1Gi"], {"signal": "x", "until": "1Gi"}, {}),
        (["--room", "1Gi", "--on=imagefs"], {"room": "1Gi", "on": "imagefs"}, {}),
        (["-o", "json"], {"output": "json"}, {}),
        (["--output=table"], {"output": "table"}, {}),
        (["--config", "/a", "--config-dir=/b"], {}, {"config": "/a", "config_dir": "/b"}),
    ],
)
def test_the_options_of_reclaim_are_passed_on(
    words: list[str], options: dict[str, Any], files: dict[str, str]
) -> None:
    """Each in both of its forms, unchecked."""
    assert read_arguments("reclaim", words) == (options, files)


@pytest.mark.parametrize(
    "words",
    [
        ["--standalone"],
        ["--help"],
        ["-ojson"],
        ["-o=json"],
        ["--signal"],
        ["--signal", "--all"],
        ["--all=yes"],
        ["--dry"],
        ["reclaim"],
        ["--root-dir", "/x"],
        ["--eviction-hard", "nodefs.available<1%"],
        ["--all", "--kubelet-config", ""],
    ],
)
def test_with_any_other_argument_the_daemon_is_not_asked(words: list[str]) -> None:
    """Flags of the configuration, abbreviations, mistakes and --standalone: the
    command does the work itself.
    """
    assert read_arguments("reclaim", words) is None


def test_the_options_of_check_are_passed_on_and_no_others() -> None:
    """-o and --npd; options of reclaim are none of check."""
    assert read_arguments("check", ["--npd", "-o", "json", "--config=/a"]) == (
        {"npd": True, "output": "json"},
        {"config": "/a"},
    )
    for words in (
        ["--all"],
        ["--signal", "nodefs.available"],
        ["--standalone"],
        ["--root-dir", "/x"],
        ["--help"],
    ):
        assert read_arguments("check", words) is None


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({}, True),
        ({"npd": True, "output": "json"}, True),
        ({"output": "xml"}, False),
        ({"output": ["json"]}, False),
        ({"signal": "nodefs.available"}, False),
    ],
)
def test_the_daemon_checks_the_options_of_check(given: dict[str, Any], allowed: bool) -> None:
    """Any other option is refused with a sentence."""
    if allowed:
        assert answer.read_options(CheckOptions, "check", given) == CheckOptions(
            given.get("output"), npd=bool(given.get("npd"))
        )
    else:
        with pytest.raises(OptionRefused, match=r"output|signal"):
            answer.read_options(CheckOptions, "check", given)


def socket_by(config: str | None, config_dir: str | None) -> str:
    """The control socket that these files name."""
    _, texts = files_seen(config or "", config_dir or "")
    return seen_in(texts)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("kind: x\n", CONTROL_SOCKET),
        ("controlSocket: /run/a.sock\n", "/run/a.sock"),
        ("# controlSocket: /run/no.sock\ncontrolSocket: '/run/b.sock' # here\n", "/run/b.sock"),
        ('{"apiVersion": "x", "controlSocket": "/run/c.sock"}', "/run/c.sock"),
        ("stateFile: /x # not controlSocket: /run/no.sock\n", CONTROL_SOCKET),
    ],
)
def test_the_control_socket_is_found_in_the_file(tmp_path: Path, text: str, path: str) -> None:
    """As YAML or as JSON, without either being read; the default where it is not named."""
    file = tmp_path / "reclaimd.yaml"
    file.write_text(text)
    assert socket_by(str(file), None) == path


def test_a_later_drop_in_wins(tmp_path: Path) -> None:
    """In the order of their names; other files in the directory are none."""
    for name, path in (
        ("20.conf", "/run/20.sock"),
        ("10.conf", "/run/10.sock"),
        ("99.txt", "/run/no.sock"),
    ):
        (tmp_path / name).write_text(f"controlSocket: {path}\n")
    assert socket_by(None, str(tmp_path)) == "/run/20.sock"


def test_without_a_control_socket_the_daemon_is_not_asked(tmp_path: Path) -> None:
    """An empty field switches the socket off; no message is printed."""
    file = tmp_path / "reclaimd.yaml"
    file.write_text('controlSocket: ""\n')
    assert socket_by(str(file), None) == ""


def test_options_are_read_as_the_command_line_means_them() -> None:
    """Absent ones are off; a mark stands with its signal."""
    assert read_options({}) == ReclaimOptions()
    found = read_options(
        {"signal": "nodefs.available", "until": "1Gi", "all": True, "output": "json"}
    )
    assert (found.signal, found.all, found.as_json) == (Signal.NODEFS_AVAILABLE, True, True)
    assert found.until is not None
    assert found.until.mark(0) == 1 << 30


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"signal": "nodefs"}, "--signal: 'nodefs' is none of nodefs.available, "),
        ({"signal": ["nodefs.available"]}, "--signal: "),
        ({"until": "1Gi"}, "--until sets the mark of the signal named by --signal"),
        ({"signal": "nodefs.available", "until": "much"}, "until"),
        ({"output": "xml"}, "--output: 'xml' is neither table nor json"),
        ({"force": True}, "force: not an option of reclaim"),
    ],
)
def test_an_invalid_option_is_refused_with_a_sentence(given: dict[str, Any], sentence: str) -> None:
    """One sentence names the option and what is allowed."""
    with pytest.raises(EvictionError, match=r".") as refusal:
        read_options(given)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("width", [0, -1, "80", True, 80.0])
def test_an_invalid_width_is_refused(width: object) -> None:
    """A width is a number of columns above 0."""
    with pytest.raises(OptionRefused, match="width"):
        read_options({"width": width})


def test_the_width_of_the_terminal_is_read() -> None:
    """None means lines of any length."""
    assert read_options({"width": 80}).width == 80
    assert read_options({}).width is None
