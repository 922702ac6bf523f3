"""The options and the answer that `reclaimd check` and `reclaimd reclaim` share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eviction.configuration.fingerprint import OTHER_CONFIGURATION, Fingerprint, same_configuration
from eviction.types import EvictionError

if TYPE_CHECKING:
    from eviction.records.passes import Pass

OF_OUTPUT = frozenset({"output", "width"})


class RequestRefused(EvictionError):
    """The options are invalid, or this process cannot do what they ask for.

    The message is one sentence.
    """


@dataclass(frozen=True, slots=True)
class Output:
    """The options of both: how the answer is printed."""

    as_json: bool = False
    """As a document."""
    width: int | None = None
    """The columns of the caller's terminal; None for lines of any length."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The output is a document, or lines for people, or neither."""

    exit_code: int
    sentence: str = ""
    """For stderr; empty for none."""
    document: Mapping[str, Any] | None = None
    lines: tuple[str, ...] = ()
    record: Pass | None = None
    """None if there was no pass."""

    def line(self) -> dict[str, Any]:
        """The last line of the conversation with a client."""
        names = ("exit_code", "sentence", "document", "lines")
        return {name: getattr(self, name) for name in names}


def read_output(given: Mapping[str, Any], command: str, own: Collection[str]) -> dict[str, Any]:
    """The fields of `Output`, from the names of the options on the command line. `own`: the options
    of the command itself. Raises RequestRefused."""
    unknown = given.keys() - OF_OUTPUT - set(own)
    if unknown:
        raise RequestRefused(f"{', '.join(sorted(map(str, unknown)))}: not an option of {command}")
    output = given.get("output")
    width = given.get("width")
    if output not in (None, "table", "json"):
        raise RequestRefused(f"--output: {output!r} is neither table nor json")
    if width is not None and not (type(width) is int and width > 0):
        raise RequestRefused("width: the number of columns must be above 0")
    return {"as_json": output == "json", "width": width}


def options_of_client(request: Mapping[str, Any], loaded: Fingerprint) -> Mapping[str, Any]:
    """The options in a request, not checked yet. `loaded`: the daemon's configuration, which must
    be the client's too. Raises RequestRefused."""
    options = request.get("options")
    configuration = request.get("told")
    if not isinstance(options, dict) or not isinstance(configuration, dict):
        raise RequestRefused("a request contains the options and the configuration of the client")
    if not same_configuration(configuration, loaded):
        raise RequestRefused(OTHER_CONFIGURATION)
    return options
