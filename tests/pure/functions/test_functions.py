"""The functions of the reclaim table: which there are, what goes of rotated logs, caches and
checkpoints, and in which order, how containerd's garbage collection runs, and where there is room
for a ballast; and one periodic image garbage collection pass: its parts, their order, and what ends
it. Its rules are the kubelet's, unless a row says otherwise.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect)."""

from typing import Any

import pytest
import yaml

from eviction.decision.synchronize import EvictionConfig
from eviction.engine.ballast import room_problem
from eviction.engine.periodic import IMAGE, IMAGE_PERIOD_SECONDS
from eviction.engine.world import Asking
from eviction.records.passes import PeriodicLoop
from eviction.wording.explain import REASONS
from reclaim.evidence.states import PodStates, Why, distrust
from reclaim.functions import ballast, caches, checkpoints, rotated_logs, units
from reclaim.functions.ballast import BallastSettings
from reclaim.functions.caches import CacheSettings, plan_cache_units
from reclaim.functions.checkpoints import CheckpointSettings, plan_checkpoints, pods_that_may_exist
from reclaim.functions.containerd_garbage import UNREFERENCED, GarbageCollection, examine
from reclaim.functions.rotated_logs import LogFile, plan_rotated_logs, temporary_of
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.functions.units import HIDDEN, OPEN, Unit, reason_to_keep
from reclaim.functions.unused_images import IMAGE_GC, PeriodicImages
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.program import function as programs
from reclaim.types import (
    FREES,
    NEVER,
    Action,
    GCEvent,
    ImageRecord,
    Kind,
    Listing,
    Plan,
    PodSandbox,
    PodSandboxState,
    Reason,
    ReclaimError,
    ReclaimResult,
    RemovalFailed,
    RuntimeVersion,
    Verdict,
)
from signals.types import FilesystemRole
from tests.inline import Inline, disk_with
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, NOW_NS, SECOND_NS, SteppedClock, image, image_id
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


class Slow(MemoryRuntime):
    """A runtime without a name, each of whose calls takes 10 s; what is left of their deadline."""

    def version(self) -> RuntimeVersion:
        """CRI's Version may leave the name out."""
        return RuntimeVersion("", "1.0")

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """An empty message."""
        self.calls.append(f"{method.rpartition('/')[2]} {seconds:g}")
        self.clock.step(10.0)
        return b""


def test_the_calls_of_one_run_have_one_deadline() -> None:
    """And a runtime without a name is asked nothing."""
    runtime = Slow(SteppedClock())
    with pytest.raises(ReclaimError, match="but the runtime is one without a name"):
        examine("Collect", runtime)
    stage = GarbageCollection("Collect", runtime, runtime.clock, deadline_seconds=60.0)
    stage.remove(Verdict("content", "garbage", "content", Action.REMOVE, UNREFERENCED))
    assert runtime.calls == ["Create 60", "Delete 50"]


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


NOW, HOUR = 1e9, 3600.0
CACHES = CacheSettings(("/cache",), HOUR, keep=("models--kept--*", "hub/datasets--*"))


def unit(
    name: str, hours: float = 2, size: int = 10, problem: str = "", root: str = "/cache"
) -> Unit:
    """A unit below `root/hub` that was last used so many hours ago."""
    names = (b"hub", name.encode())
    return Unit(root, names, (1, 2), size, NOW - hours * HOUR, problem)


@rows("""
    what                        | name            | hours | problem | reason      | goes
    what was long not used goes | models--a       | 2     |         | cached      | yes
    what was used stays         | models--a       | 0.9   |         | used_lately |
    what is open stays          | models--a       | 2     | open    | open        |
    a pattern of the name keeps | models--kept--a | 2     |         | keep_list   |
    a pattern of the path keeps | datasets--a     | 2     |         | keep_list   |
    what was begun is finished  | HIDDEN7         | 0     |         | interrupted | yes
    unless it is open           | HIDDEN7         | 0     | open    | open        |
""")
def test_a_unit_of_a_cache(name: str, hours: float, problem: str, reason: str, goes: bool) -> None:
    """Goes, or stays, and why."""
    one = unit(name.replace("HIDDEN", HIDDEN.decode()), hours, problem=problem and OPEN)
    plan = plan_cache_units([one], CACHES, NOW)
    (verdict,) = plan.remove + plan.keep
    assert (verdict.reason, verdict.removed) == (reason.replace("open", OPEN), goes)
    assert (verdict.eligible_in_seconds is not None) == (reason == "used_lately")


