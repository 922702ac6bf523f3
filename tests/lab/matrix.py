"""The kubelet alone, and with reclaimd beside it, under the same fill: `python -m tests.lab.matrix`.

Fills nodes of every kubelet, runtime, filesystem and rate, each with every responder, a file a run.
May be stopped and started again. `tests.lab.matrix_page` makes table, picture and sentence of such
files.

Each round has every combination once, in a new order, with the responders of one combination one
after another, so that a slow hour of the machine meets all alike. A run is a process of its own,
which makes its node while the node of the last run settles and ends; a disk fills only when that
process has ended and no other one has begun. Two API servers, started once, serve the nodes in
turns, and the images are written once, as one tar.

A file is written at the end of its run, under another name first, so what was interrupted has none
and is run again; so is what another commit of reclaimd has run.
"""

from __future__ import annotations

import argparse
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

from tests.kubelet.control_plane import ControlPlane, program, what_is_missing
from tests.lab.duel import (
    IMAGEFS_PERCENT,
    IMAGES,
    MARGIN_PERCENT,
    NODEFS_PERCENT,
    SAMPLE_SECONDS,
    SIZE_BYTES,
    UNUSED,
    UNUSED_BYTES,
    DuelRun,
    Responder,
    Sample,
    duel,
)
from tests.lab.matrix_page import MEASURED, Recorded, read_all, table
from tests.own_machine import entered
from tests.real_node.loopfs import MAKE, ToolError, find_tool, run_tool
from tests.real_node.oci import ImageTar, write_images
from tests.repository import ROOT

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
PRODUCT = ("signals", "reclaim", "eviction")
LONGEST_SECONDS = 900.0  # of a run
RATES_MIB = (20, 100, 300)
RUNS = 5


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

    def environment(self) -> dict[str, str]:
        """What names its programs."""
        return {each.variable: str(each.path) for each in (self.kubelet, self.runtime)}


@dataclass
class Matrix:
    """All that is to be run, and what became of it. `into`: where the files go."""

    runs: Sequence[Run]
    into: Path
    failed: list[str] = field(default_factory=list)

    def file(self, run: Run) -> Path:
        """That of a run."""
        return self.into / f"{run.name}.jsonl"

    def run(self) -> None:
        """Runs what has no file yet, and prints each run as it ends."""
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
                child = _Child(
                    run, planes[number % 2], tars, Path(name) / str(number), self.file(run)
                )
                stack.callback(child.end)
                child.wait_for("ready")
                self._finish(last, number, len(waiting))
                child.go()
                child.wait_for("filled")
                last = child
            self._finish(last, len(waiting), len(waiting))

    def _finish(self, child: _Child | None, done: int, of: int) -> None:
        """Waits for the end of a run, and says what became of it."""
        if child is None:
            return
        child.wait_for("done")
        child.end()
        if child.reason:
            self.failed.append(f"{child.run.name}: {child.reason}")
        says = child.said or f"NOT MADE: {child.reason}"
        say(f"{done} of {of}: {child.run.name}: {says}")


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
        shuffled = random.Random(number).sample(nodes, len(nodes))
        for place, node in enumerate(shuffled):
            first = (place + number) % len(responders)
            for responder in (*responders[first:], *responders[:first]):
                yield Run(*node, responder, number)


def header(run: Run, found: DuelRun) -> dict[str, Any]:
    """What was measured, on what."""
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
        return Recorded.read(file).head["reclaimd"] in (None, reclaimd)
    except (FileNotFoundError, ValueError):
        return False


def in_words(found: DuelRun) -> str:
    """What a run found, in a line."""
    first = "nothing" if found.first_freed_seconds is None else f"{found.first_freed_seconds:.2f} s"
    lowest = (found.lowest_bytes - found.mark_bytes) // (1 << 20)
    return (
        f"{'DiskPressure' if found.pressure else 'no DiskPressure'}, first byte {first}, lowest"
        f" {lowest:+d} MiB, {found.images_left} images left, {len(found.evicted)} pods evicted"
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


def _rounded(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


def main(arguments: Sequence[str]) -> int:
    """Runs it. Returns 1 if something could not be run, 2 for programs that are none."""
    asked = _parser().parse_args(arguments)
    try:
        kubelets = [
            Program.found("KUBELET", path)
            for path in asked.kubelet or [os.environ.get("KUBELET", "kubelet")]
        ]
        runtimes = [Program.found("CONTAINERD", path) for path in asked.containerd or []]
        runtimes += [Program.found("CRIO", path) for path in asked.crio or []]
        runtimes = runtimes or [
            Program.found("CONTAINERD", os.environ.get("CONTAINERD", "containerd"))
        ]
    except (ToolError, ValueError) as error:
        say(str(error))
        return 2
    os.environ["KUBELET"] = str(kubelets[0].path)
    if sentence := what_is_missing():
        say(sentence)
        return 1
    asked.into.mkdir(parents=True, exist_ok=True)
    chosen = (
        asked.filesystem or list(MAKE),
        asked.rate or RATES_MIB,
        asked.responder or list(Responder),
        asked.runs,
    )
    matrix = Matrix(list(combinations(kubelets, runtimes, *chosen)), asked.into)
    matrix.run()
    say(table(read_all(asked.into)))
    for line in matrix.failed:
        say(f"not made: {line}")
    return 1 if matrix.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.matrix")
    add = partial(parser.add_argument, action="append", metavar="PATH")
    add("--kubelet", help="may be repeated (KUBELET, or that on PATH)")
    add(
        "--containerd",
        help="with its shim and ctr beside it; may be repeated (CONTAINERD, or that on PATH)",
    )
    add("--crio", help="with pinns beside it; may be repeated (none)")
    add(
        "--filesystem",
        choices=list(MAKE),
        metavar=None,
        help="of the node; may be repeated (all)",
    )
    add(
        "--responder",
        type=Responder,
        choices=list(Responder),
        metavar=None,
        help="may be repeated (all)",
    )
    add("--rate", type=int, metavar="MIB", help="MiB a second; may be repeated (20, 100, 300)")
    parser.add_argument(
        "--runs", type=int, default=RUNS, metavar="N", help=f"of each combination ({RUNS})"
    )
    parser.add_argument(
        "--into", type=Path, default=MEASURED, metavar="DIRECTORY", help="where the files are"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
