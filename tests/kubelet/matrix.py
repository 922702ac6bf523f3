"""The matrix: fills of nodes of every kubelet, runtime, filesystem and rate, each with
every responder, a file a run.

Each round has every combination once, in a new order, with the responders of one combination one
after another, so that a slow hour of the machine meets all alike. A run is a process of its own,
which makes its node while the node of the last run settles and ends; a disk fills only when that
process has ended and no other one has begun. Two API servers, started once, serve the nodes in
turns, and the images are written once, as one tar.

A file is written at the end of its run, under another name first, so what was interrupted has none
and is run again; so is what another commit of reclaimd has run.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import multiprocessing
import os
import platform
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tests.kubelet.control_plane import ControlPlane, program
from tests.kubelet.duel import (
    IMAGEFS_PERCENT,
    IMAGES,
    MARGIN_PERCENT,
    NODEFS_PERCENT,
    PERIOD_SECONDS,
    SIZE_BYTES,
    UNUSED,
    UNUSED_BYTES,
    DuelRun,
    Responder,
    Sample,
    crictl,
    duel,
)
from tests.own_machine import entered
from tests.real_node.loopfs import MAKE, find_tool, run_tool
from tests.real_node.oci import ImageTar, write_images
from tests.repository import ROOT

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
PRODUCT = ("signals", "reclaim", "eviction")
# of what a file keeps: the lowest reading of each, if it differs from the last one kept
SAMPLE_SECONDS = 0.1
LONGEST_SECONDS = 900.0  # of a run
OVERHEAD_SECONDS = 60.0  # of a run beside its fill, until one has been timed
# of a minute more after each round: prunes then begin at all times of the fill, however many rounds
GOLDEN = 0.618034


@dataclass(frozen=True)
class Program:
    """A kubelet or a runtime. `variable`: what names it in the environment of a run."""

    variable: str
    path: Path
    version: str

    @property
    def name(self) -> str:
        """As it calls itself: kubelet, containerd, crio."""
        return self.variable.lower()

    @classmethod
    def found(cls, variable: str, path: str) -> Program:
        """The program at a path, or of this name on PATH.

        ToolError, or ValueError where it tells no version.
        """
        found = Path(find_tool(path) or path)
        return cls(variable, found, version_of(found))


@dataclass(frozen=True)
class Run:
    """One fill. `number`: of the round, from 1."""

    kubelet: Program
    runtime: Program
    filesystem: str
    rate_mib: int
    responder: Responder
    number: int

    @property
    def name(self) -> str:
        """That of its file, without ending."""
        runtime = f"{self.runtime.name}-{self.runtime.version}"
        node = f"kubelet-{self.kubelet.version}_{runtime}_{self.filesystem}"
        return f"{node}_{self.rate_mib}_{self.responder}_{self.number}"

    @property
    def first_prune_seconds(self) -> float:
        """After the fill has begun."""
        return round(self.number * GOLDEN % 1 * PERIOD_SECONDS, 1)

    def environment(self) -> dict[str, str]:
        """What names its programs."""
        return {each.variable: str(each.path) for each in (self.kubelet, self.runtime)}


@dataclass
class Matrix:
    """All that is to be run, and what became of it. `into`: where the files go."""

    runs: Sequence[Run]
    into: Path
    failed: list[str] = field(default_factory=list)
    overheads: list[float] = field(default_factory=list)

    def file(self, run: Run) -> Path:
        """That of a run."""
        return self.into / f"{run.name}.jsonl"

    def run(self) -> None:
        """Runs what has no file yet.

        Prints each run as it ends, and how long the rest will take.
        """
        reclaimd = commit()
        waiting = [run for run in self.runs if not is_whole(self.file(run), reclaimd)]
        say(
            f"{len(self.runs)} runs, {len(self.runs) - len(waiting)} of them have files; reclaimd"
            f" is {reclaimd}"
        )
        if not waiting:
            return
        with (
            _alone(self.into),
            tempfile.TemporaryDirectory(prefix="matrix-") as name,
            ExitStack() as stack,
        ):
            tars = write_images(IMAGES, Path(name))
            planes = [
                stack.enter_context(ControlPlane(Path(name) / f"plane-{number}"))
                for number in range(2)
            ]
            for asked_to_stop in (signal.SIGINT, signal.SIGTERM):
                signal.signal(
                    asked_to_stop,
                    lambda *_: sys.exit("stopped; what is done need not be run again"),
                )
            last: _Child | None = None
            for number, run in enumerate(waiting):
                began = time.monotonic()
                child = _Child(
                    run, planes[number % 2], tars, Path(name) / str(number), self.file(run)
                )
                stack.callback(child.end)
                child.wait_for("ready")
                self._finish(last, number, waiting)
                child.go()
                child.wait_for("filled")
                self.overheads.append(time.monotonic() - began - _fill_seconds(run))
                last = child
            self._finish(last, len(waiting), waiting)

    def _finish(self, child: _Child | None, done: int, waiting: Sequence[Run]) -> None:
        """Waits for the end of a run, and says what became of it."""
        if child is None:
            return
        child.wait_for("done")
        child.end()
        if child.reason:
            self.failed.append(f"{child.run.name}: {child.reason}")
        overhead = sum(self.overheads) / len(self.overheads) if self.overheads else OVERHEAD_SECONDS
        left = sum(_fill_seconds(run) + overhead for run in waiting[done:])
        says = child.said or f"NOT MADE: {child.reason}"
        say(f"{done} of {len(waiting)}, {left / 60:.0f} min left: {child.run.name}: {says}")


class _Child:
    """The process of a run."""

    def __init__(
        self, run: Run, plane: ControlPlane, tars: Sequence[ImageTar], directory: Path, file: Path
    ) -> None:
        self.run = run
        self.reason = ""
        self.said = ""
        self._tells, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")  # the API server's client goes along
        self._process = context.Process(
            target=_run_one, args=(run, plane, tars, directory, file, theirs), name=run.name
        )
        self._process.start()
        theirs.close()
        self._over = False

    def wait_for(self, word: str) -> None:
        """Until it says so, or has ended."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while not self._over:
            if not self._tells.poll(max(deadline - time.monotonic(), 0.0)):
                self.end()
                self.reason = f"not {word} within {LONGEST_SECONDS:g} s"
                return
            try:
                told, text = self._tells.recv()
            except EOFError:
                told, text = "failed", self.reason or "the process ended"
            match told:
                case "failed":
                    self.reason, self._over = text, True
                case "done":
                    self.said, self._over = text, True
            if told == word:
                return

    def go(self) -> None:
        """Its disk may fill."""
        if not self._over:
            self._tells.send("go")

    def end(self) -> None:
        """Ends it: by SIGTERM if it has not ended by itself, upon which it
        undoes what it has made.
        """
        if not self._over:
            self._process.terminate()
            self._over = True
        self._process.join(LONGEST_SECONDS)


