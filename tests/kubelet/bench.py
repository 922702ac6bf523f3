"""The kubelet alone, and with somebody beside it, under the same fill: `python -m
tests.kubelet.bench WHAT`.

`matrix`: kubelets, runtimes, filesystems, responders and rates, a file a run
(`tests.kubelet.matrix`). May be stopped and started again. `page` makes the table and the picture
of the tests' page, and the root page's picture, from such files.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.kubelet.control_plane import what_is_missing
from tests.kubelet.duel import Responder, crictl
from tests.kubelet.matrix import Matrix, Program, combinations, filesystems, say
from tests.kubelet.matrix_page import MEASURED, read_all, table, write_page
from tests.real_node.loopfs import ToolError

RATES_MIB = (20, 100, 300)
RUNS = 5


def main(arguments: Sequence[str]) -> int:
    """Runs it. Returns 1 if something could not be run, 2 for programs that are none."""
    asked = _parser().parse_args(arguments)
    if asked.what == "page":
        write_page(asked.into)
        return 0
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
    responders: list[Responder] = asked.responder or list(Responder)
    if Responder.PRUNE in responders and crictl() is None:
        say("no crictl (CRICTL=), so nobody prunes")
        responders = [each for each in responders if each is not Responder.PRUNE]
        if not responders:
            return 1
    asked.into.mkdir(parents=True, exist_ok=True)
    chosen = (
        asked.filesystem or filesystems(),
        asked.rate or RATES_MIB,
        responders,
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
    parser.add_argument("what", choices=("matrix", "page"))
    add = partial(parser.add_argument, action="append", metavar="PATH")
    add("--kubelet", help="may be repeated (KUBELET, or that on PATH)")
    add(
        "--containerd",
        help="with its shim and ctr beside it; may be repeated (CONTAINERD, or that on PATH)",
    )
    add("--crio", help="with pinns beside it; may be repeated (none)")
    add(
        "--filesystem",
        choices=filesystems(),
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
