"""The options and the answer that `reclaimd check` and `reclaimd reclaim` share."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from eviction.configuration.fingerprint import OTHER_CONFIGURATION, Fingerprint, same_configuration
from eviction.types import EvictionError, Fields, Json

if TYPE_CHECKING:
    from eviction.engine.view import NodeView
    from eviction.records.passes import Pass


OUTPUTS = ("table", "json", "yaml", "name")


class OptionRefused(EvictionError):
    """The options are invalid, or this process cannot do what they ask for.

    The message is one sentence.
    """


@dataclass(frozen=True)
class Output:
    """The options of both, by their names on the command line: how the answer is printed."""

    output: str | None = None
    width: int | None = None
    """The columns of the caller's terminal; None for lines of any length."""

    @property
    def as_json(self) -> bool:
        """As a document."""
        return self.output not in (None, OUTPUTS[0])


Options = TypeVar("Options", bound=Output)


class HeldRoom(NamedTuple):
    """The part of a room that is above the marks, on the filesystem that holds this path."""

    path: str
    spare_bytes: int
    asked_bytes: int


@dataclass(frozen=True)
class Answer:
    """The output is a document, or lines for people, or neither."""

    exit_code: int
    sentence: str = ""
    """For stderr; empty for none."""
    document: Fields | None = None
    lines: tuple[str, ...] = ()
    record: "Pass | None" = None
    """None if there was no pass."""
    room: HeldRoom | None = None
    """What can be held of the room that is there."""

    def line(self) -> Json:
        """The last line of the conversation with a client."""
        return {
            name: getattr(self, name) for name in ("exit_code", "sentence", "document", "lines")
        }


def read_options(kind: type[Options], command: str, given: Fields) -> Options:
    """The options of a command. Raises OptionRefused with one sentence."""
    unknown = given.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise OptionRefused(f"{', '.join(sorted(map(str, unknown)))}: not an option of {command}")
    options = kind(**given)
    if options.output not in (None, *OUTPUTS):
        raise OptionRefused(f"--output: {options.output!r} is none of {', '.join(OUTPUTS)}")
    if options.width is not None and not (type(options.width) is int and options.width > 0):
        raise OptionRefused("width: the number of columns must be above 0")
    return options


def options_of_client(request: Fields, loaded: Fingerprint, node: "NodeView") -> Fields:
    """The options in a request, not checked yet. `loaded`: the daemon's configuration, which must
    be the client's too.

    Raises OptionRefused, also while the daemon does not know where the images are: the command,
    with a new connection, may find out.
    """
    options = request.get("options")
    configuration = request.get("told")
    if not isinstance(options, dict) or not isinstance(configuration, dict):
        raise OptionRefused("a request contains the options and the configuration of the client")
    if not same_configuration(configuration, loaded):
        raise OptionRefused(OTHER_CONFIGURATION)
    if node.configuration.has_runtime and node.summary.paths.imagefs is None:
        raise OptionRefused(
            f"it does not know where the images are: {node.summary.imagefs_problem}"
        )
    return options