def test_what_is_over_the_limit_of_its_directory_goes_first() -> None:
    """The oldest of 60 bytes below /cache until 30 are left, then what was left over, by age; the
    limit of one directory is not that of another, and what stays counts, too."""
    settings = CACHES._replace(roots=("/cache", "/other"), max_bytes=30)
    told = "young 0 20 /cache, a 5 10 /cache, b 4 10 /cache, c 3 10 /cache, d 2 10 /cache"
    units = []
    for each in f"{told}, small 9 30 /other, {HIDDEN.decode()}1 0 0 /cache".split(", "):
        name, hours, size, root = each.split()
        units.append(unit(name, float(hours), int(size), root=root))
    plan = plan_cache_units(units, settings, NOW)
    order = " ".join(f"{each.id.rpartition('/')[2]}:{each.reason}" for each in plan.remove)
    over = "a:over_limit_of_cache b:over_limit_of_cache c:over_limit_of_cache"
    assert order == f"{HIDDEN.decode()}1:interrupted {over} small:cached d:cached"


# ---- checkpoints

CHECKPOINTS = CheckpointSettings("/root", 24 * HOUR, keep=1)
TIME = "2026-11-29T10:00:0{}Z"


def checkpoint(of: str, hours: float, number: int = 0, problem: str = "") -> Unit:
    """A checkpoint as the kubelet names it, written so many hours ago."""
    name = f"checkpoint-{of}-{TIME.format(number)}.tar"
    return Unit("/root/checkpoints", (name.encode(),), (1, 2), 10, NOW - hours * HOUR, problem)


NEWER = checkpoint("web_shop-app", 25, 1)


@rows("""
    what                  | of           | pods         | problem | reason
    of a pod that is gone | web_shop-app | none         |         | pod_gone
    pods are not known    | web_shop-app |              |         | pod_unknown
    of a pod              | web_shop-app | web_shop     |         | pod_alive
    of a whole pod        | web_shop-app | web_shop-app |         | pod_alive
    of another namespace  | web_shop-app | web_sho      |         | pod_gone
    the newest            | db_shop-app  | none         |         | newest_checkpoint
    while it is written   | web_shop-app | none         | open    | open
    another file          |              | none         |         | not_kubelets
""")
def test_a_checkpoint(of: str, pods: str | None, problem: str, reason: str) -> None:
    """Beside a newer one of `web_shop-app`: why it goes or stays."""
    one = checkpoint(of, 30, problem=problem and OPEN)
    if not of:
        one = one._replace(names=(b"notes.txt",))
    plan = plan_checkpoints([one, NEWER], pods and [pods], CHECKPOINTS, now=NOW)
    (verdict,) = (each for each in plan.remove + plan.keep if each.id == one.id)
    assert (verdict.reason, verdict.removed) == (reason.replace("open", OPEN), reason == "pod_gone")


def test_a_young_checkpoint_and_a_marked_one_stay_and_the_oldest_goes_first() -> None:
    """By age, by the file beside it, and by their number."""
    units = [
        checkpoint(of, float(hours), number)
        for of, ages in (("a_b-c", "40 30 20 10"), ("a_b-d", "60 10"))
        for number, hours in enumerate(ages.split())
    ]
    places = {each.id: place for place, each in enumerate(units)}
    plan = plan_checkpoints(units, (), CHECKPOINTS, now=NOW, marked=[units[4].id])
    assert [places[each.id] for each in plan.remove] == [0, 1]
    kept = {places[each.id]: each.reason.partition("_")[0] for each in plan.keep}
    assert kept == {2: "used", 3: "newest", 4: "keep", 5: "newest"}


def test_which_pods_may_exist_is_not_known_with_a_doubt_or_a_pod_without_a_name() -> None:
    """Unknown is not gone: no name is known of a pod of which the runtime holds nothing yet."""
    listing = Listing(
        sandboxes=tuple(
            PodSandbox(f"s{uid}", PodSandboxState.READY, 0, uid, name, "shop")
            for uid, name in (("u1", "web"), ("u2", "gone"))
        )
    )
    one, two = frozenset({"u1"}), frozenset({"u1", "u3"})
    doubted = PodStates(one, doubt=distrust(Why.EXCHANGED, "it was exchanged"))
    states = (PodStates(one), PodStates(two), doubted, PodStates(None))
    found = [pods_that_may_exist(each, listing) for each in states]
    assert found == [frozenset({"web_shop"}), None, None, None]


