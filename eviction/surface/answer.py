"""What `reclaimd check` and `reclaimd reclaim` share, in the daemon or on their own:
their options, and the answer.
"""

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
    """The options of both: how the answer is printed. `as_json`: as a document; `width`: columns of
    the caller's terminal, None for lines of any length."""

    as_json: bool = False
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit code, a sentence for stderr (or none), and the output: a document, or
    lines for people, or neither.

    `record`: the pass; None if there was none.
    """

    exit_code: int
    sentence: str = ""
    document: Mapping[str, Any] | None = None
    lines: tuple[str, ...] = ()
    record: Pass | None = None

    def line(self) -> dict[str, Any]:
        """The last line of the conversation with a client."""
        return {
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "document": self.document,
            "lines": self.lines,
        }


def read_output(given: Mapping[str, Any], command: str, others: Collection[str]) -> Output:
    """The output options, from their names on the command line. `others`: the options of the
    command itself. Raises RequestRefused."""
    unknown = given.keys() - OF_OUTPUT - set(others)
    if unknown:
        raise RequestRefused(f"{', '.join(sorted(map(str, unknown)))}: not an option of {command}")
    output, width = given.get("output"), given.get("width")
    if output not in (None, "table", "json"):
        raise RequestRefused(f"--output: {output!r} is neither table nor json")
    if width is not None and not (type(width) is int and width > 0):
        raise RequestRefused("width: the number of columns must be above 0")
    return Output(output == "json", width)


def options_of_client(request: Mapping[str, Any], loaded: Fingerprint) -> Mapping[str, Any]:
    """The options in a request, not checked yet. `loaded`: the daemon's configuration, which must
    be the client's too. Raises RequestRefused."""
    options, configuration = request.get("options"), request.get("told")
    if not isinstance(options, dict) or not isinstance(configuration, dict):
        raise RequestRefused("a request contains the options and the configuration of the client")
    if not same_configuration(configuration, loaded):
        raise RequestRefused(OTHER_CONFIGURATION)
    return options
