"""The functions of the reclaim table: which there are, which rotated logs go, how containerd's
garbage collection runs, and where there is room for a ballast."""

from __future__ import annotations

import pytest

from eviction.decision.synchronize import EvictionConfig
from eviction.engine.ballast import room_problem
from eviction.wording.explain import REASONS
from reclaim.cri import leases_pb2 as pb
from reclaim.cri.status import CallError, Code
from reclaim.functions import ballast, caches, checkpoints, rotated_logs, units
from reclaim.functions.ballast import BallastSettings
from reclaim.functions.containerd_garbage import (
    EXPIRE_LABEL,
    ID_PREFIX,
    LEASES_SERVICE,
    UNREFERENCED,
    GarbageCollection,
    examine,
)
from reclaim.functions.rotated_logs import LogFile, plan_rotated_logs, temporary_of
from reclaim.functions.table import FUNCTIONS
from reclaim.program import function as programs
from reclaim.types import (
    FREES,
    Action,
    Kind,
    Plan,
    Reason,
    ReclaimError,
    RemovalFailed,
    RuntimeVersion,
    Verdict,
)
from signals.types import FilesystemRole
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, NOW_NS, SECOND_NS, SteppedClock
from tests.rows import rows

# ---- the table


def test_the_rows_call_exactly_these_functions() -> None:
    """Each with where it frees, so that a row is examined without the functions themselves; every
    kind of object belongs to one, and every reason has words for people."""
    assert EvictionConfig().functions == FUNCTIONS.keys()
    frees = {
        "DeleteAllUnusedContainers": FilesystemRole.CONTAINERFS,
        "DeleteUnusedImages": FilesystemRole.IMAGEFS,
    }
    assert {name: function.frees for name, function in FUNCTIONS.items()} == FREES == frees
    assert set(Kind) <= {kind for function in FUNCTIONS.values() for kind in function.kinds}
    of_files = {*rotated_logs.REASONS, *units.REASONS, *caches.REASONS, checkpoints.NEWEST}
    of_others = {*ballast.REASONS, *programs.REASONS, *of_files, UNREFERENCED}
    assert set(REASONS) == {*Reason, *of_others}


# ---- rotated logs

POD = b"shop_web-0_6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
AN_HOUR = 3600.0


def log(
    name: str, age_seconds: float = AN_HOUR, container: str = "app", *, plain: bool = True
) -> LogFile:
    """A file of a container, written so long ago."""
    written_ns = NOW_NS - int(age_seconds * SECOND_NS)
    inode = 1, hash(name) & 0xFFFF
    return LogFile(POD, container.encode(), name.encode(), inode, MIB, written_ns, plain=plain)


def logs(text: str) -> list[LogFile]:
    """`1.gz@9`: the log of the 1st, compressed, written 9 s ago."""
    return [
        log(f"0.log.2026112{name[0]}-120000{name[1:]}", float(age or AN_HOUR))
        for name, _, age in (each.partition("@") for each in text.split())
    ]


def planned(*files: LogFile, keep: int = 1) -> Plan:
    """The plan for these files, and the current logs of which they were rotated."""
    given = {file.id: file for file in files}
    for file in files:
        if file.stamp:
            current = file._replace(
                name=file.name[: file.name.index(b".log.")] + b".log", plain=True
            )
            given.setdefault(current.id, current)
    return plan_rotated_logs(given.values(), keep, NOW_NS)


def told(plan: Plan) -> tuple[str, str]:
    """What goes, in order, and what stays beside the current logs, and why; days as in `logs`."""
    gone, kept = (
        " ".join(
            f"{verdict.id.rpartition('2026112')[2].replace('-120000', '')}:{verdict.reason}"
            for verdict in verdicts
            if verdict.reason != "current"
        )
        for verdicts in (plan.remove, plan.keep)
    )
    return gone.replace(":rotated", ""), " ".join(sorted(kept.split()))