@rows("""
    changes             | reason
    {}                  |
    {identity: [1, 3]}  | replaced
    {used_at: 1.0e+9}   | used_lately
    {used_at: 0.0}      |
    {problem: open}     | open
""")
def test_what_the_last_look_keeps(changes: dict[str, Any], reason: str) -> None:
    """Another entry of its name, a use since the plan, a process that has it. What was renamed is
    older than it was: its own time of change is left out."""
    planned = unit("models--a")
    if "problem" in changes:
        changes["problem"] = OPEN
    found = reason_to_keep(planned, planned._replace(**changes))
    assert found == reason.replace("open", OPEN)


CAPACITY = 1000  # MiB
NOW_SECONDS = 100_000.0
LATELY = ImageRecord(10_000.0, NOW_SECONDS - 60.0)
USUAL = yaml.safe_load("""
    {images: [1, 2, 3, 4], unreadable: "", lately: [], new: [], broken: [],
    available: 100, capacity: 1000, up for: 100000, exact: false,
    age: 0, high: 85, low: 80, keep: [], newest: 0}
""")


def passed(told: str) -> tuple[ReclaimResult, GCEvent | None, int]:
    """One pass, its event, and how often it has read the disk, which is full, on a node with a
    pause image and unused images of 50 MiB each that have been known for a day, last used one after
    the other by number. `lately`: images that were used a minute ago; `new`: that nobody has seen
    before; `broken`: those that cannot be removed."""
    given = USUAL | yaml.safe_load(f"{{{told}}}")
    clock, records = SteppedClock(at=NOW_SECONDS), dict.fromkeys(given["lately"], LATELY)
    records |= {
        number: ImageRecord(10_000.0 + number, 20_000.0 + number) for number in given["images"]
    }
    runtime, read = MemoryRuntime(clock), list[float]()
    runtime.hold(image(99, "registry.k8s.io/pause:3.9", pinned=True))
    for number in (*records, *given["new"]):
        runtime.hold(image(number, f"old:{number}", size_bytes=50 * MIB))

    def fail() -> None:
        raise RemovalFailed("device busy")

    for number in given["broken"]:
        runtime.on_call[f"remove_image {image_id(number)}"] = fail

    def stats() -> tuple[int | None, int | None]:
        read.append(clock.monotonic())
        if given["unreadable"]:
            raise OSError(given["unreadable"])
        capacity, available = (
            None if given[name] is None else given[name] * MIB for name in ("capacity", "available")
        )
        return capacity, available

    policy = ImageGCPolicy(
        max_age_seconds=given["age"],
        high_threshold_percent=given["high"],
        low_threshold_percent=given["low"],
        keep=parse_keep_list(given["keep"]),
        keep_newest_per_repository=given["newest"],
        pod_start_seconds=0.0,
    )
    known = ImageRecords(seed={image_id(number): record for number, record in records.items()})
    function = PeriodicImages(
        NOW_SECONDS - given["up for"], stats, lambda: given["exact"]
    ).function()
    engine = Inline(
        clock,
        table_of(function),
        lambda facts: context_of(runtime, clock, records=known, images=policy, facts=facts),
        read=disk_with(lambda: (CAPACITY - 50 * len(runtime.images)) * MIB),
    )
    engine.look()
    engine.world = engine.world._replace(
        on_its_own=True,
        periodic={IMAGE: PeriodicLoop(IMAGE, IMAGE_PERIOD_SECONDS, clock.monotonic())},
        asking=Asking(locate_due=NEVER, refresh_due=NEVER),
    )
    engine.until(lambda: engine.world.passes_begun > 0 and not engine.world.passes)
    told_of: dict[str, Any] = {each.what: each.about for each in engine.told}
    (record,) = told_of["collected"]
    _, _, event = told_of.get("collection_ended", (None, None, None))
    return record.functions[0], event, len(read)


def done(reclaim: ReclaimResult) -> str:
    """What became of each image that was tried, in order."""
    return ", ".join(f"{int(one.verdict.id[7:15], 16)} {one.result}" for one in reclaim.outcomes)