def _run_one(
    run: Run,
    plane: ControlPlane,
    tars: Sequence[ImageTar],
    directory: Path,
    file: Path,
    tells: Connection,
) -> None:
    """What the process of a run does."""
    # whatever loses its parent is found at the end
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the matrix ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        for name in ("CONTAINERD", "CRIO"):
            os.environ.pop(name, None)
        os.environ.update(run.environment())
        # so that no process that makes a namespace of its own holds the node's filesystem
        entered()
        # the kubelet looks for each at one place, and there may be two
        if run.runtime.variable == "CRIO":
            run_tool("mount", "-t", "tmpfs", "none", "/run")

        def may_fill() -> None:
            tells.send(("ready", ""))
            tells.recv()

        found = duel(
            directory,
            plane,
            run.rate_mib,
            responder=run.responder,
            fstype=run.filesystem,
            images=tars,
            first_prune_seconds=run.first_prune_seconds,
            before_fill=may_fill,
            after_fill=partial(tells.send, ("filled", "")),
        )
        write(file, header(run, found), found)
        tells.send(("done", in_words(found)))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the matrix goes on and names it
        if isinstance(error, Exception):
            traceback.print_exc()
        tells.send(("failed", f"{type(error).__name__}: {error}".splitlines()[0][:300]))
    finally:
        for left in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                left.kill()


def combinations(
    kubelets: Sequence[Program],
    runtimes: Sequence[Program],
    filesystems: Sequence[str],
    rates_mib: Sequence[int],
    responders: Sequence[Responder],
    rounds: int,
) -> Iterator[Run]:
    """Every run, in the order in which they are made."""
    nodes = [
        (kubelet, runtime, filesystem, rate)
        for kubelet in kubelets
        for runtime in runtimes
        for filesystem in filesystems
        for rate in rates_mib
    ]
    for number in range(1, rounds + 1):
        shuffled = random.Random(number).sample(nodes, len(nodes))  # noqa: S311 - the same order each time, no secret
        for place, node in enumerate(shuffled):
            first = (place + number) % len(responders)
            for responder in (*responders[first:], *responders[:first]):
                yield Run(*node, responder, number)


