"""What a row of the fault matrix is: a resource, a fault, and what must hold, as values.

Covers: the words of the table. Does not cover: the rows (`table`), and how a
fault is made (`injectors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.nodes.faults import Failpoint

PROMISED_RELIEF_SECONDS = 2.0
PROMISED_EXIT_SECONDS = 35.0
SLACK_SECONDS = 6.0
"""What a busy machine is given beyond each promise: a relief takes 0.1 to 0.5 s on an idle one."""


class Fault(StrEnum):
    """How a resource fails."""

    ABSENT_AT_START = "absent-at-start"
    """It is not there when the program starts, with the disk under pressure already; it comes
    later.
    """
    ABSENT = "absent-for-3s"
    """It goes in the middle of pressure, and is there again 3 s later."""
    HANGS = "hangs"
    """It stops answering in the middle of pressure, and never answers again:

    SIGTERM comes while it hangs.
    """
    SLOW = "slow"
    """From the middle of pressure on each use of it takes far longer;
    SIGTERM comes while it is slow.
    """
    WRONG = "wrong"
    """For 3 s in the middle of pressure it answers something that is not so."""
    COMES_BACK = "comes-back"
    """It hangs (or is absent, where it cannot hang) for 12 s, longer than any question
    waits, and is as before then.
    """


HELD_SECONDS = dict.fromkeys(Fault, 3.0) | {Fault.COMES_BACK: 12.0}
"""How long a fault lasts at least."""


class When(StrEnum):
    """When the relief comes."""

    GOES_ON = "goes on"
    COMES_BACK = "comes back"
    NOT_EXPECTED = "not expected"


class Kind(StrEnum):
    """What is removed. Images are the relief; the others free next to nothing here."""

    IMAGE = "image"
    CONTAINER = "container"
    SANDBOX = "sandbox"


@dataclass(frozen=True, slots=True)
class Relief:
    """`within_seconds`: from crossing the mark under the fault (goes on), or from the end of the
    fault (comes back). `meanwhile`: what else must go while the fault lasts, although no image can;
    at the latest `meanwhile_seconds` after its beginning. `reason`: why none is expected, or why it
    takes longer than 2 s."""

    when: When
    within_seconds: float = PROMISED_RELIEF_SECONDS
    meanwhile: frozenset[Kind] = frozenset()
    meanwhile_seconds: float = PROMISED_RELIEF_SECONDS
    reason: str = ""

    def __str__(self) -> str:
        words = str(self.when)
        if self.when is not When.NOT_EXPECTED:
            words += f" within {self.within_seconds:g} s"
        if self.meanwhile:
            words += f"; meanwhile {' and '.join(sorted(f'{kind}s' for kind in self.meanwhile))}"
        return words


class Livez(StrEnum):
    """What `/livez` says, each time it is asked."""

    OK = "200"
    """200 each time, as observations come in time and nothing is stuck."""
    TRUTH = "200 or 503"
    """Each time an answer; 503 only while nothing has been removed for some
    seconds, and 200 after the end.
    """
    UNHEARD = "unheard"
    """The fault is such that an answer cannot be expected while it lasts; 200
    after its end, if it ends.
    """
    NOBODY = "nobody"
    """No page is served, from the start on."""


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the matrix. `how`: the fault of the runtime's method, where it is one. `variant`:
    which of several rows of one cell. `restarts`: the process may end by itself, as its service
    manager starts it again. `in_suite`: it runs in `make test`, the others in `make soak`."""

    resource: str
    fault: Fault
    relief: Relief
    livez: Livez = Livez.OK
    how: Failpoint | None = None
    variant: str = ""
    restarts: bool = False
    in_suite: bool = False
    exit_seconds: float = PROMISED_EXIT_SECONDS

    @property
    def id(self) -> str:
        """As in `statvfs-hangs`."""
        return "-".join(filter(None, (self.resource, str(self.fault), self.variant)))
