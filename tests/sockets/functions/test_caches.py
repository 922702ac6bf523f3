"""What goes of caches and checkpoints on real filesystems beside real processes, and what nobody can
make go."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from eviction.drill.private_mounts import unmount
from eviction.survey.space import TimeLimit, caches_below
from reclaim.function import Ready, Refused
from reclaim.functions.caches import CacheSettings, CacheUnits
from reclaim.functions.checkpoints import Checkpoints, CheckpointSettings
from reclaim.functions.units import HIDDEN, Unit, UnitStage
from reclaim.types import (
    PodSandbox,
    PodSandboxState,
    ReclaimError,
    RemovalFailed,
    Result,
    Runtime,
    Verdict,
)
from reclaim.workers import Workers
from signals.clock import SystemClock
from signals.mounts import read_mounts
from signals.types import Signal
from tests.conftest import MOUNTS
from tests.nodes.small_node import SmallNode, relieve
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock
from tests.rows import rows
from tests.sockets.foreign import happens
from tests.sockets.mounts import bound, need_mounts
from tests.sockets.pod_logs.trees import before_each_call, plant

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


def model(hub: Path, name: str) -> None:
    """A unit as Hugging Face's hub has it."""
    plant(hub / name, "blobs/x", "snapshots/")
    (hub / name / "snapshots" / "model.bin").symlink_to("../blobs/x")


