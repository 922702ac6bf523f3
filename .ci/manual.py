"""The manual page and the shell completions, generated from the parsers: the latter by shtab.

`.ci/manual.py DIRECTORY` writes them; `make check` fails if those in `config` differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import shtab

from eviction.cli.commands import COMMANDS
from eviction.cli.help import CONFIGURATION, all_fields, shared_options
from eviction.cli.parser import command_of, paragraphs, row_of, sentence, value_of
from eviction.drill.scenario import library
from signals.types import KUBELET_ROLES, KUBELET_SIGNALS
from written import write

EXITS = (
    ("0", "success: nothing under pressure, relieved, or nothing found"),
    ("1", "pressure remains, a threshold is met, something was found, or an expectation failed"),
    (
        "2",
        (
            "usage or configuration, with one sentence that names the file, the field and what is"
            " allowed"
        ),
    ),
    ("3", "the runtime or the daemon cannot be reached"),
    ("4", "a reading is unavailable"),
    ("6", "an operator has paused removals, so reclaim did nothing although there is pressure"),
    ("71", "threads or descriptors that a pass needs cannot be created"),
    ("74", "the output cannot be written; what was done stays done"),
    ("75", "another instance holds the node"),
)
ENVIRONMENT = (
    ("CONTAINER_RUNTIME_ENDPOINT, IMAGE_SERVICE_ENDPOINT", "the sockets, unless flags name them"),
    ("RECLAIMD_CONFIG", "the configuration file, unless --config names one"),
    (
        "KUBELET_HEALTHZ_ENDPOINT",
        "where the kubelet serves /healthz; overrides the configuration file",
    ),
    ("NODE_NAME", "the name of the Node in events; overrides the configuration file"),
    ("NO_COLOR", "no colours"),
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "set by systemd, see sd_notify(3)"),
)
PLACES = (
    ("/etc/reclaimd/reclaimd.yaml", "the configuration, unless another file is named"),
    ("/etc/reclaimd/reclaimd.conf.d/*.conf", "drop-ins, in the order of their names"),
    ("/var/lib/kubelet/config.yaml", "the kubelet's configuration, only read"),
    ("/run/reclaimd/control.sock", "the socket on which commands reach the daemon"),
    (
        "/var/lib/reclaimd/images.json",
        "when each image was first seen and last used, and which are gone",
    ),
    ("/var/lib/reclaimd/images.json.pause", "a pause, so that it outlives the daemon"),
    ("/var/lib/reclaimd/history", "every pass and every removal of the last weeks"),
)
USUAL = {  # values of an option or argument; a configuration may have more
    "SIGNAL": KUBELET_SIGNALS,
    "FILESYSTEM": KUBELET_ROLES,
    "TOPIC": (*COMMANDS, CONFIGURATION),
    "SCENARIO": tuple(library()),
}


def printed_by(name: str, command: str) -> Any:
    """Completed by what a command prints; by shtab alone, zsh would run it once, as it loads the
    file."""
    known: Any = shtab.cmd(command)
    function = f'_reclaimd_{name}() {{ compadd -- ${{(f)"$({command})"}} }}'
    return {**known, "zsh": f"_reclaimd_{name}", "preamble": {**known["preamble"], "zsh": function}}


COMPLETED = {  # by the shell, or by a command of ours
    "FILE": shtab.FILE,
    "DIR": shtab.DIRECTORY,
    "NAME": printed_by("objects", "reclaimd plan -o yaml 2>/dev/null | sed -n 's/^ *name. //p'"),
    "TEXT": printed_by("removed", "reclaimd history -o name 2>/dev/null | cut -d/ -f2-"),
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option or argument: its spellings (none for an argument), its value,
    and its help text.
    """

    spellings: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    text: str


def options_of(command: str) -> tuple[Option, ...]:
    """The options of a command, in the order of its help."""
    parser, _ = command_of(command)
    return tuple(_option(action) for action in parser._actions)  # noqa: SLF001 # argparse has no other way to list them


