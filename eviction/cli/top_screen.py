"""The screen of `reclaimd top` and its keys, with Rich, which the extra `ui` installs."""

import threading
from collections import deque
from contextlib import suppress
from itertools import takewhile

from rich.console import Console
from rich.screen import Screen
from rich.text import Text

from eviction.cli.client import Client, NotAskedError
from eviction.cli.output import wrap_lines
from eviction.cli.status import lines
from eviction.printable import escaped
from eviction.records.json_shapes import shortened
from eviction.types import Json
from eviction.wording.bars import bar, sparkline
from eviction.wording.explain import table
from signals.quantity import format_bytes, format_duration
from signals.types import INODES_FREE

BLOCKS = 12  # of a sparkline
SCREENS = 5  # that each stands for
LONGEST_NAME = 11  # of a filesystem; the kubelet's are no longer
PLAN_SECONDS = 30.0  # between two questions what goes next
SOON_SECONDS = 5.0  # if a pass has ended since
PAUSE_SECONDS = 3600.0  # as of `reclaimd pause`
DISK_HEADS = ["DISK", "│ OURS ┃ KUBELET'S", "AVAILABLE", "LATELY      ", "FILLS BY   ", "FULL IN"]
KEYS = "p pause, resume   d dry run   w why the next one goes   q quit"


class TopScreen:
    """What a daemon has answered, and what a key has asked for."""

    def __init__(self, daemon: Client):
        self._daemon = daemon
        self._status: Json = {"passes": []}
        # of each signal when it was read, and what was available
        self._levels: dict[str, deque[tuple[float, int]]] = {}
        self._signal = ""  # the one that was nearest to its mark when it was asked what goes next
        self._planned = nothing("the daemon is being asked")
        self._ask_at = 0.0
        self._key = ""

    def take(self, status: Json, now: float) -> None:
        """Takes the answer to `status`, and asks what goes next if that may have changed: seldom,
        and not while the daemon does something. `now`: monotonic seconds."""
        if status["passes"][-1:] != self._status["passes"][-1:]:
            self._ask_at = min(self._ask_at, now + SOON_SECONDS)
        self._status = status
        for seen in status["observations"]:
            self._levels.setdefault(seen["signal"], deque(maxlen=BLOCKS * SCREENS)).append(
                (now, seen["available"])
            )
        if now >= self._ask_at and status["ladder"] and not status["doing"]:
            self._ask_at = now + PLAN_SECONDS
            threading.Thread(target=self._plan, daemon=True).start()

    def _plan(self) -> None:
        self._signal = nearest_signal(self._status)
        try:
            self._planned = self._daemon.dry_run(self._signal, silent=True)
        except NotAskedError as error:
            self._planned = nothing(str(error))

    def press(self, keys: str) -> None:
        """What the keys do; one that shows details hides them again."""
        for key in keys:
            self._key = "" if key == self._key else key
            if key == "p":
                seconds = 0.0 if self._status["pause_left_seconds"] else PAUSE_SECONDS
                with suppress(NotAskedError):  # the next screen says so
                    self._daemon.ask("pause", seconds=seconds)

    def drawn(self, width: int, height: int) -> str:
        """The whole screen."""
        before_signals = takewhile(lambda line: not line.startswith("SIGNAL "), lines(self._status))
        shown = [Text(line, "bold") for line in wrap_lines(map(escaped, before_signals), width)]
        shown += [Text(), *self._filesystems(width)][: height // 2]
        room = height - len(shown) - 1
        passes = [] if self._key in ("d", "w") else self._passes(width)[: room // 3]
        planned = self._planned_lines(width)
        most = max(room - len(passes) - 2, 1)
        if len(planned) > most:
            planned[most - 1 :] = [f"… and {len(planned) - most + 1} more"]
        below = ["", *planned, "", *passes]
        below += [""] * (room - len(below))
        shown += [Text(line, "bold" if line.isupper() else "") for line in below]
        console = Console(width=width, height=height)
        with console.capture() as captured:
            console.print(
                Screen(*shown, Text(KEYS.ljust(width), "reverse")),
                end="",
                overflow="ellipsis",
                no_wrap=True,
            )
        return captured.get()

    def _filesystems(self, width: int) -> list[Text]:
        """A line for the bytes, and one for the inodes, of each filesystem."""
        rows = [DISK_HEADS]
        colours = ["bold"]
        for seen in self._status["observations"]:
            signal = seen["signal"]
            available = seen["available"]
            marks = {
                mark["whose"]: mark["mark"]  # of two the lower one, which is hard
                for mark in self._status["ladder"]
                if mark["signal"] == signal
            }
            levels = [*self._levels[signal]][::-SCREENS][::-1]
            (since, before), (now, _) = levels[-2:][0], levels[-1]
            rate = round(max(before - available, 0) / max(now - since, 1.0))
            filesystem, _, what = signal.partition(".")
            inodes = what == INODES_FREE
            number = str if inodes else format_bytes
            rows.append(
                [
                    "  inodes" if inodes else shortened(filesystem, LONGEST_NAME),
                    bar(available, seen["capacity"], marks),
                    "stale" if seen["stale"] else number(available),
                    sparkline([-left for _, left in levels], seen["capacity"]),
                    f"{number(rate)}/s" if rate else "-",
                    format_duration(available // rate) if rate else "-",
                ]
            )
            met = [whose for whose, mark in marks.items() if available < mark]
            colours.append("red" if "kubelet" in met else "yellow" if met else "green")
        return list(map(Text, table(rows, width), colours))

    def _planned_lines(self, width: int) -> list[str]:
        """What goes next with what that frees; after d, what stays, too; after w, why the next one
        goes."""
        planned = self._planned
        removals = planned["removals"]
        if self._key == "w" and removals:
            from eviction.cli.why import objects_of, why_lines  # imports what reads the node

            (first, *_) = objects_of(planned, removals[0]["id"])
            return [*wrap_lines(map(escaped, why_lines(first)), width)]
        rows = [["VERDICT", "KIND", "NAME", "FREES", "REASON"]]
        for one in removals + (planned["kept"] if self._key == "d" else []):
            # layers that others have, too, stay: a size is the most that can be freed
            at_most = "" if "frees" in one else "<= "
            frees = one.get("frees", one["size"])
            amount = "-" if frees is None else f"{at_most}{format_bytes(frees)}"
            rows.append([one["verdict"], one["kind"], one["name"], amount, one["reason"]])
        title = escaped(f"next for {self._signal}: {planned['reason']}")
        return [*wrap_lines([title], width), *(table(rows, width) if removals else ())]

    def _passes(self, width: int) -> list[str]:
        """The last passes, the newest first."""
        rows = [["LAST PASSES", "SIGNAL", "RESULT", "FREED", "TOOK"]]
        rows += [
            [
                f"{record['started'][:19]}Z",
                record["acted_on"]["signal"] if record["acted_on"] else "-",
                record["result"],
                format_bytes(record["measured"]["bytes"]),
                format_duration(record["timings"]["total_seconds"]),
            ]
            for record in reversed(self._status["passes"])
        ]
        return table(rows, width)


def nothing(why: str) -> Json:
    """In place of the record of a pass that removed nothing."""
    return {"removals": [], "kept": [], "reason": why}


def nearest_signal(status: Json) -> str:
    """The signal that is nearest to one of its marks, by its share, of a status that has any."""
    observed = {seen["signal"]: seen for seen in status["observations"]}

    def above(mark: Json) -> float:
        seen = observed[mark["signal"]]
        return float(seen["available"] - mark["mark"]) / float(seen["capacity"] or 1)

    return str(min(status["ladder"], key=above)["signal"])