@contextmanager
def using(unit: Path, how: str) -> Iterator[None]:
    """A process that uses the unit."""
    command = [sys.executable, "-c", USES[how] + THEN_WAIT, str(unit)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[MemoryRuntime]:
    """A runtime of which only the process behind its socket matters: it is seen from here."""
    made = MemoryRuntime(SteppedClock())
    made.runtime_path = str(tmp_path / "cri.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(made.runtime_path)
        listening.listen(1024)
        yield made


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A cache with one model."""
    made = tagged(tmp_path / "hub")
    model(made, "models--a")
    return made


def stage_of(runtime: Runtime, root: Path) -> CacheUnits:
    """All units below a root may go at once."""
    return CacheUnits(CacheSettings((str(root),), 0.0), runtime, SystemClock())


def planned(stage: UnitStage) -> tuple[Verdict, ...]:
    """What would go."""
    plan = stage.plan()
    return () if plan is None else plan.remove


def content_of(directory: Path) -> set[str]:
    """Every path below it."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@rows("""
    what                            | made                                                                           | units
    a model or data set of a hub    | models--a/blobs/x datasets--b/blobs/x .locks/y version.txt                     | models--a datasets--b
    an unpacked wheel of uv         | archive-v0/abc/lib/x.py archive-v0/def/y wheels-v5/index/x sdists-v9/z         | archive-v0/abc archive-v0/def
    a crate of cargo                | cache/index-1/a-1.0.crate src/index-1/a-1.0/lib.rs index/index-1/.cache/a      | cache/index-1/a-1.0.crate src/index-1/a-1.0
    else what lies there            | wheels/a/b file .hidden/c                                                      | wheels file .hidden
""")
def test_a_unit_is_what_its_tool_takes_as_a_whole(
    tmp_path: Path, runtime: Runtime, made: str, units: str
) -> None:
    """By what lies in a tagged directory, some levels below the root; a symlink is none."""
    cache = tagged(tmp_path / "root" / "pod" / "cache")
    plant(cache, *made.split())
    (cache / "latest").symlink_to(cache / made.partition("/")[0])
    stage = stage_of(runtime, tmp_path / "root")
    verdicts = planned(stage)
    assert {os.path.relpath(each.id, cache) for each in verdicts} == {*units.split()}
    before = content_of(cache)
    for verdict in verdicts:
        assert isinstance(stage.check(verdict), Ready)
        assert stage.remove(verdict)
        assert not stage.present(verdict)
        assert isinstance(stage.check(verdict), Refused)
    below = tuple(f"{unit}/" for unit in units.split())
    gone = before - content_of(cache)
    assert gone == {path for path in before if f"{path}/".startswith(below)}


@pytest.mark.parametrize("how", USES)
def test_what_a_process_uses_stays(hub: Path, runtime: Runtime, how: str) -> None:
    """In the plan; if it begins after the plan, in the check; and at the last moment, when it has
    its name again after a moment. This process is not counted: it is the one that looks."""
    stage = stage_of(runtime, hub)
    with (hub / "models--a" / "blobs" / "x").open():
        (verdict,) = planned(stage)
    before = content_of(hub)
    with using(hub / "models--a", how):
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
    hub: Path, runtime: Runtime
) -> None:
    """Nothing stays hidden from those who use it."""
    stage = DiskThatFails(CacheSettings((str(hub),), 0.0), runtime, SystemClock())
    before = content_of(hub)
    (verdict,) = planned(stage)
    with pytest.raises(RemovalFailed, match="Input/output error"):
        stage.remove(verdict)
    assert content_of(hub) == before


@rows("""
    what                           | changed
    a file in it is written        | touch hub/models--a/blobs/x
    it is another of its name      | mv hub/models--a hub/moved; cp -a hub/moved hub/models--a
    it is a symlink                | rm -r hub/models--a; ln -s $PWD/elsewhere hub/models--a
    what is above it is a symlink  | cp -a hub elsewhere; mv hub moved; ln -s elsewhere/hub hub
    the tag is gone                | rm hub/CACHEDIR.TAG
    the tag has another signature  | echo 'Signature: no' >hub/CACHEDIR.TAG
    something is mounted in it     | mount --bind elsewhere hub/models--a/blobs
""")
def test_what_changes_after_the_plan_stays(
    tmp_path: Path, hub: Path, runtime: Runtime, changed: str
) -> None:
    """Neither the check nor the removal alone lets it go, and nothing elsewhere is touched."""
    if "mount" in changed:
        need_mounts()
    plant(tmp_path / "elsewhere", "precious")
    stage = stage_of(runtime, tmp_path)
    (verdict,) = planned(stage)
    happens(changed, tmp_path)
    try:
        before = content_of(tmp_path)
        assert isinstance(stage.check(verdict), Refused)
        with suppress(RemovalFailed):
            assert not stage.remove(verdict)
        assert content_of(tmp_path) == before
    finally:
        unmount(str(hub / "models--a" / "blobs"))


@rows("""
    what                     | changed
    empty                    | : >CACHEDIR.TAG
    of another signature     | echo 'Signature: 0' >CACHEDIR.TAG
    that begins later        | sed -i 's/^S//' CACHEDIR.TAG
    a symlink                | mv CACHEDIR.TAG ../TAG; ln -s ../TAG CACHEDIR.TAG
    a directory              | rm CACHEDIR.TAG; mkdir CACHEDIR.TAG
    an environment of Python | touch pyvenv.cfg
""")
def test_a_directory_without_the_right_tag_is_no_cache(
    hub: Path, runtime: Runtime, changed: str
) -> None:
    """Nor is one whose tag is no file of its own, or an environment of Python, which uv tags,
    too."""
    happens(changed, hub)
    assert stage_of(runtime, hub).plan() is None


def test_what_an_interruption_left_goes_first_and_a_full_name_is_no_obstacle(
    tmp_path: Path, runtime: Runtime
) -> None:
    """Under its hidden name, whatever its age; a unit whose name has 255 bytes is hidden, too."""
    hub = tagged(tmp_path / "other")
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


def test_where_processes_cannot_be_seen_nothing_goes(hub: Path) -> None:
    """In a PID namespace that is neither the first nor the runtime's: these tests have one."""
    if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]":
        pytest.skip("needs a PID namespace of its own")
    with pytest.raises(ReclaimError, match="not all processes are seen here"):
        stage_of(MemoryRuntime(SteppedClock()), hub).plan()


class Pod:
    """Swaps symlinks, directories, files and mounts in its cache, as its seed decides."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.root, self.elsewhere = directory / "root", directory / "elsewhere"
        self.hub = tagged(self.root / "hub")
        model(self.hub, "models--a")
        model(tagged(self.elsewhere), "models--precious")
        (self.root / "beside").write_text("no unit")
        self._dice = random.Random(seed)  # noqa: S311 # no secret
        self._bound = False

    def acts(self) -> None:
        """Once in three times."""
        if self._dice.randrange(3) == 0:
            self.swap()

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


@pytest.mark.parametrize("seeds", [30, pytest.param(100_000, marks=pytest.mark.soak)])
def test_whatever_a_pod_does_before_each_call_nothing_outside_its_cache_goes(
    tmp_path: Path, runtime: Runtime, seeds: int
) -> None:
    """Two runs in a scene of its own for each seed; some units go, and some removals fail."""
    gone = failed = 0
    for seed in range(seeds):
        pod = Pod(tmp_path / str(seed), seed)
        before = content_of(pod.elsewhere)
        try:
            for _ in range(2):
                stage = stage_of(runtime, pod.root)
                try:
                    with before_each_call(pod.acts):
                        for verdict in planned(stage):
                            if isinstance(stage.check(verdict), Ready):
                                gone += stage.remove(verdict)
                except ReclaimError:
                    failed += 1
        finally:
            pod.ends()
        assert before <= content_of(pod.elsewhere), f"seed {seed}"
        assert (pod.root / "beside").exists(), f"seed {seed}"
        shutil.rmtree(tmp_path / str(seed))
    assert gone
    assert failed


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


# ---- checkpoints


CHECKPOINT = "checkpoints/checkpoint-gone_default-app-2026-11-0{}T10:00:00Z.tar"


def test_checkpoints_of_pods_that_are_gone_go_in_a_pass(small_node: SmallNode) -> None:
    """The oldest first; the newest of each container and of each pod stays, and what a file keeps."""
    small_node.run(small_node.run_pod("web"))
    root = small_node.disk / "kubelet"
    app = [CHECKPOINT.format(number) for number in range(4)]
    side, web = (app[0].replace(*each) for each in (("app", "side"), ("gone", "web")))
    of_pods = [f"pod-{each.replace('-app', '')}" for each in app[:2]]
    plant(root, *app, f"{app[0]}.keep", side, web, *(f"{each}/memory" for each in of_pods))
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        1 << 40,  # more than there is
        reclaimFunctions=[{"name": "DeleteCheckpoints", "keep": 1, "minAge": "0s"}],
        reclaimTable={"nodefs.available": ["DeleteCheckpoints"]},
    )
    record = relieve(node)
    gone = [each.verdict.id for each in record.removals if each.result is Result.REMOVED]
    assert [os.path.relpath(each, root) for each in gone] == [app[1], app[2], of_pods[0]]
    assert all((root / each).exists() for each in (app[0], app[3], side, web, of_pods[1]))


@rows("""
    what                          | made                                                                  | reason
    a file beside another         | checkpoints/other.keep                                                |
    a file keeps it               | checkpoints/checkpoint-gone_default-app-2026-11-01T10:00:00Z.tar.keep | keep_list
    its pod is there              | u1                                                                    | pod_alive
    a pod is there without a name | u2                                                                    | pod_unknown
""")
def test_a_checkpoint_is_looked_at_again_before_it_goes(
    tmp_path: Path, runtime: MemoryRuntime, made: str, reason: str | None
) -> None:
    """What is there only after the plan counts in the check, and at the last moment."""
    clock, pods = SteppedClock(), MemoryPods()
    runtime.hold(PodSandbox("s1", PodSandboxState.READY, 0, "u1", "gone", "default"))
    settings = CheckpointSettings(str(tmp_path), 0.0, keep=0)
    stage = Checkpoints(settings, context_of(runtime, clock, pods))
    plant(tmp_path, CHECKPOINT.format(1))
    (verdict,) = planned(stage)
    if "/" in made:
        plant(tmp_path, made)
    else:
        pods.uids.add(made)
    clock.step(2.0)  # lists of before are too old now
    if reason is None:
        assert isinstance(stage.check(verdict), Ready)
        assert stage.remove(verdict)
    else:
        assert stage.check(verdict) == Refused(reason)
        with pytest.raises(RemovalFailed, match=f"changed at the last moment: {reason}"):
            stage.remove(verdict)
    assert (tmp_path / CHECKPOINT.format(1)).exists() is (reason is not None)


# ---- caches as huggingface_hub, uv and cargo make them

# `CACHE_TOOLS=DIRECTORY` has their programs (`pip install huggingface_hub uv` in an environment of
# its own); cargo may be anywhere. What they download is served from loopback.
TOOLS = os.environ.get("CACHE_TOOLS", "")
NAMES = ("one", "two")
REGISTRIES = Path(__file__).with_name("registries.sh")


def program(name: str) -> str:
    """Its path; skips the test where there is none."""
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"no caches of real tools: no {name} (CACHE_TOOLS=)")
    return found


@contextmanager
def served(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """An address at which `registries.sh` has put its files into this directory; and what was
    asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = directory / self.path.lstrip("/")
            file = file / "index.html" if file.is_dir() else file
            content = file.read_bytes() if file.exists() else b""
            asked.append(f"{self.command} {self.path}")
            self.send_response(200 if content else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 # as the library calls it

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        directory.mkdir()
        subprocess.run([REGISTRIES, address], cwd=directory, check=True)
        try:
            yield address, asked
        finally:
            server.shutdown()
            thread.join()


def ran(*command: str, **environment: str) -> None:
    """A command that ends well."""
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120.0,
    )
    assert done.returncode == 0, done.stderr


def of_hugging_face(directory: Path, address: str) -> Path:
    """Two models."""
    python = Path(program("hf")).with_name("python")
    for name in NAMES:
        script = f"from huggingface_hub import hf_hub_download; hf_hub_download('org/{name}', 'x')"
        home = {"HF_HOME": str(directory), "HF_HUB_DISABLE_TELEMETRY": "1"}
        ran(str(python), "-c", script, HF_ENDPOINT=address, **home)
    return directory / "hub"


def of_uv(directory: Path, address: str) -> Path:
    """Two wheels."""
    cache = directory / "cache"
    ran(program("uv"), "venv", "--clear", str(directory / "venv"), UV_CACHE_DIR=str(cache))
    ran(
        *(program("uv"), "pip", "install", "--reinstall", *NAMES, "--link-mode", "copy"),
        UV_CACHE_DIR=str(cache),
        UV_INDEX_URL=f"{address}/simple",
        VIRTUAL_ENV=str(directory / "venv"),
    )
    return cache


def of_cargo(directory: Path, address: str) -> Path:
    """Two crates."""
    project = directory / "project"
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src" / "main.rs").write_text("fn main() {}\n")
    needs = "".join(f'{name} = {{version = "1.0.0", registry = "r"}}\n' for name in NAMES)
    package = '[package]\nname = "p"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n'
    (project / "Cargo.toml").write_text(package + needs)
    ran(
        *(program("cargo"), "fetch", "--manifest-path", str(project / "Cargo.toml")),
        CARGO_HOME=str(directory / "home"),
        CARGO_REGISTRIES_R_INDEX=f"sparse+{address}/index/",
        RUSTUP_HOME=os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
    )
    return directory / "home" / "registry"


@pytest.mark.parametrize(
    ("fetch", "downloads", "units"),
    [
        (of_hugging_face, "/org/{}/resolve/main/x", 2),
        (of_uv, "/simple/{0}/{0}-1.0-py3-none-any.whl", 2),
        (of_cargo, "/crates/{}/1.0.0/download", 4),
    ],
)
def test_a_tool_fetches_again_what_went(
    tmp_path: Path,
    runtime: Runtime,  # the fixture
    fetch: Callable[[Path, str], Path],
    downloads: str,
    units: int,
) -> None:
    """All units of its cache go; then it works as on the first day, and is asked for them again."""
    with served(tmp_path / "registries") as (address, asked):
        own = tmp_path / "tool"
        cache = fetch(own, address)
        stage = stage_of(runtime, own)
        verdicts = planned(stage)
        assert len(verdicts) == units
        assert all(Path(each.id).is_relative_to(cache) for each in verdicts)
        assert all(isinstance(stage.check(each), Ready) for each in verdicts)
        assert all(stage.remove(each) for each in verdicts)
        asked.clear()
        assert fetch(own, address) == cache
        assert {f"GET {downloads.format(name)}" for name in NAMES} <= set(asked)
        assert len(planned(stage_of(runtime, own))) == units
