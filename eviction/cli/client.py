"""The daemon, as a command reaches it: over its control socket.

`reclaimd reclaim` and `reclaimd check` ask first (`ask_daemon`). The daemon has everything loaded
and connected, so it sends its first removal before a new process has imported its modules. The
command does the work itself if there is no daemon, if the daemon's configuration differs, if it
does not answer within a second or misses ten heartbeats, and for options that only the command
understands. Options are passed on unchecked; the daemon or the command checks them.

Only a small part of the standard library is imported: argparse and typing would each take
half as long as all the rest.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence

from eviction.cli.progress import Progress, mention
from eviction.cli.streams import write_out
from eviction.configuration.fingerprint import Fingerprint, configuration_files, fingerprint_of
from eviction.surface.control_client import TIMEOUT_SECONDS, ask, converse
from eviction.surface.control_client import NotAskedError as NotAskedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTROL_SOCKET = "/run/reclaimd/control.sock"  # the default of `controlSocket`
FILES_SECONDS = 2.0
ACCEPT_SECONDS = 1.0  # for the first line of the answer
LARGEST_FILE_BYTES = 1 << 20
OF_THE_ANSWER = ("exit_code", "sentence", "document", "lines")
COLORS = ("auto", "always", "never")  # of --color
_FILES = ("--config", "--config-dir")
_VALUES = {
    "reclaim": ("--signal", "--until", "--room", "--on", "--output", "-o", "--color"),
    "check": ("--output", "-o", "--color"),
}
_SWITCHES = {"reclaim": ("--all", "--dry-run", "--now"), "check": ("--npd",)}
_FIELD = r"""^[^#\n]*?\b%s["']?[ \t]*:[ \t]*["']?([^"'\s,#}]*)"""


class Client:
    """The daemon that answers on a control socket."""

    def __init__(self, path: str):
        self.path = path

    def ask(self, command: str, wait_seconds: float = TIMEOUT_SECONDS, **fields: object) -> Any:
        """The answer to a command with these fields, at once. Raises NotAskedError."""
        return ask(self.path, command, wait_seconds, **fields)

    def dry_run(self, signal: str, *, silent: bool = False) -> dict[str, Any]:
        """The record of a dry run to the end of the signal's row. Raises NotAskedError."""
        answer = self.work(
            "reclaim",
            {"dry_run": True, "all": True, "signal": signal, "output": "json"},
            told={},
            silent=silent,
        )
        if not answer["document"]:
            raise NotAskedError(answer["sentence"])
        return dict(answer["document"])

    def work(
        self, command: str, options: dict[str, Any], told: Fingerprint, *, silent: bool = False
    ) -> dict[str, Any]:
        """The answer to `reclaim` or `check` after the work: exit code, sentence, document, lines.

        `told`: the configuration of this process. Shows progress, unless `silent`. Raises
        NotAskedError.
        """
        request = {"command": command, "options": options, "told": told}
        busy: str | None = None
        first = True
        try:
            answers = converse(self.path, request, ACCEPT_SECONDS)
            progress = Progress("", lambda: f"the daemon is {busy or 'about to begin'}")
            progress.live = progress.live and not silent
            with progress:
                while "exit_code" not in (answer := next(answers)):
                    if "refused" in answer:
                        raise NotAskedError(f"the daemon refuses: {answer['refused']}")
                    busy = answer.get("busy")
                    if busy and first and not silent:
                        mention(f"the daemon is {busy}; waiting for its turn")
                    first = False
                return {key: answer[key] for key in OF_THE_ANSWER}
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotAskedError from None
        except TimeoutError:
            raise NotAskedError("the daemon does not answer") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            why = getattr(error, "strerror", None) or error
            raise NotAskedError(f"no daemon can be asked on {self.path}: {why}") from None


def ask_daemon(command: str, arguments: Sequence[str]) -> int | None:
    """Prints the daemon's answer and returns its exit code; None if the command
    has to do the work itself.
    """
    parsed = read_arguments(command, arguments)
    if parsed is None:
        return None
    options, files = parsed
    color = options.pop("color", "auto")
    if color not in COLORS or (command == "check" and options.get("output") == "name"):
        return None
    fingerprint, texts = files_seen(files.get("config"), files.get("config_dir"))
    client = Client(seen_in(texts))
    # files that cannot be read are for the command itself to report
    if fingerprint is None or not client.path:
        return None
    if sys.stdout.isatty():
        options["width"] = os.get_terminal_size(sys.stdout.fileno()).columns or None
    try:
        answer = client.work(command, options, fingerprint)
    except NotAskedError as reason:
        if str(reason):
            mention(f"{reason}; doing the work here")
        return None
    if color != "auto" or options.get("output") in ("yaml", "name"):
        from eviction.cli import output  # which takes its time, and the work is done
        from eviction.surface.answer import Answer

        output.color = color
        return output.print_answer(Answer(**answer), options.get("output", "table"))
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
    words = iter(arguments)
    for word in words:
        name, joined, value = word.partition("=")
        key = "output" if name == "-o" else name.lstrip("-").replace("-", "_")
        if word in _SWITCHES[command]:
            options[key] = True
            continue
        if name not in (*_VALUES[command], *_FILES) or (name == "-o" and joined):
            return None
        if not joined:
            value = next(words, "-")
            if value.startswith("-"):
                return None
        (files if name in _FILES else options)[key] = value
    return options, files


def files_seen(config: str | None, config_dir: str | None) -> tuple[Fingerprint | None, list[str]]:
    """The fingerprint of the configuration files that the command line names, None if one of them
    cannot be read; and their texts, as far as they can be read within 2 s."""
    fingerprints: list[Fingerprint] = []
    texts: list[str] = []

    def look() -> None:
        try:
            fingerprint = fingerprint_of(
                *configuration_files(config, config_dir, os.environ), {}, environment=os.environ
            )
            for path, *_ in fingerprint["files"]:
                # a FIFO must not block
                descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK)
                with open(descriptor, encoding="utf-8", errors="replace") as file:
                    texts.append(file.read(LARGEST_FILE_BYTES))
            fingerprints.append(fingerprint)
        except OSError:
            pass

    thread = threading.Thread(target=look, daemon=True)  # abandoned if a file hangs
    try:
        thread.start()
    except RuntimeError:  # no more can be started
        look()
    else:
        thread.join(FILES_SECONDS)
    return (fingerprints[0] if fingerprints else None), texts


def seen_in(
    texts: Iterable[str], field: str = "controlSocket", default: str = CONTROL_SOCKET
) -> str:
    """What the last of these files seems to say about a field that is a path.

    A regular expression finds it, as reading YAML would take too long. A wrong path does no harm: a
    daemon does the work only for a client with the same configuration.
    """
    found = [each[1] for text in texts for each in re.finditer(_FIELD % field, text, re.MULTILINE)]
    return found[-1] if found else default
