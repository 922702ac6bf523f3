"""The kubelet alone, and with reclaimd beside it, under the same fill: `python -m tests.lab.matrix`.

Fills nodes of every filesystem, each with every responder, a file a run. The environment names the
programs of the node, as for the tests beside a kubelet: `tests.kubelet.control_plane`. May be
stopped and started again; `tests.lab.matrix_page` makes table, picture and sentence of the files.

Each round has every filesystem once, in a new order, with the responders of one after another, so
that a slow hour of the machine meets all alike. A run is a process of its own, whose node is gone
when the next one begins. One API server, started once, serves all nodes, and the images are written
once, as one tar.

A file is written at the end of its run, under another name first, so what was interrupted has none
and is run again; so is what another commit of reclaimd has run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import random
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests import own_machine
from tests.kubelet.control_plane import ControlPlane, program, what_is_missing
from tests.kubelet.node import DEFAULTS
from tests.lab.bench.measure import commit
from tests.lab.duel import (
    IMAGES,
    MARGIN_PERCENT,
    SAMPLE_SECONDS,
    DuelRun,
    Responder,
    Sample,
    duel,
)
from tests.lab.matrix_page import MEASURED, Recorded, cell, read_all, table
from tests.real_node.crio import crio_program
from tests.real_node.loopfs import MAKE, run_tool
from tests.real_node.oci import ImageTar, write_images

LONGEST_SECONDS = 900.0  # of a run
say = partial(print, flush=True)
RATE_MIB = 100
RUNS = 3


@dataclass(frozen=True)
class Run:
    """One fill. `node`: the kubelet and the runtime, with their versions. `number`: of the round,
    from 1."""

    node: str
    filesystem: str
    rate_mib: int
    responder: Responder
    number: int

    def file(self, into: Path) -> Path:
        """Where it is written."""
        fill = f"{self.filesystem}_{self.rate_mib}_{self.responder}_{self.number}"
        return into / f"{self.node}_{fill}.jsonl"


def all_runs(node: str, filesystems: Sequence[str], rate_mib: int, rounds: int) -> Iterator[Run]:
    """Every run, in the order in which they are made."""
    for number in range(1, rounds + 1):
        shuffled = random.Random(number).sample(filesystems, len(filesystems))
        for place, filesystem in enumerate(shuffled):
            for responder in sorted(Responder, reverse=bool((place + number) % 2)):
                yield Run(node, filesystem, rate_mib, responder, number)


def make(runs: Sequence[Run], into: Path) -> list[str]:
    """Makes what has no file yet, and tells each; returns what could not be made."""
    reclaimd, failed = commit(), list[str]()
    waiting = [run for run in runs if not is_whole(run.file(into), reclaimd)]
    say(f"{len(waiting)} of {len(runs)} runs have no file; reclaimd is {reclaimd}")
    with (
        tempfile.TemporaryDirectory(prefix="matrix-") as name,
        ControlPlane(Path(name) / "plane") as plane,
    ):
        tars = write_images(IMAGES, Path(name))
        for number, run in enumerate(waiting):
            file = run.file(into)
            context = multiprocessing.get_context("fork")  # the API server's client goes along
            process = context.Process(
                target=make_one, args=(run, plane, tars, Path(name) / str(number), file)
            )
            process.start()
            try:
                process.join(LONGEST_SECONDS)
            finally:
                process.terminate()  # upon which it undoes what it has made, if it still runs
                process.join(LONGEST_SECONDS)
            made = is_whole(file, reclaimd)
            failed += [] if made else [file.stem]
            found = cell([Recorded.read(file)]) if made else "NOT MADE"
            say(f"{number + 1} of {len(waiting)}: {file.stem}: {found}")
    return failed


def make_one(
    run: Run, plane: ControlPlane, tars: Sequence[ImageTar], directory: Path, file: Path
) -> None:
    """What the process of a run does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the matrix ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    found = duel(
        directory,
        plane,
        run.rate_mib,
        responder=run.responder,
        fstype=run.filesystem,
        images=tars,
    )
    write(file, header(run, found), found)


def header(run: Run, found: DuelRun) -> dict[str, Any]:
    """What was measured, on what."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "kubelet": version_of(program("KUBELET")),
        "kube-apiserver": version_of(program("KUBE_APISERVER")),
        "runtime": found.runtime,
        "filesystem": run.filesystem,
        "rate_mib": run.rate_mib,
        "responder": run.responder,
        "number": run.number,
        "reclaimd": commit() if run.responder == Responder.RECLAIMD else None,
        "kernel": platform.release().split("-")[0],
        "machine": {"architecture": platform.machine(), "processors": os.cpu_count()},
        "thresholds": DEFAULTS,
        "margin": f"{MARGIN_PERCENT}%",
    }


def write(file: Path, head: Mapping[str, Any], found: DuelRun) -> None:
    """A run as JSON Lines: the header, an array [at, available, written] for each
    sample, the events, the summary.
    """
    summary = {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in asdict(found).items()
        if key not in ("samples", "events")
    }
    lines: list[object] = [head]
    lines += [[round(at, 3), *bytes_] for at, *bytes_ in thinned(found.samples)]
    lines += [asdict(each) for each in found.events]
    lines.append({"summary": summary})
    half = file.with_suffix(".half")
    half.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    half.rename(file)


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """The lowest reading of each tenth of a second, if it is not that of the tenth before."""
    kept: list[Sample] = []
    for _, tenth in itertools.groupby(samples, lambda sample: int(sample[0] / SAMPLE_SECONDS)):
        lowest = min(tenth, key=itemgetter(1))
        if not kept or lowest[1:] != kept[-1][1:]:
            kept.append(lowest)
    return kept


def is_whole(file: Path, reclaimd: str) -> bool:
    """Whether the file of a run is there, to its last line, and not of another
    reclaimd than this commit.
    """
    try:
        return Recorded.read(file).head["reclaimd"] in (None, reclaimd)
    except (FileNotFoundError, ValueError):
        return False


def version_of(path: str | Path) -> str:
    """The version that a program tells. ToolError, or ValueError if it tells none."""
    told = run_tool(str(path), "--version")
    if (found := re.search(r"\d+\.\d+\.\d+(-(alpha|beta|rc)[.\d]+)?", told)) is None:
        raise ValueError(f"{path} --version: {told.strip()!r}: no version in it")
    return found[0]


def main(arguments: Sequence[str]) -> int:
    """Makes them, and prints the table. Returns 1 if something could not be made."""
    asked = _parser().parse_args(arguments)
    own_machine.enter()
    if sentence := what_is_missing():
        say(sentence)
        return 1
    asked.into.mkdir(parents=True, exist_ok=True)
    runtime = crio_program() or Path("containerd")
    node = f"kubelet-{version_of(program('KUBELET'))}_{runtime.name}-{version_of(runtime)}"
    runs = list(all_runs(node, asked.filesystem or list(MAKE), RATE_MIB, asked.runs))
    failed = make(runs, asked.into)
    say(table(read_all(asked.into)))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.matrix")
    add = parser.add_argument
    add("--filesystem", action="append", choices=list(MAKE), help="may be repeated (all)")
    add("--runs", type=int, default=RUNS, help=f"of each ({RUNS})")
    add("--into", type=Path, default=MEASURED, help="the directory of the files")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