def header(run: Run, found: DuelRun) -> dict[str, Any]:
    """What was measured, on what."""
    is_prune = run.responder == Responder.PRUNE
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "kubelet": run.kubelet.version,
        "kube-apiserver": version_of(program("KUBE_APISERVER")),
        "runtime": found.runtime,
        "filesystem": run.filesystem,
        "rate_mib": run.rate_mib,
        "responder": run.responder,
        "number": run.number,
        "reclaimd": commit() if run.responder == Responder.RECLAIMD else None,
        "crictl": version_of(str(crictl())) if is_prune else None,
        "first_prune_seconds": run.first_prune_seconds if is_prune else None,
        "kernel": platform.release().split("-")[0],
        "machine": {
            "architecture": platform.machine(),
            "processors": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "thresholds": {
            "nodefs.available": f"{NODEFS_PERCENT}%",
            "imagefs.available": f"{IMAGEFS_PERCENT}%",
        },
        "margin": f"{MARGIN_PERCENT}%",
        "size_bytes": SIZE_BYTES,
        "unused_images": UNUSED,
        "unused_image_bytes": UNUSED_BYTES,
    }


def write(file: Path, head: Mapping[str, Any], found: DuelRun) -> None:
    """A run as JSON Lines: the header, an array [at, available, written] for each
    sample, the events, the summary.
    """
    summary = {
        key: _rounded(value)
        for key, value in asdict(found).items()
        if key not in ("samples", "events")
    }
    lines: list[object] = [head]
    lines += [[round(each.at, 3), each.available, each.written] for each in thinned(found.samples)]
    lines += [asdict(each) for each in found.events]
    lines.append({"summary": summary})
    half = file.with_suffix(".half")
    half.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    half.rename(file)


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """The lowest reading of each tenth of a second, if it is not that of the tenth before."""
    kept: list[Sample] = []
    lowest: dict[int, Sample] = {}
    for sample in samples:
        tenth = int(sample.at / SAMPLE_SECONDS)
        if tenth not in lowest or sample.available < lowest[tenth].available:
            lowest[tenth] = sample
    for sample in lowest.values():
        if not kept or (sample.available, sample.written) != (kept[-1].available, kept[-1].written):
            kept.append(sample)
    return kept


def is_whole(file: Path, reclaimd: str) -> bool:
    """Whether the file of a run is there, to its last line, and not of another
    reclaimd than this commit.
    """
    try:
        head, *_, last = map(json.loads, file.read_text().splitlines())
        return "summary" in last and head["reclaimd"] in (None, reclaimd)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def in_words(found: DuelRun) -> str:
    """What a run found, in a line."""
    first = "nothing" if found.first_freed_seconds is None else f"{found.first_freed_seconds:.2f} s"
    lowest = (found.lowest_bytes - found.mark_bytes) // (1 << 20)
    parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in found.parts.items())
    return (
        f"{'DiskPressure' if found.pressure else 'no DiskPressure'}, first byte {first}, lowest"
        f" {lowest:+d} MiB, {found.images_left} images left, {len(found.evicted)} pods evicted"
        f" ({parts} s)"
    )


def version_of(path: str | Path) -> str:
    """The version that a program tells. ToolError, or ValueError if it tells none."""
    told = run_tool(str(path), "--version")
    if (found := re.search(r"\d+\.\d+\.\d+(-(alpha|beta|rc)[.\d]+)?", told)) is None:
        raise ValueError(f"{path} --version: {told.strip()!r}: no version in it")
    return found[0]


def commit() -> str:
    """The last commit that changed the code of reclaimd, with `-changed` if
    what runs differs from that.
    """
    head = run_tool(
        "git", "-C", str(ROOT), "log", "-1", "--format=%h", "--abbrev=8", "--", *PRODUCT
    ).strip()
    changed = run_tool("git", "-C", str(ROOT), "status", "--porcelain", "--", *PRODUCT).strip()
    return f"{head}-changed" if changed else head


def say(line: str) -> None:
    """A line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def _alone(into: Path) -> Iterator[None]:
    """Only one matrix writes into a directory. BlockingIOError if another one does."""
    descriptor = os.open(into, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _fill_seconds(run: Run) -> float:
    """How long its fill takes, about."""
    return 1267 / run.rate_mib


def _rounded(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


def filesystems() -> list[str]:
    """Those that a node can have."""
    return list(MAKE)
