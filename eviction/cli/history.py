"""`reclaimd history`: every pass and every removal of the last weeks, and what they cost. Reads
only files; needs no daemon."""

import os
import re
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast

from eviction.cli.local_files import READ, LocalFiles
from eviction.cli.options import number
from eviction.cli.output import answer, columns, exit_on, exit_with
from eviction.cli.parser import OBJECTS
from eviction.cli.progress import mention
from eviction.exit_codes import EXIT_OK, EXIT_USAGE
from eviction.records.history import MOST_WAITING, RecordJson
from eviction.records.json_shapes import Versioned, timestamp
from eviction.records.passes import PassResult
from eviction.records.regret import RegretJson, SumsJson, regret_of, removals_of
from eviction.types import EvictionError, Fields, Json
from eviction.wording.explain import frees_in_words, needed_in_words, table
from signals.quantity import QuantityError, counted, format_bytes, format_duration, parse_duration

HEADS = ("TIME", "RESULT", "KIND", "NAME", "SIZE", "FREES", "REASON", "PASS")
REGRET_HEADS = ("NAME", "REMOVED", "CAME BACK", "SOONEST", "FREED", "PULLED AGAIN", "PER GIB FREED")
WINDOW_HEADS = ("WITHIN", "CAME BACK", "DID NOT", "NOT OVER YET", "NOT KNOWN")
FOLLOW_SECONDS = 1.0


class HistoryJson(Versioned):
    """The contents of the history file: the answer of `reclaimd history`."""

    file: str
    """The history file."""
    records: list[RecordJson]
    """The oldest first."""


OPTIONS = {
    "--since WHEN": (
        "only since then: 2h, 7d, or a time like 2026-11-22T10:00:00Z",
        lambda text: since(text, time.time()),
    ),
    "--object TEXT": ("only objects whose name has TEXT, or whose id begins with it", None, ""),
    "--limit N": (
        "only the newest N passes and events, or N images",
        number("be a whole number above 0", least=1),
    ),
    "--follow": "go on with what is written from now on",
    "--regret": "what removals cost: which images came back, how soon",
    **OBJECTS,
}


def run(arguments: Namespace) -> int:
    """Exit 0, even if there is no file yet; 2 usage, or the configuration has
    none, or it cannot be read.

    Example: reclaimd history --since 24h --object registry.example/app
    """
    files = LocalFiles(arguments, READ)
    path = files.configuration.history_file
    about = arguments.object
    limit = arguments.limit
    if not path:
        exit_with(EXIT_USAGE, "historyFile is empty, so no history is kept")
    # what came back, or comes, needs all others
    chosen = {} if arguments.regret or arguments.follow else {"about": about, "limit": limit}

    def read() -> tuple[list[Json], str]:
        with exit_on(EXIT_USAGE, EvictionError, "historyFile: "):
            return files.history(lambda records: selected(records, arguments.since or "", **chosen))

    found, missing = read()
    if missing:
        mention(f"{missing}; the daemon creates it when it starts")
    elif not found:
        mention(f"no such record in the history {path}")
    if arguments.regret:
        removals = removals_of(found, *files.images_gone())
        regret = regret_of([each for each in removals if is_about(asdict(each), about)], limit)
        answer(arguments, regret, lambda: regret_lines(regret, columns()))
        return EXIT_OK
    shown = selected(found, about=about, limit=limit)
    heads = 0
    written = 0.0
    while True:
        document = HistoryJson(file=path, records=cast("list[RecordJson]", shown))
        lines = history_lines(shown, columns())[heads:] if shown else []
        answer(arguments, document, lines.copy)
        if missing or not arguments.follow:
            return EXIT_OK
        shown, heads = [], 1
        while not shown:
            time.sleep(FOLLOW_SECONDS)
            with exit_on(EXIT_USAGE, OSError, "historyFile: "):
                before, written = written, os.path.getmtime(path)
            if written != before:
                seen = found[-MOST_WAITING:]  # in that time, no more are written
                found, _ = read()
                shown = selected(
                    (record for record in found[-MOST_WAITING:] if record not in seen), about=about
                )


def regret_lines(regret: RegretJson, width: int | None) -> list[str]:
    """A table of images, one of times, and what they say. `width`: as in `history_lines`."""
    images = [
        REGRET_HEADS,
        _regret_row("all", regret),
        *(_regret_row(each.name, each) for each in regret.images),
    ]
    windows = [
        WINDOW_HEADS,
        *((name, *map(str, fates.values())) for name, fates in regret.within.items()),
    ]
    return [*table(images, width), *table(windows, width), regret_sentence("images", regret)]


