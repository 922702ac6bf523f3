"""Asks the running daemon to do the work of `reclaimd reclaim` or `reclaimd check`.

The daemon has everything loaded and connected, so it sends its first removal before a new process
has imported its modules. The command does the work itself (`eviction.cli.reclaim`,
`eviction.cli.check`) if there is no daemon, if the daemon's configuration differs, if it does not
answer within a second or misses ten heartbeats, and for options that only the command understands.
Options are passed on unchecked; the daemon or the command checks them.

Only a small part of the standard library is imported: argparse and typing would each take
half as long as all the rest.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterable, Sequence

from eviction.cli import write_out
from eviction.cli.progress import StatusLine, mention
from eviction.configuration.fingerprint import Fingerprint, configuration_files, fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTROL_SOCKET = "/run/reclaimd/control.sock"  # the default of `controlSocket`
FILES_SECONDS = 2.0
ACCEPT_SECONDS = 1.0  # for the first line of the answer
SILENCE_SECONDS = 10.0  # for each further line: ten heartbeats of the daemon
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_FILES = ("--config", "--config-dir")
_VALUES = {
    "reclaim": ("--signal", "--until", "--room", "--on", "--output", "-o"),
    "check": ("--output", "-o"),
}
_SWITCHES = {"reclaim": ("--all", "--dry-run", "--now"), "check": ("--npd",)}
_HINT = r"""^[^#\n]*?\b%s["']?[ \t]*:[ \t]*["']?([^"'\s,#}]*)"""


class NotAskedError(Exception):
    """The daemon does not do the work. The message is empty if there is simply no daemon."""


def ask_daemon(command: str, arguments: Sequence[str]) -> int | None:
    """Prints the daemon's answer and returns its exit code; None if the command
    has to do the work itself.
    """
    parsed = read_arguments(command, arguments)
    if parsed is None:
        return None
    options, given = parsed
    files = configuration_files(given.get("config"), given.get("config_dir"), os.environ)
    found: list[tuple[Fingerprint, str]] = []

    def look() -> None:
        try:
            fingerprint = fingerprint_of(*files, {}, environment=os.environ)
            found.append((fingerprint, control_socket_of(fingerprint)))
        # a file of the configuration cannot be read, which the command itself reports
        except OSError:
            pass

    thread = threading.Thread(target=look, daemon=True)  # abandoned if a file hangs
    thread.start()
    thread.join(FILES_SECONDS)
    if not found or not found[0][1]:
        return None
    fingerprint, path = found[0]
    if sys.stdout.isatty():
        options["width"] = os.get_terminal_size(sys.stdout.fileno()).columns or None
    try:
        answer = converse(path, {"command": command, "options": options, "told": fingerprint})
    except NotAskedError as reason:
        if str(reason):
            mention(f"{reason}; doing the work here")
        return None
    mention(answer["sentence"])
    if answer["document"] is not None:
        write_out(f"{json.dumps(answer['document'], indent=2)}\n")
    elif answer["lines"]:
        write_out("\n".join([*answer["lines"], ""]))
    return int(answer["exit_code"])


def read_arguments(
    command: str, arguments: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The options of the command, and the configuration files; None if any
    argument is not one of these.
    """
    options: dict[str, Any] = {}
    files: dict[str, str] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, joined, value = argument.partition("=")
        key = "output" if name == "-o" else name.lstrip("-").replace("-", "_")
        if argument in _SWITCHES[command]:
            options[key] = True
            continue
        if name not in (*_VALUES[command], *_FILES) or (name == "-o" and joined):
            return None
        if not joined:
            if not waiting or waiting[0].startswith("-"):
                return None
            value = waiting.pop(0)
        (files if name in _FILES else options)[key] = value
    return options, files


def control_socket_of(fingerprint: Fingerprint) -> str:
    """The path of the control socket, from the files of a fingerprint; empty if they
    switch it off. Raises OSError.

    A regular expression finds the field, as reading YAML would take too long. A wrong path does no
    harm: a daemon does the work only for a client with the same configuration.
    """
    texts = []
    for file, *_ in fingerprint["files"]:
        with open(str(file), encoding="utf-8", errors="replace") as text:
            texts.append(text.read())
    return hint(texts, "controlSocket", CONTROL_SOCKET)


def hint(texts: Iterable[str], field: str, default: str) -> str:
    """What the last of these texts of files says about a field that is a path."""
    found = [each[1] for text in texts for each in re.finditer(_HINT % field, text, re.MULTILINE)]
    return found[-1] if found else default


def converse(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """The daemon's answer, after the pass. Raises NotAskedError."""
    heartbeats, progress = 0, StatusLine()
    try:
        if os.stat(path).st_uid not in (0, os.geteuid()):
            raise NotAskedError(f"{path} belongs to another user")
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon,
            daemon.makefile("rb") as lines,
        ):
            daemon.settimeout(ACCEPT_SECONDS)
            daemon.connect(path)
            daemon.sendall(json.dumps(request).encode() + b"\n")
            while True:
                line = lines.readline(LARGEST_ANSWER_BYTES)
                if not line.endswith(b"\n"):
                    raise NotAskedError("the daemon hung up")
                answer = json.loads(line)
                if "refused" in answer:
                    raise NotAskedError(f"the daemon refuses: {answer['refused']}")
                if "exit_code" in answer:
                    return {
                        key: answer[key] for key in ("exit_code", "sentence", "document", "lines")
                    }
                busy = answer.get("busy")
                if busy and not heartbeats:
                    mention(f"the daemon is {busy}; waiting for its turn")
                elif heartbeats:
                    progress.rewrite(
                        f"{heartbeats:5.1f} s  the daemon is {busy or 'about to begin'}"
                    )
                heartbeats += 1
                daemon.settimeout(SILENCE_SECONDS)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotAskedError from None
    except TimeoutError:
        raise NotAskedError("the daemon does not answer") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise NotAskedError(f"no daemon can be asked on {path}: {error}") from None
    finally:
        progress.erase()