def test_all_but_the_newest_go_and_the_current_log_never() -> None:
    """The oldest first. A verdict names pod, container and file; its id is the path below the log
    root, which leads to one file."""
    plan = planned(*logs("3 1.gz 2.gz"), log("0.log", 0.0))
    assert told(plan) == ("1.gz 2.gz", "3:newest_rotated")
    assert [each.id for each in plan.keep if each.reason == "current"] == [
        f"{POD.decode()}/app/0.log"
    ]
    first = plan.remove[0]
    path = "app/0.log.20261121-120000.gz"
    assert (first.id, first.name) == (f"{POD.decode()}/{path}", f"shop/web-0/{path}")
    assert (first.kind, first.size_bytes, first.age_seconds) == ("rotated_log", MIB, AN_HOUR)
    assert first.pod_uid == "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
    left = [len(planned(*logs("3 2 1"), keep=keep).remove) for keep in (0, 1, 2, 3, 9)]
    assert left == [3, 2, 1, 0, 0]


def test_a_container_keeps_its_newest_whichever_copy_wrote_it() -> None:
    """Not one of each restart; over all containers the oldest goes first."""
    names = ["0.log.20261105-000000", "1.log.20261101-000000", "0.log.20261103-000000"]
    others = ["0.log.20261106-000000", "0.log.20261102-000000", "0.log.20261104-000000"]
    plan = planned(*map(log, names), *(log(name, container="db") for name in others))
    assert [verdict.id[-9:-7] for verdict in plan.remove] == ["01", "02", "03", "04"]


@rows("""
    what                                                  | files         | gone                | kept
                                                          | 1.tmp@299 1 2 |                     | 1.tmp:being_rotated 1:being_rotated 2:newest_rotated
    left behind by a kubelet that died                    | 1.tmp@301 1 2 | 1 1.tmp:left_behind | 2:newest_rotated
    what is being compressed does not count as the newest | 3.tmp 2 1     | 1 3.tmp:left_behind | 2:newest_rotated
    both forms of one rotation count once                 | 2 2.gz 1.gz   | 1.gz                | 2.gz:newest_rotated 2:newest_rotated
""")
def test_what_a_compression_writes_stays_with_its_log_for_five_minutes(
    files: str, gone: str, kept: str
) -> None:
    """After that both go. It writes to the name of the log with `.tmp` behind it."""
    assert told(planned(*logs(files))) == (gone, kept)
    assert temporary_of(b"0.log.1") == temporary_of(b"0.log.1.gz") == b"0.log.1.tmp"


@rows("""
    files    | keep | gone
    1@9 2    | 1    |
    1@9      | 0    |
    1@11     | 0    | 1
    1.gz@9 2 | 1    | 1.gz
    1.gz@9   | 0    | 1.gz
""")
def test_a_rotated_log_that_was_just_written_may_be_the_one_that_is_written(
    files: str, keep: int, gone: str
) -> None:
    """Between the rename and the opening of a new log; also where a clock that was set back made it
    no newest one. Nobody writes a compressed one."""
    assert told(planned(*logs(files), keep=keep))[0] == gone


def test_while_there_is_no_current_log_what_was_rotated_may_be_the_one_that_is_written() -> None:
    """The runtime has not opened a new one, for however long."""
    files = [*logs("1 2.gz"), log("1.log")]
    assert told(plan_rotated_logs(files, 0, NOW_NS)) == ("2.gz", "1:being_rotated")
    assert told(plan_rotated_logs([*files, log("0.log")], 0, NOW_NS)) == ("1 2.gz", "")


