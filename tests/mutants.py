"""Random small mistakes in the product, one at a time: which test notices?

    python -m tests.mutants [--count 300] [--seed 1] [--only PATH …] [--seconds 180] [--to FILE]

A mutant is one change of the syntax tree (`mistakes`) at a place that the seed chooses, in a copy
of the repository. First the tests that reach the changed line run, if `pytest --cov
--cov-context=test` has written to `.coverage` which they are; then those that import its module,
those of its room, and whole rings, until one fails or the time of a mutant is over. What survives
is to be judged by hand: either a test is missing, or nothing that anybody could see has changed.
`--to` keeps what was found, and goes on where it ended. `tests.broken_rules` breaks guards that
have a name.
"""

from __future__ import annotations

import argparse
import ast
import functools
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from coverage import CoverageData

from tests.broken_rules import Noticed, noticed, of_its_room, tell
from tests.repository import ROOT

PRODUCT = ("signals", "reclaim", "eviction")
RINGS = (("tests/pure",), ("tests/simulation", "tests/sockets", "tests/drill"), ("tests/faults",))
PAIRS = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
)
OTHER_WAY: dict[type[ast.AST], Any] = {
    ast.FloorDiv: ast.Mult,
    **{one: other for pair in PAIRS for one, other in (pair, pair[::-1])},
}
THOUSAND = 1000  # seconds in place of milliseconds, bytes in place of KiB
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
Found = Iterator[tuple[str, ast.AST, str]]
"""What kind of mistake, which node it replaces, and by what text."""


@dataclass(frozen=True)
class Mutant:
    """One change: `new` in place of the text from `start` to `end`, offsets in the file's bytes."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    new: str

    @property
    def name(self) -> str:
        """Where it is, and what."""
        return f"{self.file}:{self.line}, from byte {self.start}: {self.kind}: {self.new}"


def mistakes(node: ast.AST) -> Found:
    """Those that can be made at one node."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OTHER_WAY:
            yield "comparison", node, _with(node, ops=[OTHER_WAY[type(operator)]()])
        case ast.BoolOp():
            yield "and-or", node, _with(node, op=OTHER_WAY[type(node.op)]())
        case ast.BinOp() if type(node.op) in OTHER_WAY and not _is_text(node):
            yield "arithmetic", node, _with(node, op=OTHER_WAY[type(node.op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool()):
            yield "constant", node, str(not node.value)
        case ast.Constant(value=int() | float() as value):
            yield "off by one", node, repr(value + 1)
            if value:
                yield "unit", node, repr(value * THOUSAND)
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            other = {"min": "max", "max": "min"}[name]
            yield "min-max", node, _with(node, func=ast.Name(other))
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred):
            yield "arguments", node, _with(node, args=[second, first, *rest])
        case ast.If(test=test, body=[*_, last]) if isinstance(last, LEAVES):
            yield "no guard", test, "False"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "no statement", node, "pass"
        case ast.FunctionDef(returns=ast.Constant(value=None), body=body) if len(body) > 2:
            yield "early return", body[-1], "return"


def _with(node: ast.expr, **fields: object) -> str:
    """The text of the node with other fields, in parentheses."""
    changed = copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str)
        for part in (node.left, node.right)
    )


def mutants_of(file: str, text: bytes) -> Iterator[Mutant]:
    """All of one module, whose text this is, in the order of the text. Annotations, decorators and what only types see
    are left out."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: set[tuple[int, int, str]] = set()
    for node in _looked_at(ast.parse(text)):
        for kind, place, new in mistakes(node):
            if not isinstance(place, ast.expr | ast.stmt):
                continue
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[(place.end_lineno or 0) - 1] + (place.end_col_offset or 0)
            if (start, end, new) not in seen:
                seen.add((start, end, new))
                yield Mutant(file, place.lineno, kind, start, end, new)


def _looked_at(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of what runs, parents first."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr):
                yield node
                yield from _looked_at(node)


def chosen(count: int, seed: int, only: Sequence[str] = ()) -> list[Mutant]:
    """So many of the whole product, or of files whose path begins with one of `only`."""
    files = sorted(
        str(path.relative_to(ROOT))
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if not path.name.endswith("_pb2.py")
    )
    every = [
        mutant
        for file in files
        if not only or file.startswith(tuple(only))
        for mutant in mutants_of(file, (ROOT / file).read_bytes())
    ]
    return random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311 # no secret


def importers(file: str) -> list[str]:
    """The test modules that import this one of the product, the nearest first."""
    module = file.removesuffix(".py").replace("/", ".")
    found = [path for path, imported in _imports().items() if module in imported]
    return _nearest_first(file, found)


@functools.cache
def _imports() -> dict[str, set[str]]:
    """The modules that each test module imports from, by its path in the repository."""
    return {
        str(path.relative_to(ROOT)): {
            node.module or ""
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        }
        for path in (ROOT / "tests").rglob("test_*.py")
        if "kubelet" not in path.relative_to(ROOT / "tests").parts[:1]
    }


def reaching(mutant: Mutant) -> list[str]:
    """The tests in whose own process its line runs, as measured, the nearest first."""
    by_line = _reached().contexts_by_lineno(str(ROOT / mutant.file))
    tests = {name.partition("|")[0] for name in by_line.get(mutant.line, ()) if "::" in name}
    return _nearest_first(mutant.file, tests)


def _nearest_first(file: str, tests: Iterable[str]) -> list[str]:
    """Those of the file's room, then by how long a ring takes."""
    order = (*of_its_room(file), "tests/pure", "tests/sockets", "tests/simulation", "tests")

    def place(test: str) -> int:
        return next(place for place, folder in enumerate(order) if test.startswith(folder))

    return sorted(tests, key=lambda test: (place(test), test))


@functools.cache
def _reached() -> CoverageData:
    """What a run of the tests has measured; nothing if none has."""
    data = CoverageData(str(ROOT / ".coverage"))
    data.read()
    return data


def tried(mutant: Mutant, seconds: float) -> Noticed:
    """Makes the change in a copy; the tests that reach it, import its module or are of its room
    come first."""
    text = (ROOT / mutant.file).read_bytes()
    changed = text[: mutant.start] + mutant.new.encode() + text[mutant.end :]
    own = (reaching(mutant), importers(mutant.file), of_its_room(mutant.file))
    return noticed(mutant.file, changed, (*own, *RINGS), seconds)


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each, and what survived at the end. Returns 2 if a test fails without any
    mistake."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice (1)")
    parser.add_argument("--only", action="append", default=[], help="files or folders; repeatable")
    parser.add_argument("--seconds", type=float, default=180.0, help="after which no test is asked")
    parser.add_argument("--to", type=Path, help="a file for what was found, as JSON")
    asked = parser.parse_args(arguments)
    wanted = chosen(asked.count, asked.seed, asked.only)
    changes = {each.name: partial(tried, each, asked.seconds) for each in wanted}
    return 2 if tell(changes, asked.to) == 2 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
