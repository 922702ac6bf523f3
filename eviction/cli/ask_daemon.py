"""Asks the running daemon to do the work of `reclaimd reclaim` or `reclaimd check`.

The daemon has everything loaded and connected, so it has sent its first removal before a new process has imported its
modules. Otherwise the command does the work itself (`eviction.cli.reclaim`, `eviction.cli.check`): without a daemon, if
its configuration differs, if it does not answer within a second or misses ten heartbeats, and for options that only the
command itself understands. Options are passed on unchecked; the daemon or the command checks them.

Only a small part of the standard library is imported. argparse and typing would each take half as long as all the rest.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Sequence

from eviction.cli.readers import takes_words
from eviction.configuration.fingerprint import Fingerprint, configuration_files, fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

CONTROL_SOCKET = "/run/reclaimd/control.sock"  # the default of `controlSocket`
STDERR = 2
FILES_SECONDS = 2.0
ACCEPT_SECONDS = 1.0  # for the first line of the answer
SILENCE_SECONDS = 10.0  # for each further line: ten heartbeats of the daemon
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_OUTPUT = {"--output": "output", "-o": "output"}
_VALUES = {"reclaim": {"--signal": "signal", "--until": "until", **_OUTPUT}, "check": _OUTPUT}
_SWITCHES = {"reclaim": {"--all": "all", "--dry-run": "dry_run", "--now": "now"}, "check": {"--npd": "npd"}}
_FILES = {"--config": "config", "--config-dir": "config_dir"}
_HINT = re.compile(r"""^[^#\n]*?\bcontrolSocket["']?[ \t]*:[ \t]*["']?([^"'\s,#}]*)""", re.MULTILINE)


class NotAskedError(Exception):
    """The daemon does not do the work. `silent`: no message is needed, because there is no daemon."""

    def __init__(self, sentence: str, *, silent: bool = False):
        super().__init__(sentence)
        self.silent = silent


def ask_daemon(command: str, words: Sequence[str]) -> int | None:
    """Prints the daemon's answer and returns its exit code; None when the command has to do the work itself."""
    parsed = read_words(command, words)
    if parsed is None:
        return None
    options, given = parsed
    files = configuration_files(given.get("config"), given.get("config_dir"), os.environ)
    try:
        path, fingerprint = _files_in_time(files)
        if sys.stdout.isatty():
            options["width"] = os.get_terminal_size(sys.stdout.fileno()).columns or None
        answer = _converse(path, {"command": command, "options": options, "told": fingerprint})
    except NotAskedError as reason:
        if not reason.silent:
            _mention(f"{reason}; doing the work here")
        return None
    except OSError:  # a configuration file cannot be read, or hangs: the command itself reports that
        return None
    if answer["sentence"]:
        _print_words(answer["sentence"])
    if answer["document"] is not None:
        print(json.dumps(answer["document"], indent=2))  # noqa: T201 # data on stdout
    elif answer["lines"]:
        print("\n".join(answer["lines"]))  # noqa: T201 # data on stdout
    return int(answer["exit_code"])


def read_words(command: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The options of the command, and the configuration files; None if any argument is not one of these."""
    values, switches = _VALUES[command], _SWITCHES[command]
    options: dict[str, Any] = {}
    files: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, joined, value = word.partition("=")
        if word in switches:
            options[switches[word]] = True
            continue
        if (name not in values and name not in _FILES) or (name == "-o" and joined):
            return None
        if not joined:
            if not waiting or waiting[0].startswith("-"):
                return None
            value = waiting.pop(0)
        if name in _FILES:
            files[_FILES[name]] = value
        else:
            options[values[name]] = value
    return options, files


def _files_in_time(files: tuple[str | None, str | None]) -> tuple[str, Fingerprint]:
    """The path of the control socket, and the fingerprint. Raises NotAskedError; OSError, also for a file that hangs:
    its thread is left behind."""
    found: list[tuple[str, Fingerprint]] = []
    raised: list[Exception] = []

    def look() -> None:
        try:
            found.append((control_socket_of(*files), fingerprint_of(*files, {}, os.environ)))
        except Exception as error:  # noqa: BLE001 # raised again by the caller
            raised.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(FILES_SECONDS)
    for error in raised:
        raise error
    if not found:
        raise OSError("a file of the configuration does not answer")
    return found[0]


def control_socket_of(config: str | None, config_dir: str | None) -> str:
    """The path of the control socket. Raises NotAskedError if the configuration switches it off; OSError.

    The files are searched for the field with a regular expression, not read as YAML. A wrong path does no harm: a
    daemon does the work only for a client with the same configuration.
    """
    path = CONTROL_SOCKET
    paths = [] if config is None else [config]
    if config_dir is not None:
        paths += sorted(os.path.join(config_dir, name) for name in os.listdir(config_dir) if name.endswith(".conf"))
    for each in paths:
        with open(each, encoding="utf-8", errors="replace") as file:
            for found in _HINT.finditer(file.read()):
                path = found[1]
    if not path:
        raise NotAskedError("the configuration switches the control socket off", silent=True)
    return path


def _converse(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """The daemon's answer, at the end of the pass. Raises NotAskedError."""
    try:
        if os.stat(path).st_uid not in (0, os.geteuid()):
            raise NotAskedError(f"{path} belongs to another user")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.settimeout(ACCEPT_SECONDS)
            daemon.connect(path)
            daemon.sendall(json.dumps(request).encode() + b"\n")
            with daemon.makefile("rb") as lines:
                return _answer(daemon, lines)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotAskedError("no daemon", silent=True) from None
    except TimeoutError:
        raise NotAskedError("the daemon does not answer") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotAskedError(f"no daemon can be asked on {path}: {error}") from None


def _answer(daemon: socket.socket, lines: BinaryIO) -> dict[str, Any]:
    heartbeats, progress = 0, None
    try:
        while True:
            line = lines.readline(LARGEST_ANSWER_BYTES)
            if not line.endswith(b"\n"):
                raise NotAskedError("the daemon hung up")
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise TypeError("the answer is not an object")
            if "error" in answer or "refused" in answer:
                raise NotAskedError(f"the daemon refuses: {answer.get('refused') or answer['error']}")
            if "exit_code" in answer:
                return {key: answer[key] for key in ("exit_code", "sentence", "document", "lines")}
            busy = answer.get("busy")
            if busy and not heartbeats:
                _mention(f"the daemon is {busy}; waiting for its turn")
            elif heartbeats:
                from eviction.cli.progress import StatusLine  # imported while waiting, when it delays nothing

                progress = progress or StatusLine()
                progress.rewrite(f"{heartbeats:5.1f} s  the daemon is {busy or 'about to begin'}")
            heartbeats += 1
            daemon.settimeout(SILENCE_SECONDS)
    finally:
        if progress is not None:
            progress.erase()


def _mention(sentence: str) -> None:
    """Prints a sentence on stderr, unless nobody reads there: what comes next must not wait for a reader."""
    if takes_words(STDERR):
        _print_words(sentence)


def _print_words(sentence: str) -> None:
    """Prints a sentence on stderr, with control characters escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in sentence)
    print(f"reclaimd: {shown}", file=sys.stderr)  # noqa: T201 # words on stderr