def test_what_the_kubelet_does_not_name_so_stays() -> None:
    """However old it is; so does what is no plain file, or a directory that was not entered, which
    counts for no rotated log either."""
    stamp = "0.log.20261121-120000"
    others = f"notes.txt x.log 00000000000.log 0.log.bak 0.log.20261121 0.log.2026112a-120000 {stamp}.zst"
    files = [
        *map(log, [*others.split(), f"{stamp}.gz.tmp", f"{stamp}\n"]),
        *(log(name, plain=False) for name in ("0.log", "0.log.20261122-120000")),
        LogFile(b"lost+found", problem=Reason.NOT_KUBELETS),
        LogFile(POD, b"app", problem=Reason.UNREADABLE),
    ]
    for file in files:
        plan = planned(file, *logs("1"))
        reasons = {verdict.id: verdict.reason for verdict in plan.keep}
        assert reasons[file.id] == (file.problem or Reason.NOT_KUBELETS)
        assert (plan.remove, "newest_rotated" in reasons.values()) == ((), True)
    assert told(planned(*logs("1"))) == ("", "1:newest_rotated")


# ---- containerd's garbage collection

GARBAGE = Verdict("content", "containerd-garbage", "content", Action.REMOVE, "unreferenced")


class Containerd(MemoryRuntime):
    """A runtime whose leases service writes down what it was asked."""

    def __init__(self) -> None:
        super().__init__(SteppedClock(at=100.0))
        self.call_seconds = 10.0
        self.asked: list[tuple[str, bytes, float]] = []
        self.stage = GarbageCollection("Collect", self, self.clock, deadline_seconds=60.0)

    def version(self) -> RuntimeVersion:
        """CRI's Version may leave the name out."""
        return RuntimeVersion("", "1.0")

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """An empty message."""
        assert method.startswith(LEASES_SERVICE)
        self.asked.append((method.removeprefix(LEASES_SERVICE), request, seconds))
        self._called(self.asked[-1][0])
        return b""


def test_one_run_is_these_calls_within_one_deadline() -> None:
    """Each takes 10 s here: what is left of the 60 s is the deadline of the next; the last one is
    synchronous. A runtime without a name is asked nothing."""
    runtime = Containerd()
    with pytest.raises(
        ReclaimError, match="Collect is for containerd, but the runtime is one without a name"
    ):
        examine("Collect", runtime)
    assert (runtime.asked, runtime.stage.present(GARBAGE)) == ([], True)
    assert runtime.stage.remove(GARBAGE)
    assert not runtime.stage.present(GARBAGE)
    (create, made, first), (delete, last, second) = runtime.asked
    created, deleted = pb.CreateRequest.FromString(made), pb.DeleteRequest.FromString(last)
    assert (create, delete, first, second) == ("Create", "Delete", 60.0, 50.0)
    assert (deleted.id, deleted.sync) == (created.id, True)
    assert created.id.startswith(ID_PREFIX)
    assert list(created.labels) == [EXPIRE_LABEL]


def test_a_lease_that_is_not_there_to_be_deleted_is_a_failure() -> None:
    """Then no run has ended."""
    runtime = Containerd()

    def fails() -> None:
        raise CallError(Code.NOT_FOUND, "lease: not found")

    runtime.on_call["Delete"] = fails
    with pytest.raises(RemovalFailed, match="garbage collection: NOT_FOUND: lease: not found"):
        runtime.stage.remove(GARBAGE)
    assert runtime.stage.present(GARBAGE)


# ---- the ballast


def test_a_ballast_is_made_where_twice_its_size_is_available_above_the_mark() -> None:
    """A byte less is refused, with all the numbers. Its file may be at the root."""
    settings = BallastSettings("/var/lib/kubelet/reclaimd.ballast", 8 * MIB)
    assert (settings.directory, settings.name) == ("/var/lib/kubelet", "reclaimd.ballast")
    assert BallastSettings("/ballast", MIB).directory == "/"
    assert room_problem(16 * MIB, settings) is room_problem(26 * MIB, settings, 10 * MIB) is None
    assert room_problem(26 * MIB - 1, settings, 10 * MIB) is not None
    assert room_problem(20 * MIB, settings, 10 * MIB) == (
        "/var/lib/kubelet/reclaimd.ballast is not made: it needs twice its size above the mark of"
        " 10.0MiB, 26.0MiB, and 20.0MiB are available"
    )
