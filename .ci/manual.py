"""The manual page and the shell completions, generated from the parsers.

`.ci/manual.py DIRECTORY` writes them; `make check` fails if those in `config` differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eviction.cli.commands import COMMANDS
from eviction.cli.help import CONFIGURATION, all_fields, shared_options
from eviction.cli.parser import command_of, paragraphs, row_of, sentence, value_of
from signals.types import KUBELET_ROLES, KUBELET_SIGNALS
from written import write

PATHS = ("FILE", "DIR")
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
}
MADE_BY = "made by make manual"


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


def bash_completion() -> str:
    """For bash; does not need the package bash-completion."""
    lines = [
        f"# bash completion of reclaimd; {MADE_BY}",
        "_reclaimd() {",
        (
            '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
            ' command="${COMP_WORDS[1]}"'
        ),
        "  COMPREPLY=()",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    COMPREPLY=($(compgen -W '{' '.join(COMMANDS)} --help --version' -- \"$current\"))",
        "    return",
        "  fi",
        '  case "$command $previous" in',
    ]
    for command in COMMANDS:
        for option in options_of(command):
            for spelling in option.spellings:
                if option.choices:
                    words = " ".join(option.choices)
                    lines.append(
                        f"    '{command} {spelling}') COMPREPLY=($(compgen -W '{words}' --"
                        ' "$current")); return ;;'
                    )
                elif option.value == "DIR":
                    lines.append(
                        f"    '{command} {spelling}') COMPREPLY=($(compgen -d -- \"$current\"));"
                        " return ;;"
                    )
                elif option.value == "FILE":
                    lines.append(
                        f"    '{command} {spelling}') COMPREPLY=($(compgen -f -- \"$current\"));"
                        " return ;;"
                    )
                elif option.value:
                    lines.append(f"    '{command} {spelling}') return ;;")
    lines += ["  esac", '  case "$command" in']
    for command in COMMANDS:
        words = " ".join(
            word for option in options_of(command) for word in option.spellings or option.choices
        )
        lines.append(f"    {command}) COMPREPLY=($(compgen -W '{words}' -- \"$current\")) ;;")
    return "\n".join([*lines, "  esac", "}", "complete -F _reclaimd reclaimd", ""])


def zsh_completion() -> str:
    """For zsh, as the function _reclaimd."""
    lines = [
        "#compdef reclaimd",
        f"# zsh completion of reclaimd; {MADE_BY}",
        "_reclaimd() {",
        "  local -a commands=(",
        *(f"    '{command}:{_quoted(text)}'" for command, text in COMMANDS.items()),
        "  )",
        "  if (( CURRENT == 2 )); then",
        "    _describe command commands",
        "    return",
        "  fi",
        "  local command=$words[2]",
        "  words=($words[1] ${words[3,-1]})",
        "  (( CURRENT-- ))",
        "  case $command in",
    ]
    for command in COMMANDS:
        lines += [f"    {command})", "      _arguments \\"]
        lines += [
            f"        {specification} \\"
            for option in options_of(command)
            for specification in _zsh(option)
        ]
        lines[-1] = lines[-1].removesuffix(" \\")
        lines.append("      ;;")
    return "\n".join([*lines, "  esac", "}", '_reclaimd "$@"', ""])


def _zsh(option: Option) -> Iterator[str]:
    action = ""
    if option.value:
        words = (
            f"({' '.join(option.choices)})"
            if option.choices
            else {"FILE": "_files", "DIR": "_files -/"}.get(option.value, "")
        )
        action = f":{option.value.lower()}:{words}"
    text = _quoted(option.text).replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    if not option.spellings:
        yield f"'::{text}{action.removeprefix(':' + option.value.lower())}'"
    for spelling in option.spellings:
        yield f"'{spelling}[{text}]{action}'"


def fish_completion() -> str:
    """For fish."""
    lines = [f"# fish completion of reclaimd; {MADE_BY}", "complete -c reclaimd -f"]
    for command, text in COMMANDS.items():
        lines.append(
            f"complete -c reclaimd -n __fish_use_subcommand -a {command} -d '{_fish(text)}'"
        )
    for command in COMMANDS:
        for option in options_of(command):
            seen = f"'__fish_seen_subcommand_from {command}'"
            if not option.spellings:
                words = " ".join(option.choices)
                lines += (
                    [f"complete -c reclaimd -n {seen} -a '{words}' -d '{_fish(option.text)}'"]
                    if words
                    else []
                )
                continue
            names = " ".join(
                f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
                for spelling in option.spellings
            )
            takes = (
                ""
                if not option.value
                else f" -x -a '{' '.join(option.choices)}'"
                if option.choices
                else " -x"
            )
            takes = " -r -F" if option.value in PATHS else takes
            lines.append(f"complete -c reclaimd -n {seen} {names}{takes} -d '{_fish(option.text)}'")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


def _fish(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def documents() -> Iterable[tuple[str, str]]:
    """Every file: its path below `config/`, and its text."""
    return (
        ("man/reclaimd.1", man_page()),
        ("completions/reclaimd.bash", bash_completion()),
        ("completions/_reclaimd", zsh_completion()),
        ("completions/reclaimd.fish", fish_completion()),
    )


if __name__ == "__main__":
    write("Writes the man page and the shell completions.", documents())
