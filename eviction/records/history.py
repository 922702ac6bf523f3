"""The records of the history, each a compressed JSON document, and the thread that writes them, so
that no removal waits for the disk of the history.

Every pass that removed something, tried to, or would have is recorded. A pass without removals is
recorded at most once a minute for each result and signal: while the runtime is away, a pass fails
every second. Removals that do not fit into the record of their pass are in further records, which
are joined to it when they are read.

The records wait in a bounded queue. One that cannot be written (no file yet on a full disk, a lock
that is held, a copy-on-write filesystem without space) stays in the queue and is tried again every
5 s. One that does not fit into the queue is dropped and counted; as soon as records can be written
again, one says how many were dropped. The reason is logged once, until it changes.
"""

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Literal

from eviction.records.json_shapes import (
    LEFT_OUT,
    Count,
    Document,
    LeftOut,
    Time,
    shortened,
    timestamp,
    to_json,
)
from eviction.records.listener import Backlog
from eviction.records.pass_json import OutcomeJson, RecordedPassJson, outcome_json, pass_json
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.records.store import LARGEST_RECORD_BYTES, HistoryStore, HistoryUnusable
from eviction.types import Json
from reclaim.images.records import Returned
from reclaim.types import Outcome
from reclaim.workers import NoThread
from signals.clock import Clock

MOST_REMOVALS = 32  # in one record: as many usually fit
LONGEST_TEXTS = (4096, 512, 64, 32)  # characters; tried in turn until a record fits

REPEAT_SECONDS = 60.0
MOST_WAITING = 256  # records, of 4 KiB at most
RETRY_SECONDS = 5.0
END_SECONDS = 1.0


class WrittenJson(Document):
    """What every record has."""

    time: Time
    """When it was written."""


class PassRecordJson(RecordedPassJson, WrittenJson):
    """One pass, with all its removals: the record of a pass without observations and kept objects.
    That of a periodic loop has no layout, and its `measured` is what the filesystem had gained
    right after each removal."""

    kind: Literal["pass"]
    """What the record is."""
    trigger: Trigger
    """What started it."""


class RemovalsRecordJson(WrittenJson):
    """Further removals of a pass whose own record has been overwritten, or the end of one that its
    pass, which is not known then, did not wait for."""

    pass_: str | LeftOut = LEFT_OUT
    """The id of the pass that it is about."""
    kind: Literal["removals", "parked_ended"]
    """What the record is."""
    removals: list[OutcomeJson]
    """The objects, in order."""


class ReturnedRecordJson(Document):
    """An image that had gone is there again."""

    kind: Literal["returned"]
    """What the record is."""
    time: Time
    """When it was listed again, or pulled before that, as far as the runtime says."""
    id: str
    """The id of the image."""
    name: str
    """Its first tag, else its first digest, else its id."""
    size: Count
    """Its size in bytes, as the runtime reports it."""
    gone_id: str
    """The id of the image that had gone: another one if only its tag came back."""


class DaemonRecordJson(WrittenJson):
    """The daemon has started, or stopped."""

    kind: Literal["started", "stopped"]
    """What the record is."""
    version: str
    """The version of reclaimd."""
    pid: Count
    """The id of its process."""


class DroppedRecordJson(WrittenJson):
    """Records that could not be written."""

    kind: Literal["dropped"]
    """What the record is."""
    records: Count
    """How many."""


RecordJson = (
    PassRecordJson | RemovalsRecordJson | ReturnedRecordJson | DaemonRecordJson | DroppedRecordJson
)


def pass_records(record: Pass, wall: float) -> list[bytes]:
    """The records of a pass."""
    return encoded(
        to_json(
            PassRecordJson.of(pass_json(record, with_kept=False), kind="pass", time=timestamp(wall))
        )
    )


def encoded(document: Json) -> list[bytes]:
    """The records of a document, each of which fits into a slot of the file.

    Removals that do not fit are in further records. Where a single one does not, or what is beside
    them, texts are cut: a runtime may return anything.
    """
    removals = document.get("removals", [])
    record = b""
    if len(removals) <= MOST_REMOVALS:
        record = _compressed(document)
        if len(record) <= LARGEST_RECORD_BYTES:
            return [record]
    if len(removals) > 1:
        half = len(removals) // 2
        further = {
            "kind": "removals",
            "time": document["time"],
            "pass": document.get("pass", document.get("id")),
        }
        return [
            *encoded({**document, "removals": removals[:half]}),
            *encoded({**further, "removals": removals[half:]}),
        ]
    for longest in LONGEST_TEXTS:
        record = _compressed(_cut(document, longest))
        if len(record) <= LARGEST_RECORD_BYTES:
            break
    return [record]


def _compressed(document: Json) -> bytes:
    # characters that UTF-8 cannot encode become JSON escapes
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "backslashreplace"))


