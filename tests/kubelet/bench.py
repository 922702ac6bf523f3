"""The kubelet alone, and with somebody beside it, under the same fill: `python -m tests.kubelet.bench WHAT`.

`matrix`: kubelets, runtimes, filesystems, responders and rates, a file a run (`tests.kubelet.matrix`). May be stopped
and started again. `page` makes the table and the picture of the tests' page from such files.

`picture` draws one run of each side: `drill --observe` measures both by the marks of the kubelet, and `drill compare`
lays them over each other.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from eviction.drill.runtime.private_mounts import enter_private_mounts
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.duel import Responder, duel
from tests.kubelet.matrix import Matrix, Program, combinations, filesystems, in_words, say
from tests.kubelet.matrix_page import MEASURED, read_all, table, write_page
from tests.kubelet.node import KubeletNode
from tests.kubelet.programs import what_is_missing
from tests.observing import Observing
from tests.real_node.loopfs import ToolError
from tests.reclaimd_process import reclaimd, write_configuration

RATES_MIB = (20, 100, 300)
RUNS = 5
PICTURE_RATE_MIB = 100
PICTURE = "config/pictures/kubelet.svg"


def main(arguments: Sequence[str]) -> int:
    """Runs it. Returns 1 if something could not be run, 2 for programs that are none."""
    asked = _parser().parse_args(arguments)
    if asked.what == "page":
        write_page(asked.into)
        return 0
    try:
        kubelets = [Program.found("KUBELET", path) for path in asked.kubelet or [os.environ.get("KUBELET", "kubelet")]]
        runtimes = [Program.found("CONTAINERD", path) for path in asked.containerd or []]
        runtimes += [Program.found("CRIO", path) for path in asked.crio or []]
        runtimes = runtimes or [Program.found("CONTAINERD", os.environ.get("CONTAINERD", "containerd"))]
    except (ToolError, ValueError) as error:
        say(str(error))
        return 2
    os.environ["KUBELET"] = str(kubelets[0].path)
    if sentence := what_is_missing():
        say(sentence)
        return 1
    if asked.what == "picture":
        enter_private_mounts()  # so that no process that makes a namespace of its own holds a node's filesystem
        with tempfile.TemporaryDirectory(prefix="duel-") as name, ControlPlane(Path(name) / "plane") as plane:
            return picture(Path(name), plane, asked.svg)
    asked.into.mkdir(parents=True, exist_ok=True)
    chosen = (
        asked.filesystem or filesystems(),
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
    parser = argparse.ArgumentParser(prog="python -m tests.kubelet.bench")
    parser.add_argument("what", choices=("matrix", "page", "picture"))
    add = partial(parser.add_argument, action="append", metavar="PATH")
    add("--kubelet", help="may be repeated (KUBELET, or that on PATH)")
    add("--containerd", help="with its shim and ctr beside it; may be repeated (CONTAINERD, or that on PATH)")
    add("--crio", help="with pinns beside it; may be repeated (none)")
    add("--filesystem", choices=filesystems(), metavar=None, help="of the node; may be repeated (all)")
    add("--responder", type=Responder, choices=list(Responder), metavar=None, help="may be repeated (all)")
    add("--rate", type=int, metavar="MIB", help="MiB a second; may be repeated (20, 100, 300)")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"of each combination ({RUNS})")
    parser.add_argument("--into", type=Path, default=MEASURED, metavar="DIRECTORY", help="where the files are")
    parser.add_argument("--svg", type=Path, default=Path(PICTURE), metavar="FILE", help="where the picture goes")
    return parser


def picture(directory: Path, plane: ControlPlane, svg: Path) -> int:
    """One run of each side at `PICTURE_RATE_MIB`, as one picture."""
    reports = []
    for name, responder in (("kubelet-alone", Responder.NOBODY), ("kubelet-with-reclaimd", Responder.RECLAIMD)):
        reports.append(directory / f"drill-{name}-observed.json")
        observe = partial(_observed, directory=directory, name=name)
        say(in_words(duel(directory / name, plane, PICTURE_RATE_MIB, responder=responder, observe=observe)))
    compared = reclaimd("drill", "compare", *map(str, reports), "--report", str(directory))
    say(compared.stdout + compared.stderr)
    shutil.copy(directory / "comparison.svg", svg)
    return compared.returncode


@contextmanager
def _observed(node: KubeletNode, *, directory: Path, name: str) -> Iterator[None]:
    """The node is observed by the kubelet's own marks."""
    configuration = write_configuration(directory / f"{name}.yaml", **node.reclaimd_fields())
    observing = Observing(directory, "--config", str(configuration), "--quiet", "10m", name=name)
    try:
        yield
    finally:
        observing.stopped()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
