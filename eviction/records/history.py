"""The records of the history, each a JSON document of one line, and the thread that writes them, so
that no removal waits for the disk of the history.

Every pass that removed something, tried to, or would have is recorded. A pass without removals is
recorded at most once a minute for each result and signal: while the runtime is away, a pass fails
every second. Removals beyond the first eight of a pass are in further records, which are joined to
the pass when they are read.

The records wait in a bounded queue. One that cannot be written (no file yet on a full disk, a lock
that is held, a copy-on-write filesystem without space) stays in the queue and is tried again every
5 s. One that does not fit into the queue is dropped and counted; as soon as records can be written
again, one says how many were dropped. The reason is logged once, until it changes.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from eviction.records.json_shapes import (
    LEFT_OUT,
    Count,
    Document,
    Json,
    LeftOut,
    Time,
    one_of,
    to_json,
)
from eviction.records.listener import Listener
from eviction.records.observations_json import timestamp
from eviction.records.pass_json import (
    OutcomeJson,
    RecordedPassJson,
    outcome_json,
    pass_json,
    shortened,
)
from eviction.records.passes import Amounts, Pass, PassResult, Timings, Trigger
from eviction.records.store import LARGEST_RECORD_BYTES, HistoryStore, HistoryUnusable
from eviction.types import Decision
from reclaim.images.records import Returned
from reclaim.types import Outcome, ReclaimResult, Result
from signals.clock import Clock
from signals.quantity import counted
from signals.types import SignalObservations

MOST_REMOVALS = 8  # in one record; one removal has at most some 8 KiB
MOST_BYTES_OF_A_PASS = 32 << 10  # without its removals
LONGEST_TEXTS = (4096, 512, 64)  # characters; each is tried until the record is small enough
LONGEST_LIST = 32

REPEAT_SECONDS = 60.0
MOST_BYTES = 1 << 20  # of records that wait
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
    trigger: Annotated[str, one_of(Trigger)]
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
    return _with_removals(
        to_json(
            PassRecordJson.of(pass_json(record, with_kept=False), kind="pass", time=timestamp(wall))
        )
    )


def periodic_records(identity: str, result: ReclaimResult, wall: float) -> list[bytes]:
    """The records of a pass of a periodic loop."""
    record = Pass(
        identity,
        wall - result.seconds,
        Trigger.PERIODIC,
        SignalObservations({}, None, wall),
        Decision(frozenset(), (), None, (), None),
        (result.operation,),
        (result,),
        Amounts(result.freed_bytes, result.freed_inodes),
        result=PassResult.FAILED if result.error else PassResult.SATISFIED,
        reason=result.error or f"removed {counted(result.count(Result.REMOVED), 'object')}",
        timings=Timings(
            0.0, result.list_seconds, result.plan_seconds, result.remove_seconds, result.seconds
        ),
    )
    return pass_records(record, wall)


def encoded(record: object) -> bytes:
    """A document as one line. Characters that UTF-8 cannot encode become JSON escapes."""
    return json.dumps(to_json(record), ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def documents_of(records: Iterable[bytes]) -> Iterator[Json]:
    """The documents of records, with the further removals of a pass joined to it."""
    last: Json = {}
    for document in map(json.loads, records):
        if document["kind"] == "removals" and last.get("id") == document["pass"]:
            last["removals"] += document["removals"]
            continue
        if last:
            yield last
        last = document
    if last:
        yield last


def _with_removals(document: Json) -> list[bytes]:
    """The records of a pass.

    Its texts and lists are cut until it has at most 32 KiB: a runtime may return anything.
    """
    removals = document.pop("removals")
    for longest in LONGEST_TEXTS:
        document = _cut(document, longest)
        if len(encoded(document)) <= MOST_BYTES_OF_A_PASS:
            break
    further = {"kind": "removals", "time": document["time"], "pass": document["id"]}
    rest = [
        removals[start : start + MOST_REMOVALS]
        for start in range(MOST_REMOVALS, len(removals), MOST_REMOVALS)
    ]
    documents = [
        {**document, "removals": removals[:MOST_REMOVALS]},
        *({**further, "removals": each} for each in rest),
    ]
    return [encoded(each) for each in documents]


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else value[: longest - 1] + "…"
    if isinstance(value, dict):
        return {key: _cut(each, longest) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, longest) for each in value[:LONGEST_LIST]]
    return value


@dataclass(eq=False)
class HistoryRecorder(Listener):
    """The history of one process. All methods may be called from any thread; only `finish` waits.

    `path`: empty for none. `warn`: called with each new problem, on the thread of the history.
    `records`, `dropped`: how many records were written and how many dropped, since startup.
    """

    path: str
    size_bytes: int
    clock: Clock
    warn: Callable[[str], None]
    retry_seconds: float = RETRY_SECONDS
    records: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        self._store = HistoryStore(self.path, self.size_bytes)
        # when a pass without removals was, by its result and signal
        self._recorded: dict[tuple[str, ...], float] = {}
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()  # until they are on the disk, MOST_BYTES at most
        self._untold = 0
        self._problem = ""
        self._told: set[str] = set()
        self._finishing = False
        self._threaded = bool(self.path)
        try:
            if self._threaded:
                threading.Thread(target=self._run, name="history", daemon=True).start()
        except RuntimeError:
            self._threaded = False
            self.warn("the history is not written: no thread can be started for it")

    def daemon(self, kind: Literal["started", "stopped"]) -> None:
        """Records that the daemon has started, or ends."""
        if self._threaded:
            # takes as long to import as all the rest, and only the daemon needs it
            from importlib import metadata

            self._put(
                kind, self.clock.wall(), version=metadata.version("reclaimd"), pid=os.getpid()
            )

    def passed(self, record: Pass) -> None:
        acted_on = record.decision.acted_on
        if record.removals or self._is_due(
            str(record.result), "" if acted_on is None else str(acted_on.signal)
        ):
            self.put(*pass_records(record, self.clock.wall()))

    def collected(self, result: ReclaimResult) -> None:
        """A pass of a periodic loop that had nothing to do is not recorded."""
        if result.outcomes or (result.error and self._is_due(result.operation, "error")):
            self.put(*periodic_records(os.urandom(6).hex(), result, self.clock.wall()))

    def parked_ended(self, outcome: Outcome) -> None:
        self._put("parked_ended", self.clock.wall(), removals=[to_json(outcome_json(outcome))])

    def returned(self, returned: Returned) -> None:
        image = returned.image
        self._put(
            "returned",
            returned.since,
            id=image.id,
            name=shortened(image.title),
            size=image.size_bytes,
            gone_id=returned.gone_id,
        )

    def _put(self, kind: str, wall: float, **fields: Any) -> None:
        self.put(encoded({"kind": kind, "time": timestamp(wall), **fields}))

    def put(self, *records: bytes) -> None:
        """Queues records and drops those that do not fit. Does nothing without a thread."""
        with self._changed:
            for record in records if self._threaded else ():
                too_large = len(record) > LARGEST_RECORD_BYTES
                if (
                    too_large
                    or self._untold
                    or sum(map(len, self._waiting)) + len(record) > MOST_BYTES
                ):
                    self.dropped += 1
                    self._untold += 1
                    if not self._waiting:  # else this is recorded once something has been written
                        self._tell_dropped()
                else:
                    self._waiting.append(record)
            self._changed.notify_all()

    def finish(self, seconds: float = END_SECONDS) -> bool:
        """Waits until all records are on the disk, at most `seconds`, and ends the thread.

        True if all are written.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._problem, seconds)
            self._finishing = True
            self._changed.notify_all()
            return not self._waiting

    def _is_due(self, *what: str) -> bool:
        now = self.clock.monotonic()
        if now - self._recorded.get(what, float("-inf")) < REPEAT_SECONDS:
            return False
        self._recorded[what] = now
        return True

    def _tell_dropped(self) -> None:  # under the lock
        """Queues the record that says how many were dropped, if any were."""
        if self._untold:
            record = {
                "kind": "dropped",
                "time": timestamp(self.clock.wall()),
                "records": self._untold,
            }
            self._waiting.append(encoded(record))
            self._untold = 0

    # ---- on the thread

    def _run(self) -> None:
        self._try(self._store.open)  # allocated now, while there is room
        while not self._finishing:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._finishing)
                records = tuple(self._waiting)
            done = 0
            while (
                done < len(records)
                and not self._finishing
                and self._try(self._store.append, records[done])
            ):
                done += 1
            if done == len(records) and self._try(self._store.sync):
                self._told = {self._store.note}  # what comes after a success is new
            with self._changed:
                for _ in range(done):
                    self._waiting.popleft()
                self.records += done
                if done:
                    self._tell_dropped()
                self._changed.notify_all()
                if done < len(records):
                    self._changed.wait_for(lambda: self._finishing, self.retry_seconds)
        self._store.close()

    def _try(self, do: Callable[..., None], *record: bytes) -> bool:
        """Whether it succeeded. A problem is passed to `warn` once."""
        self._problem, problem = "", ""
        try:
            do(*record)
        except Exception as error:  # noqa: BLE001 # a defect must not end the thread: the records are tried again
            why = (
                error if isinstance(error, HistoryUnusable) else f"{type(error).__name__}: {error}"
            )
            problem = f"the history is not written: {why}"
        for sentence in (problem, self._store.note):
            if sentence and sentence not in self._told:
                self._told.add(sentence)
                self.warn(sentence)
        self._problem = problem
        return not problem