def regret_sentence(what: str, sums: SumsJson) -> str:
    """How often these were removed and came back, and what that cost."""
    removed = f"removed {counted(sums.removed, 'time')}, which freed {_bytes(sums.freed_bytes)}"
    if not sums.removed:
        return f"{what}: none was removed"
    if sums.soonest_seconds is None:
        return f"{what}: {removed}; never seen to come back"
    soonest = f"came back {counted(sums.returned, 'time')}, soonest after"
    again = f"{_bytes(sums.returned_bytes)} were pulled again"
    return f"{what}: {removed}; {soonest} {format_duration(sums.soonest_seconds)}; {again}"


def _regret_row(name: str, sums: SumsJson) -> Sequence[str]:
    soonest = "-" if sums.soonest_seconds is None else format_duration(sums.soonest_seconds)
    amounts = map(_bytes, (sums.freed_bytes, sums.returned_bytes, sums.returned_bytes_per_gib))
    return (name, str(sums.removed), str(sums.returned), soonest, *amounts)


def since(text: str, now: float) -> str:
    """The time that the option means, in the format of the records. `now`: Unix time.

    Raises ValueError.
    """
    try:
        if "T" in text or "-" in text[1:]:
            found = datetime.fromisoformat(text)
            return timestamp((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        days = re.fullmatch(r"([0-9]{1,4})d", text, re.ASCII)
        seconds = parse_duration(text if days is None else f"{24 * int(days[1])}h")
        if seconds >= 0:
            return timestamp(now - seconds)
    except (ValueError, OverflowError, OSError, QuantityError):
        pass
    raise ValueError(
        "must be a duration such as 2h, 90m or 7d, or a time such as 2026-11-22T10:00:00Z, but it"
        f" was {text!r}"
    )


def selected(
    documents: Iterable[Json], start: str = "", about: str = "", *, limit: int | None = None
) -> list[Json]:
    """The newest `limit` documents since the time `start`. With `about`, only those with a removal
    of such an object, and only these removals."""
    found: deque[Json] = deque(maxlen=limit)
    for document in documents:
        removals = [removal for removal in document.get("removals", ()) if is_about(removal, about)]
        returned = document["kind"] == "returned" and is_about(document, about)
        if document["time"] >= start and (removals or returned or not about):
            found.append({**document, "removals": removals} if removals and about else document)
    return list(found)


def is_about(found: Fields, text: str, shortest_id: int = 0) -> bool:
    """Whether the name of the object contains the text, or its id begins with it, with or without
    `sha256:`, if it has at least `shortest_id` characters."""
    return text in found["name"] or (
        len(text) >= shortest_id and found["id"].startswith((text, f"sha256:{text}"))
    )


def history_lines(documents: Iterable[Json], width: int | None) -> list[str]:
    """A table with a line for each removal and for each pass, the newest last. `width`: columns of
    the terminal; None: lines of any length."""
    rows = [HEADS, *(row for document in documents for row in _rows(document))]
    # an event has not all of them
    return table([(*row, *["-"] * (len(HEADS) - len(row))) for row in rows], width)


def _rows(document: Json) -> Iterator[Sequence[str]]:
    """The first columns of `HEADS`, for each removal and for the record itself."""
    at = f"{document['time'][:19]}Z"
    kind = document["kind"]
    identity = document.get("id") or document.get("pass") or "-"
    for removal in document.get("removals", ()):
        result = removal["result"]
        size = removal["size"]
        frees = frees_in_words(
            result, freed=removal["freed"]["bytes"], frees=removal.get("frees"), size=size
        )
        removed = removal["kind"], removal["name"], _bytes(size), frees
        yield (at, result, *removed, removal["reason"], identity)
    if kind == "pass":
        acted_on = document["acted_on"]
        what = acted_on["signal"] if acted_on else ", ".join(document["row"])
        needed = acted_on and acted_on.get("needed")
        coming = needed and needed_in_words(needed)
        sentence = ": ".join(filter(None, (what, coming, document["reason"])))
        result = document["result"]
        measured = None if result == PassResult.DRY_RUN else document["measured"]["bytes"]
        sizes = _bytes(document["nominal"]["bytes"]), _bytes(measured)
        yield (at, result, "pass", sentence, *sizes, document["trigger"], identity)
    elif kind == "returned":
        yield (at, kind, "image", document["name"], _bytes(document["size"]))
    elif kind in ("started", "stopped"):
        yield (at, kind, "daemon", f"reclaimd {document['version']}")
    elif kind == "dropped":
        yield (at, kind, "daemon", f"{document['records']} records that could not be written")


def _bytes(value: int | None) -> str:
    return "-" if value is None else format_bytes(value)
