"""What goes of caches on real filesystems beside real processes, and what nobody can make go."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eviction.drill.private_mounts import unmount
from eviction.survey.space import TimeLimit, caches_below
from reclaim.evidence.files_in_use import files_in_use
from reclaim.function import Ready, Refused
from reclaim.functions.caches import CacheSettings, CacheUnits
from reclaim.functions.units import HIDDEN, Unit
from reclaim.types import ReclaimError, RemovalFailed, Runtime, Verdict
from reclaim.workers import Workers
from signals.clock import SystemClock
from signals.mounts import read_mounts
from signals.types import Signal
from tests.conftest import MOUNTS
from tests.nodes.small_node import SmallNode, relieve
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock
from tests.sockets.mounts import bound

SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55\n"
MIB = 1 << 20
USES = {
    "open": "import sys; held = open(sys.argv[1] + '/blobs/x')",
    "mapped": "import mmap, sys; file = open(sys.argv[1] + '/blobs/x', 'r+b');"
    " held = mmap.mmap(file.fileno(), 0); file.close()",
    "locked": "import fcntl, os, sys; held = os.open(sys.argv[1] + '/blobs/x', os.O_RDWR);"
    " fcntl.flock(held, fcntl.LOCK_EX)",
    "its directory": "import os, sys; os.chdir(sys.argv[1] + '/blobs')",
}
THEN_WAIT = "; print('ready', flush=True); sys.stdin.read()"


def tagged(directory: Path) -> Path:
    """A directory that declares itself a cache."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "CACHEDIR.TAG").write_text(SIGNATURE)
    return directory


def model(hub: Path, name: str, size_bytes: int = 8192) -> Path:
    """A unit as Hugging Face's hub has it."""
    (hub / name / "blobs").mkdir(parents=True)
    (hub / name / "blobs" / "x").write_bytes(os.urandom(size_bytes))
    (hub / name / "snapshots").mkdir()
    (hub / name / "snapshots" / "model.bin").symlink_to("../blobs/x")
    return hub / name