def _option(action: argparse.Action) -> Option:
    choices = tuple(str(choice) for choice in action.choices or USUAL.get(str(action.metavar), ()))
    return Option(tuple(action.option_strings), value_of(action), choices, row_of(action)[1])


def man_page() -> str:
    """reclaimd(1)."""
    lines = [
        '.TH RECLAIMD 1 "" "reclaimd" "System administration"',
        ".SH NAME",
        r"reclaimd \- relieves a Kubernetes node whose disk is filling up",
        ".SH SYNOPSIS",
        r".B reclaimd",
        r".I COMMAND",
        r"[\fIOPTION\fR]...",
        ".SH DESCRIPTION",
        (
            "Watches the kubelet's disk pressure signals and, when one crosses its threshold, runs"
            " the kubelet's own"
        ),
        (
            "reclaim functions over CRI: remove dead containers, remove unused images. It stops"
            " when the disk is relieved."
        ),
        ".SH COMMANDS",
    ]
    for command, text in COMMANDS.items():
        parser, _ = command_of(command)
        lines += [".SS " + command, _roff(sentence(text)), *_options(parser.groups()[""])]
        lines += [
            line
            for paragraph in paragraphs(parser.epilog or "")
            for line in (".PP", _roff(paragraph))
        ]
    lines.append(".SH SHARED OPTIONS")
    for title, actions in shared_options().items():
        lines += [f".SS {title}", *_options(actions)]
    lines += [".SH CONFIGURATION FILE", *_fields()]
    for title, rows in (("EXIT STATUS", EXITS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", PLACES)):
        lines.append(f".SH {title}")
        for word, text in rows:
            lines += [".TP", rf"\fB{_roff(word)}\fR", _roff(text)]
    lines += [".SH SEE ALSO", "kubelet(1), containerd(8), crictl(1), systemd.service(5)"]
    return "\n".join(lines) + "\n"


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    for option in map(_option, actions):
        yield from (".TP", _heading(option), _roff(option.text))


def _fields() -> Iterator[str]:
    """The file with every field: its comments as text, the rest as it is written."""
    for paragraph in all_fields().split("\n\n"):
        lines = paragraph.splitlines()
        told = [
            line.removeprefix("# ")
            for line in lines
            if line.startswith("# ") and not line.startswith("#  ")
        ]
        written = [line for line in lines if line.removeprefix("# ") not in told]
        told = [line for line in told if not line.startswith("yaml-language-server")]  # for editors
        yield from (".PP", _roff(" ".join(told)), ".PP", ".nf", *map(_roff, written), ".fi")


def _heading(option: Option) -> str:
    names = ", ".join(rf"\fB{_roff(spelling)}\fR" for spelling in option.spellings)
    value = rf"\fI{_roff(option.value)}\fR" if option.value else ""
    return f"{names} {value}".strip()


def _roff(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def completions(shell: str) -> str:
    """The script that completes commands, options, and what is known of their values."""
    whole = argparse.ArgumentParser("reclaimd")
    whole.add_argument("--version", action="version", help="the version")
    commands = whole.add_subparsers()
    for command, text in COMMANDS.items():
        own, _ = command_of(command)
        for action in own._actions:  # noqa: SLF001 # as above
            action.choices = action.choices or USUAL.get(str(action.metavar))
            if known := COMPLETED.get(str(action.metavar)):
                action.complete = known  # type: ignore[attr-defined] # where shtab looks
        commands.add_parser(command, help=text, parents=[own], add_help=False)
    return str(shtab.complete(whole, shell)).rstrip() + "\n"


def documents() -> Iterable[tuple[str, str]]:
    """Every file: its path below `config/`, and its text."""
    return (
        ("man/reclaimd.1", man_page()),
        ("completions/reclaimd.bash", completions("bash")),
        ("completions/_reclaimd", completions("zsh")),
        ("completions/reclaimd.fish", completions("fish")),
    )


if __name__ == "__main__":
    write("Writes the man page and the shell completions.", documents())