def _cut(value: Any, longest: int) -> Any:
    match value:
        case str() if len(value) > longest:
            return f"{value[: longest - 1]}…"
        case dict():
            return {key: _cut(part, longest) for key, part in value.items()}
        case list():
            return [_cut(part, longest) for part in value]
        case _:
            return value


def documents_of(records: Iterable[bytes]) -> Iterator[Json]:
    """The documents of records, with the further removals of a pass joined to it."""
    last: Json = {}
    for record in records:
        document = json.loads(zlib.decompress(record))
        if document["kind"] == "removals" and last.get("id") == document["pass"]:
            last["removals"] += document["removals"]
            continue
        if last:
            yield last
        last = document
    if last:
        yield last


@cache
def _version() -> str:
    """The version of reclaimd, read once: at the end of a daemon no descriptor may be free."""
    # takes as long to import as all the rest, and only the daemon needs it
    from importlib import metadata

    return metadata.version("reclaimd")


class HistoryRecorder(Backlog):
    """The history of one process. Only `finish` waits.

    `path`: empty for none. `warn`: called with each new problem, on the thread of the history.
    `records`: how many were written since startup.
    """

    def __init__(
        self,
        path: str,
        size_bytes: int,
        clock: Clock,
        *,
        warn: Callable[[str], None],
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        super().__init__("history", MOST_WAITING)
        self._store = HistoryStore(path, size_bytes)
        self._clock = clock
        self._warn = warn
        self._retry_seconds = retry_seconds
        # when a pass without removals was, by its result and signal
        self._recorded: dict[tuple[str, ...], float] = {}
        self._finishing = threading.Event()
        self._warned: set[str] = set()
        self.records = 0
        try:
            if path:
                self.start()
        except NoThread:
            warn("the history is not written: no thread can be started for it")
        self.put(lambda: self._try(self._store.open))  # allocated now, while there is room

    def daemon(self, kind: Literal["started", "stopped"]) -> None:
        """Records that the daemon has started, or ends."""
        self._record(kind, version=_version(), pid=os.getpid())

    def passed(self, record: Pass) -> None:
        self._write_pass(record, str(record.result), str(record.decision.signal or ""))

    def collected(self, record: Pass) -> None:
        """A pass of a periodic loop that had nothing to do is not recorded."""
        if record.removals or record.result is PassResult.FAILED:
            self._write_pass(record, *record.row)

    def _write_pass(self, record: Pass, *what: str) -> None:
        """`what`: of a pass without removals; of the same ones, at most one a minute is written."""
        now = self._clock.monotonic()
        if not record.removals:
            if now - self._recorded.get(what, float("-inf")) < REPEAT_SECONDS:
                return
            self._recorded[what] = now
        self.write(*pass_records(record, self._clock.wall()))

    def parked_ended(self, outcome: Outcome) -> None:
        self._record("parked_ended", removals=[to_json(outcome_json(outcome))])

    def returned(self, returned: Returned) -> None:
        image = returned.image
        self._record(
            "returned",
            time=timestamp(returned.since),
            id=image.id,
            name=shortened(image.title),
            size=image.size_bytes,
            gone_id=returned.gone_id,
        )

    def tell_dropped(self, count: int) -> None:
        self._record("dropped", records=count)

    def _record(self, kind: str, **fields: Any) -> None:
        self.write(*encoded({"kind": kind, "time": timestamp(self._clock.wall()), **fields}))

    def write(self, *records: bytes) -> None:
        """Queues records, and drops those that do not fit into it, or into a slot."""
        for record in records:
            if len(record) <= LARGEST_RECORD_BYTES:
                self.put(partial(self._write, record))
            else:
                self.dropped += 1

    def finish(self, seconds: float = END_SECONDS) -> bool:
        """Waits at most `seconds` until each record that waits is written, or was tried once more.
        False if the disk did not answer by then."""
        self._finishing.set()
        return super().finish(seconds)

    # ---- on the thread

    def _write(self, record: bytes) -> None:
        """Tries until it is written, or the process ends."""
        while not self._try(lambda: self._store.append(record)):
            if self._finishing.wait(self._retry_seconds):
                return
        self.records += 1
        self._warned = {self._store.note}  # what comes after a success is new

    def _try(self, do: Callable[[], object]) -> bool:
        """Whether it succeeded. A problem is passed to `warn` once."""
        problem = ""
        try:
            do()
        except Exception as error:  # noqa: BLE001 # a defect must not end the thread: the records are tried again
            kind = "" if isinstance(error, HistoryUnusable) else f"{type(error).__name__}: "
            problem = f"the history is not written: {kind}{error}"
        for sentence in {problem, self._store.note} - self._warned - {""}:
            self._warned.add(sentence)
            self._warn(sentence)
        return not problem