@rows("""
    given                                                            | outcomes                                   | error                                                                                      | event               | what
    images: [3, 1, 2, 4]                                             | 1 removed, 2 removed                       |                                                                                            |                     | to the low mark exactly, the least recently used first
    available: 159                                                   | 1 removed                                  |                                                                                            |                     | 15.9 % available is 85 % used, which acts
    available: 160                                                   |                                            |                                                                                            |                     |
    available: 1001, high: 1, low: 1                                 |                                            |                                                                                            |                     | more available than capacity is usage 0
    available: 205, high: 80, low: 80                                | 1 removed                                  |                                                                                            |                     | 79.5 % is rounded up: equal marks cost one image
    available: 205, high: 80, low: 80, broken: [1]                   | 1 failed, 2 removed                        | 1 failed removal: old:1: device busy                                                       |                     | a target below 0 goes on after a failure
    available: 9, high: 100, age: 1000000                            | 1 removed, 2 removed, 3 removed, 4 removed |                                                                                            |                     | a high mark of 100 acts below 1 %
    available: 10, high: 100, age: 1000000                           |                                            |                                                                                            |                     |
    images: [1]                                                      | 1 removed                                  | volumes, or other data.                                                                    | FreeDiskSpaceFailed |
    broken: [1]                                                      | 1 failed, 2 removed, 3 removed             | wanted to free 104857600 bytes of images and freed 104857600, with 1 failed removal: old:1: device busy |                     |
    images: [1, 2], broken: [1]                                      | 1 failed, 2 removed                        | 1 failed removal: old:1: device busy                                                       |                     | failures come before too little freed
    broken: [1, 2, 3, 4]                                             | 1 failed, 2 failed, 3 failed, 4 failed     | old:1: device busy; old:2: device busy; old:3: device busy; and 1 more                     |                     |
    broken: [2], age: 3600                                           | 1 removed, 2 failed, 3 removed, 4 removed  | maximum age of images: 1 failed removal: old:2: device busy                                |                     | and the disk is not read
    capacity: 0                                                      |                                            | has no valid capacity (0 bytes)                                                            | InvalidDiskCapacity |
    capacity: null                                                   |                                            | has no valid capacity (0 bytes)                                                            | InvalidDiskCapacity |
    available: null, images: [1, 2, 3, 4, 5]                         | 1 removed, 2 removed, 3 removed, 4 removed |                                                                                            |                     | unknown counts as 0
    available: 500, age: 3600, up for: 3600                          |                                            |                                                                                            |                     | an uptime of exactly the maximum age is not enough
    images: [1], available: 500, age: 3600, up for: 3601             | 1 removed                                  |                                                                                            |                     | a second more is
    images: [1, 2], lately: [5], available: 500, high: 83, age: 3600 | 1 removed, 2 removed                       |                                                                                            |                     | old images go though there is room
    images: [1, 2], lately: [5], available: 170, high: 83, age: 3600 | 1 removed, 2 removed, 5 removed            |                                                                                            |                     | before one that was used lately, and are not credited
    images: [], new: [5], available: 500, age: 3600                  |                                            |                                                                                            |                     | pulled seconds ago, no container yet: a difference
    images: [], new: [5], available: 500, age: 3600, exact: true     | 5 removed                                  |                                                                                            |                     | as the kubelet does it
    unreadable: EIO                                                  |                                            | the image filesystem cannot be read: EIO                                                   |                     | nothing goes blind
    images: [1, 2], keep: [old], age: 3600                           |                                            | volumes, or other data.                                                                    | FreeDiskSpaceFailed |
    newest: 3, age: 3600                                             | 1 removed                                  | volumes, or other data.                                                                    | FreeDiskSpaceFailed |
    newest: 3                                                        | 1 removed                                  | volumes, or other data.                                                                    | FreeDiskSpaceFailed |
""")
def test_a_pass(given: str, outcomes: str, error: str, event: str) -> None:
    """90 % of 1000 MiB are used and 100 MiB wanted, if nothing else is said."""
    reclaim, found, readings = passed(given)
    assert readings <= ("maximum age" not in error), "the disk is read after that, if at all"
    assert (done(reclaim), reclaim.operation) == (outcomes, IMAGE_GC)
    assert reclaim.nominal_bytes == outcomes.count("removed") * 50 * MIB
    assert reclaim.error.endswith(error)
    assert (reclaim.error != "") is (error != "")
    assert (found and (found.reason, found.message)) == ((event, reclaim.error) if event else None)
