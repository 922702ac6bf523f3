"""What this machine says to a command that removes nothing: its files, and its node without a
daemon. What removes is not imported; what reads the node, only to do it."""

import os
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from eviction.cli.client import Client, NotAskedError, files_seen, seen_in
from eviction.cli.options import (
    configuration_flags,
    configuration_of,
    fields_of_flags,
    fingerprint_of_command,
)
from eviction.cli.output import columns
from eviction.cli.progress import Progress, mention
from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.types import Fields, Json
from signals.clock import SystemClock
from signals.quantity import counted

if TYPE_CHECKING:
    from eviction.engine.view import NodeView
    from eviction.surface.answer import Answer

READ_DEADLINE_SECONDS = 2.0  # for an answer of the runtime to who only looks
ASKED = "asking the daemon on {0.control_socket}"
READ = "reading the history {0.history_file}"
PLACES = {
    "control_socket": "controlSocket",
    "history_file": "historyFile",
    "state_file": "stateFile",
}


class LocalFiles:
    """The configuration of these arguments, and the files that it names.

    `configuration`: if it cannot be used, the defaults with the places that its files seem to name:
    good for asking and reading, for nothing else. Whoever may write the files, a socket or file of
    somebody else's is not used. `problem`: why that is so; empty if it is not.

    `otherwise`: what is said to be done in that case, with places of the configuration in braces;
    empty: nothing is said; None: ConfigurationError is raised. `asks_version`: as in `load`.
    """

    def __init__(
        self, arguments: Namespace, otherwise: str | None = None, *, asks_version: bool = False
    ):
        self.arguments = arguments
        self.problem = ""
        try:
            self.configuration = configuration_of(arguments, asks_version=asks_version)
        except ConfigurationError as error:
            fields_of_flags(arguments)  # that they are no pairs is said instead
            if otherwise is None:
                raise
            self.problem = str(error)
            self.configuration = _places_of(arguments)
            if otherwise:
                doing = otherwise.format(self.configuration)
                mention(f"the configuration cannot be used ({self.problem}); {doing}")

    @property
    def client(self) -> Client:
        """The daemon."""
        return Client(self.configuration.control_socket)

    @contextmanager
    def view(self, deadline_seconds: float = READ_DEADLINE_SECONDS) -> "Iterator[NodeView]":
        """The node, read-only, as far as the runtime says where its images are. Shows progress
        meanwhile."""
        from eviction.engine.view import NodeView

        doing = "asking the runtime where the images are, and reading the filesystems"
        view = NodeView(self.configuration, read_deadline_seconds=deadline_seconds)
        with closing(view), Progress(doing):
            view.locate()
            yield view

    def check(self) -> "Answer":
        """The answer of `check`."""
        from eviction.surface.check import CheckOptions, check

        options = CheckOptions(self.arguments.output, columns(), npd=self.arguments.npd)
        with self.view() as view:
            return check(view, options)

    def mention_other_configuration(self, status: Fields | None = None) -> None:
        """Mentions a daemon that has loaded another configuration than this command. Silent if no
        daemon answers, and for a command whose own flags make the difference.

        `status`: the daemon's answer, if the command has it; else the daemon is asked.
        """
        given = any(value is not None for value in configuration_flags(self.arguments).values())
        if self.problem or given or not os.path.exists(self.client.path):
            return
        try:
            status = self.client.ask("status") if status is None else status
            own = fingerprint_of_command(self.arguments)
        except (NotAskedError, OSError):
            return
        if status.get("configuration") not in (own, None):  # an older daemon does not report it
            mention(
                "a daemon runs here with another configuration, or with an older version of the"
                " same files"
            )

    def history(
        self, choose: Callable[[Iterator[Json]], list[Json]] = list
    ) -> tuple[list[Json], str]:
        """Those records of the history that `choose` takes, the oldest first; and why there is no
        history yet, or an empty text. Raises EvictionError if it cannot be used."""
        from eviction.records.history import documents_of
        from eviction.records.store import NoHistoryYet, contents_of

        path = self.configuration.history_file
        try:
            with Progress("reading the history"):
                contents = contents_of(path)
                chosen = choose(documents_of(contents.records))
        except NoHistoryYet as error:
            return [], str(error)
        if contents.torn:
            torn = counted(contents.torn, "record")
            mention(f"left out, as not whole in the history {path}: {torn}")
        return chosen, ""

    def images_gone(self) -> tuple[Collection[str], float | None]:
        """The ids of images that the daemon remembers as gone, and the Unix time of that."""
        from eviction.records.state_file import RecordFile

        path = self.configuration.state_file
        if not path:
            return (), None
        state = RecordFile(path, SystemClock()).load()
        mention(state.problem)
        return state.gone, state.at

    def forget_pause(self) -> str:
        """Removes a pause that is stored for the daemon's next start. Returns what was done, as a
        clause to append; empty if there was none."""
        if self.problem:
            return "; a pause that is stored for its next start stays, as it is not known where"
        from eviction.surface.pause import PauseFile  # only where no daemon answers

        file = PauseFile(self.configuration.state_file, SystemClock())
        left_seconds, _ = file.saved()
        if not left_seconds:
            return ""
        failed = file.keep(lambda: 0.0)
        return f"; {failed or f'{file.path} is removed, so its next start is without a pause'}"


def _places_of(arguments: Namespace) -> Configuration:
    """The defaults, with the places that the files seem to name, whoever may write them."""
    _, texts = files_seen(arguments.config, arguments.config_dir)
    seen = {name: seen_in(texts, field, default="") for name, field in PLACES.items()}
    return load(None, {}, {}).model_copy(
        update={name: path for name, path in seen.items() if path.startswith("/")}
    )
