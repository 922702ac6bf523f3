"""`reclaimd reclaim` and `reclaimd check`, first half: the daemon is asked. Standard library only, and little of that.

A daemon has everything loaded and connected: it sends the first removal, or has looked, while a process of its own
would still import. Whatever stands against it, the command then does the work itself (`eviction.cli.reclaim`,
`eviction.cli.check`): no daemon, a daemon with another configuration, no answer within a second, silence for longer
than the daemon's beat allows, or an option that is not carried. What an option may be is judged where it is understood,
by the daemon or by the second half; here it is only carried.

Neither argparse nor typing is imported: each costs as much as half of everything else here.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Sequence

from eviction.configuration.fingerprint import fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

CONTROL_SOCKET = "/run/reclaimd/control.sock"  # the default of `controlSocket`
ACCEPT_SECONDS = 1.0  # for the first line of the answer
SILENCE_SECONDS = 10.0  # for each further one: ten beats of the daemon's
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_OUTPUT = {"--output": "output", "-o": "output"}
_VALUES = {"reclaim": {"--signal": "signal", "--until": "until", **_OUTPUT}, "check": _OUTPUT}
_SWITCHES = {"reclaim": {"--all": "all", "--dry-run": "dry_run", "--now": "now"}, "check": {"--npd": "npd"}}
_FILES = {"--config": "config", "--config-dir": "config_dir"}
_HINT = re.compile(r"""^[^#\n]*?\bcontrolSocket["']?[ \t]*:[ \t]*["']?([^"'\s,#}]*)""", re.MULTILINE)


class NotAskedError(Exception):
    """The daemon does not do it. `worth_saying` is false where there simply is none."""

    def __init__(self, sentence: str, *, worth_saying: bool = True):
        super().__init__(sentence)
        self.worth_saying = worth_saying


def ask_daemon(command: str, words: Sequence[str]) -> int | None:
    """Prints what the daemon answers and returns the exit code; None when the command has to do the work itself."""
    read = read_words(command, words)
    if read is None:
        return None
    options, files = read
    try:
        path = control_socket_of(files.get("config"), files.get("config_dir"))
        if sys.stdout.isatty():
            options["width"] = os.get_terminal_size(sys.stdout.fileno()).columns or None
        fingerprint = fingerprint_of(files.get("config"), files.get("config_dir"), {}, os.environ)
        answer = _converse(path, {"command": command, "options": options, "told": fingerprint})
    except NotAskedError as reason:
        if reason.worth_saying:
            _say(f"{reason}; doing the work here")
        return None
    except OSError:  # of the configuration files: the second half reads them, and says what is wrong
        return None
    if answer["sentence"]:
        _say(answer["sentence"])
    if answer["document"] is not None:
        print(json.dumps(answer["document"], indent=2))  # noqa: T201 # data on stdout
    elif answer["lines"]:
        print("\n".join(answer["lines"]))  # noqa: T201 # data on stdout
    return int(answer["exit_code"])


def read_words(command: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The options of the command, and the configuration files it names; None for any word that is not one of these."""
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


def control_socket_of(config: str | None, config_dir: str | None) -> str:
    """Where to ask. Raises NotAskedError where the configuration wants no socket; OSError.

    The files are searched for the one field and not read as YAML. A wrong find does no harm: the daemon there does
    the work only if its configuration has the same fingerprint.
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
        raise NotAskedError("the configuration wants no control socket", worth_saying=False)
    return path


def _converse(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """The daemon's last word, after however long a pass takes. Raises NotAskedError."""
    try:
        if os.stat(path).st_uid not in (0, os.geteuid()):
            raise NotAskedError(f"{path} belongs to somebody else")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.settimeout(ACCEPT_SECONDS)
            daemon.connect(path)
            daemon.sendall(json.dumps(request).encode() + b"\n")
            with daemon.makefile("rb") as lines:
                return _last_word(daemon, lines)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotAskedError("no daemon", worth_saying=False) from None
    except TimeoutError:
        raise NotAskedError("the daemon does not answer") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotAskedError(f"no daemon can be asked on {path}: {error}") from None


def _last_word(daemon: socket.socket, lines: BinaryIO) -> dict[str, Any]:
    beats, progress = 0, None
    try:
        while True:
            line = lines.readline(LARGEST_ANSWER_BYTES)
            if not line.endswith(b"\n"):
                raise NotAskedError("the daemon hung up")
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise TypeError("what answers is no daemon of this kind")
            if "error" in answer or "refused" in answer:
                raise NotAskedError(f"the daemon refuses: {answer.get('refused') or answer['error']}")
            if "exit_code" in answer:
                return {key: answer[key] for key in ("exit_code", "sentence", "document", "lines")}
            busy = answer.get("busy")
            if busy and not beats:
                _say(f"the daemon is {busy}; waiting for its turn")
            elif beats:
                from eviction.cli.progress import StatusLine  # after a second, when an import delays nobody

                progress = progress or StatusLine()
                progress.rewrite(f"{beats:5.1f} s  the daemon is {busy or 'about to begin'}")
            beats += 1
            daemon.settimeout(SILENCE_SECONDS)
    finally:
        if progress is not None:
            progress.erase()


def _say(sentence: str) -> None:
    """Words, on stderr; nothing in them is obeyed by a terminal."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in sentence)
    print(f"reclaimd: {shown}", file=sys.stderr)  # noqa: T201 # words on stderr