@contextmanager
def using(unit: Path, how: str) -> Iterator[None]:
    """A process that uses the unit."""
    command = [sys.executable, "-c", USES[how] + THEN_WAIT, str(unit)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """A runtime of which only the process behind its socket matters: it is seen from here."""
    made = MemoryRuntime(SteppedClock())
    made.runtime_path = str(tmp_path / "cri.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(made.runtime_path)
        listening.listen(1024)
        yield made


def stage_of(runtime: Runtime, root: Path) -> CacheUnits:
    """All units below a root may go at once."""
    return CacheUnits(CacheSettings((str(root),), 0.0), runtime, SystemClock())


def planned(stage: CacheUnits) -> tuple[Verdict, ...]:
    """What would go."""
    plan = stage.plan()
    return () if plan is None else plan.remove


def content_of(directory: Path) -> set[str]:
    """Every path below it."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@pytest.mark.parametrize(
    ("made", "units"),
    [
        pytest.param(
            ("models--a/blobs/x", "datasets--b/blobs/x", ".locks/y", "version.txt"),
            {"models--a", "datasets--b"},
            id="a model or data set of a hub",
        ),
        pytest.param(
            ("archive-v0/abc/lib/x.py", "archive-v0/def/y", "wheels-v5/index/x", "sdists-v9/z"),
            {"archive-v0/abc", "archive-v0/def"},
            id="an unpacked wheel of uv",
        ),
        pytest.param(
            ("cache/index-1/a-1.0.crate", "src/index-1/a-1.0/lib.rs", "index/index-1/.cache/a"),
            {"cache/index-1/a-1.0.crate", "src/index-1/a-1.0"},
            id="a crate of cargo",
        ),
        pytest.param(("wheels/a/b", "file", ".hidden/c"), {"wheels", "file", ".hidden"}, id="else"),
    ],
)
def test_a_unit_is_what_its_tool_takes_as_a_whole(
    tmp_path: Path, runtime: Runtime, made: tuple[str, ...], units: set[str]
) -> None:
    """By what lies in a tagged directory, some levels below the root; a symlink is none."""
    cache = tagged(tmp_path / "root" / "pod" / "cache")
    for name in made:
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("x")
    (cache / "latest").symlink_to(cache / Path(made[0]).parts[0])
    stage = stage_of(runtime, tmp_path / "root")
    verdicts = planned(stage)
    assert {os.path.relpath(each.id, cache) for each in verdicts} == units
    before = content_of(cache)
    for verdict in verdicts:
        assert isinstance(stage.check(verdict), Ready)
        assert stage.remove(verdict)
        assert not stage.present(verdict)
        assert isinstance(stage.check(verdict), Refused)
    gone = before - content_of(cache)
    assert gone == {path for path in before if any(f"{path}/".startswith(f"{u}/") for u in units)}


@pytest.mark.parametrize("how", USES)
def test_what_a_process_uses_stays(tmp_path: Path, runtime: Runtime, how: str) -> None:
    """In the plan; if it begins after the plan, in the check; and at the last moment, when it has
    its name again after a moment."""
    hub = tagged(tmp_path / "hub")
    unit = model(hub, "models--used")
    stage = stage_of(runtime, hub)
    (verdict,) = planned(stage)
    before = content_of(hub)
    with using(unit, how):
        assert planned(stage_of(runtime, hub)) == ()
        assert stage.check(verdict) == Refused("open")
        with pytest.raises(RemovalFailed, match="changed at the last moment: open"):
            stage.remove(verdict)
        assert content_of(hub) == before
    later = stage_of(runtime, hub)
    assert [later.remove(each) for each in planned(later)] == [True]


class DiskThatFails(CacheUnits):
    """What is asked for last cannot be read."""

    def still_kept(self, unit: Unit) -> str:
        raise OSError(errno.EIO, "Input/output error")


def test_a_unit_that_cannot_be_looked_at_any_more_gets_its_name_back(
    tmp_path: Path, runtime: Runtime
) -> None:
    """Nothing stays hidden from those who use it."""
    hub = tagged(tmp_path / "hub")
    model(hub, "models--a")
    stage = DiskThatFails(CacheSettings((str(hub),), 0.0), runtime, SystemClock())
    before = content_of(hub)
    (verdict,) = planned(stage)
    with pytest.raises(RemovalFailed, match="Input/output error"):
        stage.remove(verdict)
    assert content_of(hub) == before


Change = Callable[[Path, Path], None]


def replace_by_another(hub: Path, _: Path) -> None:
    """Another directory gets the unit's name."""
    (hub / "models--a").rename(hub / "moved")
    model(hub, "models--a")


def sign_otherwise(hub: Path, _: Path) -> None:
    """The tag is another file."""
    (hub / "CACHEDIR.TAG").write_text("Signature: no")


def replace_by_symlink(hub: Path, elsewhere: Path) -> None:
    """The unit becomes a symlink to something else."""
    shutil.rmtree(hub / "models--a")
    (hub / "models--a").symlink_to(elsewhere)


def replace_above(hub: Path, elsewhere: Path) -> None:
    """The tagged directory becomes a symlink to one that is tagged, too."""
    shutil.copytree(hub, elsewhere / "hub", symlinks=True)
    shutil.move(hub, hub.with_name("moved"))
    hub.symlink_to(elsewhere / "hub")


CHANGES: dict[str, Change] = {
    "a file in it is written": lambda hub, _: (hub / "models--a/blobs/x").touch(),
    "it is another of its name": replace_by_another,
    "it is a symlink": replace_by_symlink,
    "what is above it is a symlink": replace_above,
    "the tag is gone": lambda hub, _: (hub / "CACHEDIR.TAG").unlink(),
    "the tag has another signature": sign_otherwise,
    "something is mounted in it": lambda hub, elsewhere: bound(
        str(elsewhere), str(hub / "models--a" / "blobs")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_after_the_plan_stays(tmp_path: Path, runtime: Runtime, change: str) -> None:
    """Neither the check nor the removal alone lets it go, and nothing elsewhere is touched."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    hub = tagged(root / "hub")
    model(hub, "models--a")
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    stage = stage_of(runtime, root)
    (verdict,) = planned(stage)
    CHANGES[change](hub, elsewhere)
    try:
        before = content_of(root), content_of(elsewhere)
        assert isinstance(stage.check(verdict), Refused)
        with suppress(RemovalFailed):
            assert not stage.remove(verdict)
        assert (content_of(root), content_of(elsewhere)) == before
    finally:
        if "mounted" in change:
            unmount(str(hub / "models--a" / "blobs"))


@pytest.mark.parametrize(
    "tag", ["", "Signature: 0", SIGNATURE[1:], "a symlink", "a directory", "pyvenv.cfg"]
)
def test_a_directory_without_the_right_tag_is_no_cache(
    tmp_path: Path, runtime: Runtime, tag: str
) -> None:
    """Nor is one whose tag is no file of its own."""
    hub = tmp_path / "hub"
    model(hub, "models--a")
    if tag == "a symlink":
        (tmp_path / "TAG").write_text(SIGNATURE)
        (hub / "CACHEDIR.TAG").symlink_to(tmp_path / "TAG")
    elif tag == "pyvenv.cfg":  # uv tags environments, too
        tagged(hub)
        (hub / tag).touch()
    elif tag == "a directory":
        (hub / "CACHEDIR.TAG").mkdir()
    elif tag:
        (hub / "CACHEDIR.TAG").write_text(tag)
    assert stage_of(runtime, hub).plan() is None


def test_what_an_interruption_left_goes_first_and_a_full_name_is_no_obstacle(
    tmp_path: Path, runtime: Runtime
) -> None:
    """Under its hidden name, whatever its age; a unit whose name has 255 bytes is hidden, too."""
    hub = tagged(tmp_path / "hub")
    model(hub, (HIDDEN + b"4711").decode())
    model(hub, f"models--{'x' * 247}")
    stage = stage_of(runtime, hub)
    verdicts = planned(stage)
    assert [each.reason for each in verdicts] == ["interrupted", "cached"]
    assert all(stage.remove(each) for each in verdicts)
    assert content_of(hub) == {"CACHEDIR.TAG"}


def test_only_what_has_no_other_link_counts_as_freed(tmp_path: Path, runtime: Runtime) -> None:
    """uv links the files of its archives into environments."""
    cache = tagged(tmp_path / "cache")
    (cache / "archive-v0" / "a").mkdir(parents=True)
    for name in ("mine", "linked"):
        (cache / "archive-v0" / "a" / name).write_bytes(bytes(MIB))
    os.link(cache / "archive-v0" / "a" / "linked", tmp_path / "elsewhere")
    (verdict,) = planned(stage_of(runtime, cache))
    assert MIB <= (verdict.size_bytes or 0) < 2 * MIB


def test_where_processes_cannot_be_seen_nothing_goes(tmp_path: Path) -> None:
    """In a PID namespace that is neither the first nor the runtime's: these tests have one."""
    if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]":
        pytest.skip("needs a PID namespace of its own")
    hub = tagged(tmp_path / "hub")
    model(hub, "models--a")
    with pytest.raises(ReclaimError, match="not all processes are seen here"):
        stage_of(MemoryRuntime(SteppedClock()), hub).plan()


def test_pressure_is_relieved_by_the_longest_unused_units(small_node: SmallNode) -> None:
    """From the configuration to the disk: only as much as is needed goes, and the record says
    what; a model that is open stays."""
    hub = tagged(small_node.disk / "models" / "hub")
    oldest, used, newer, newest = (model(hub, f"models--{name}", 4 * MIB) for name in "abcd")
    with using(used, "open"):
        node = small_node.node(
            Signal.NODEFS_AVAILABLE,
            6 * MIB,
            reclaimFunctions=[{"name": "DeleteFromCaches", "caches": [str(hub)], "minAge": "0s"}],
            reclaimTable={"nodefs.available": ["DeleteFromCaches"]},
        )
        record = relieve(node)
    names = [Path(each.verdict.id).name for each in record.removals]
    assert names == [oldest.name, newer.name]
    assert sorted(path.name for path in hub.glob("models--*")) == [used.name, newest.name]
    assert sum(each.freed.bytes for each in record.removals) >= 8 * MIB
    reasons = {Path(each.verdict.id).name: each.verdict.reason for each in record.kept}
    assert reasons == {used.name: "open", newest.name: "relieved"}


def _read_all_the_while(
    unit: Path, begun: threading.Event, ends: threading.Event, failed: list[str]
) -> None:
    """A job: it works in its model's directory, and reads it again and again."""
    with using(unit, "its directory"):
        begun.set()
        while not ends.is_set():
            try:
                (unit / "snapshots" / "model.bin").read_bytes()
            except OSError as error:
                if not ends.is_set():
                    failed.append(str(error))


@pytest.mark.parametrize("runs", [pytest.param(5), pytest.param(200, marks=pytest.mark.soak)])
def test_a_job_that_reads_its_model_keeps_it(tmp_path: Path, runtime: Runtime, runs: int) -> None:
    """While all others go, run after run."""
    hub = tagged(tmp_path / "hub")
    read = model(hub, "models--read")
    begun, ends, failed = threading.Event(), threading.Event(), list[str]()
    job = threading.Thread(target=_read_all_the_while, args=(read, begun, ends, failed))
    job.start()
    begun.wait()
    try:
        for run in range(runs):
            model(hub, f"models--{run}")
            stage = stage_of(runtime, hub)
            for verdict in planned(stage):
                if isinstance(stage.check(verdict), Ready):
                    with suppress(RemovalFailed):
                        stage.remove(verdict)
            assert read.exists()
    finally:
        ends.set()
        job.join()
    assert failed == []


CALLS = frozenset(
    {"open", "os.link", "os.listdir", "os.remove", "os.rename", "os.rmdir", "os.scandir"}
)
"""What Python tells its audit hooks right before it asks the kernel."""


class Pod:
    """Swaps symlinks, directories, files and mounts in its cache, as its seed decides: on a thread,
    or right before each call of the thread that made it, so that nothing is between a look and the
    call but this."""

    now: Pod | None = None

    def __init__(self, directory: Path, seed: int) -> None:
        self.root, self.elsewhere = directory / "root", directory / "elsewhere"
        self.hub = tagged(self.root / "hub")
        model(self.elsewhere, "models--precious")
        (self.elsewhere / "CACHEDIR.TAG").write_text(SIGNATURE)
        (self.root / "beside").write_text("no unit")
        self._dice = random.Random(seed)  # noqa: S311 # no secret
        self._thread, self._bound = threading.get_ident(), False

    def swap(self) -> None:
        """One step of it, which may not be possible."""
        unit, other = self.hub / "models--a", self.hub / "models--b"
        precious = self.elsewhere / "models--precious"
        with suppress(OSError, pytest.skip.Exception):  # the latter where nothing can be bound
            match self._dice.randrange(10):
                case 0 | 1:
                    model(self.hub, self._dice.choice(("models--a", "models--b")))
                case 2:
                    unit.rename(other)
                case 3:
                    unit.symlink_to(precious)
                case 4:
                    unit.unlink()
                case 5:
                    self.hub.rename(self.root / "aside")
                    self.hub.symlink_to(self.elsewhere)
                case 6:
                    self.hub.unlink()
                    (self.root / "aside").rename(self.hub)
                case 7 if not (unit.is_symlink() or self._bound):  # or it moved what is precious
                    (unit / "blobs").rename(self.root / "blobs")
                    (unit / "blobs").symlink_to(precious)
                case 8:
                    (unit / "blobs" / "y").hardlink_to(precious / "blobs" / "x")
                case 9 if MOUNTS.available and not self._bound:
                    self._bound = True
                    bound(str(precious), str(self._dice.choice((unit, unit / "blobs"))))

    def ends(self) -> None:
        """Nothing of it stays mounted."""
        for mount in reversed(read_mounts()):  # the later ones may hide the others
            if mount.point.startswith(str(self.root.parent)):
                unmount(mount.point)


def before_a_call(event: str, arguments: tuple[object, ...]) -> None:
    """The pod of this thread, if there is one, acts once in three calls; what it calls is not
    told."""
    pod = Pod.now
    if pod is None or event not in CALLS or str(arguments[0]).startswith("/proc"):
        return
    if threading.get_ident() == pod._thread and pod._dice.randrange(3) == 0:
        Pod.now = None
        try:
            pod.swap()
        finally:
            Pod.now = pod


@pytest.mark.parametrize("seeds", [60, pytest.param(100_000, marks=pytest.mark.soak)])
def test_whatever_a_pod_does_before_each_call_nothing_outside_its_cache_goes(
    tmp_path: Path, runtime: Runtime, seeds: int
) -> None:
    """Two runs in a scene of its own for each seed; some units go, and some removals fail."""
    sys.addaudithook(before_a_call)
    gone = failed = 0
    for seed in range(seeds):
        pod = Pod(tmp_path / str(seed), seed)
        model(pod.hub, "models--a")
        before = content_of(pod.elsewhere)
        try:
            for _ in range(2):
                Pod.now = pod
                stage = stage_of(runtime, pod.root)
                try:
                    for verdict in planned(stage):
                        if isinstance(stage.check(verdict), Ready):
                            gone += stage.remove(verdict)
                except ReclaimError:
                    failed += 1
        finally:
            Pod.now = None
            pod.ends()
        assert before <= content_of(pod.elsewhere), f"seed {seed}"
        assert (pod.root / "beside").exists(), f"seed {seed}"
        shutil.rmtree(tmp_path / str(seed))
    assert gone
    assert failed


@pytest.mark.parametrize("turns", [20, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_pod_that_swaps_directories_loses_nothing_outside_its_cache(
    tmp_path: Path, runtime: Runtime, turns: int
) -> None:
    """The same beside the removals, on a thread."""
    pod, ends = Pod(tmp_path, 7), threading.Event()
    before = content_of(pod.elsewhere)

    def swap() -> None:
        while not ends.is_set():
            pod.swap()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(turns):
            stage = stage_of(runtime, pod.root)
            with suppress(ReclaimError):
                for verdict in planned(stage):
                    if isinstance(stage.check(verdict), Ready):
                        stage.remove(verdict)
    finally:
        ends.set()
        thread.join()
        pod.ends()
    assert before <= content_of(pod.elsewhere)
    assert (pod.root / "beside").exists()


def test_this_process_is_not_counted_and_others_are(runtime: Runtime, tmp_path: Path) -> None:
    """Its own descriptors are those of the look itself."""
    path = tmp_path / "file"
    path.write_text("x")
    with path.open():
        status = path.stat()
        assert not files_in_use(runtime.runtime_path).has(status, status.st_dev)
        with path.open() as file, subprocess.Popen(["sleep", "60"], stdin=file) as other:
            assert files_in_use(runtime.runtime_path).has(status, status.st_dev)
            other.kill()


def test_caches_that_nobody_collects_are_told_with_their_pod(tmp_path: Path) -> None:
    """The largest first; what a function names is left out, and so is what is small."""
    pods = tmp_path / "pods"
    cache = tagged(pods / "u1" / "volumes" / "kubernetes.io~empty-dir" / "hub")
    for directory, size_bytes in ((cache, 128 * MIB), (tagged(pods / "named"), 128 * MIB)):
        with (directory / "data").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
    tagged(pods / "small")
    limit = TimeLimit(Workers("a test", 1), SystemClock(), 30.0)
    (found,) = caches_below([str(pods), str(tmp_path / "missing")], [str(pods / "named")], limit)
    assert found.path == str(cache)
    assert found.bytes >= 128 * MIB
    assert found.sentence.startswith("128.0MiB are in a cache of pod u1 that no function removes")
