"""What each rule of thumb of the engine brings: the engine with and without it, in
turns, on a real containerd.

    python -m tests.lab.bench ablate [RULE …] [--disk large|slow] [--filesystem ext4] [--rate 100]
                                     [--runs 20] [--to FILE]

With `RECLAIMD_BESIDE=/path/to/the/other/bin/reclaimd` another version takes its turn, too: on a
shared machine one run after the other compares two hours, not two programs. Only what both versions
offer is used: the command line, the configuration file, the JSON log.
Every fill is added to FILE as soon as it has ended; the table is of all that are there, and
`--runs 0` prints it alone.

`RULES` says which attributes of its modules the daemon has without a rule (`without`). Several are left out together by `RULE+RULE`, all
of it by `reclaimd`; `nothing` is the engine as it is, alone. A rule that is gone from the engine
goes from here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eviction.wording.explain import table
from tests.lab.bench.measure import Effort, commit, effort_of, figure
from tests.lab.bench.ring import (
    SCENES,
    THROTTLE,
    WITH_HINT,
    Fought,
    Ring,
    Scene,
    StartResponder,
    ring,
)
from tests.lab.bench.without import find
from tests.real_node.conftest import CONTAINERD_TOOLS, what_is_missing
from tests.real_node.crio import crio_tools
from tests.reclaimd_process import Daemon

FILESYSTEMS = ("ext4", "xfs")
ALL_FILESYSTEMS = (*FILESYSTEMS, WITH_HINT, "btrfs")
RUNS = 20
RUNTIMES = {"containerd": CONTAINERD_TOOLS, "crio": crio_tools()}
NOTHING, OTHER, RECLAIMD = "nothing", "another version", "reclaimd"
NO_RULES = (NOTHING, RECLAIMD)
VARIABLE = "RECLAIMD_BESIDE"
NEWER_FIELDS = ("lockDirectory",)
REPORT = Path("report/ablate.json")
CHILD = (sys.executable, "-m", "tests.lab.bench.without")
HEAD = "WITHOUT|FILLS|FIRST BYTE ms|LOWEST MiB|PRESSURE|s|IMAGES|CONTAINERS|BEYOND MiB|OTHERS MiB/s"


@dataclass(frozen=True)
class Rule:
    """How the engine does without a rule. `attributes`: `module:attribute` -> a Python expression,
    evaluated in that module. `filesystems`: where it applies."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    filesystems: Sequence[str] = FILESYSTEMS


RULES: dict[str, Rule] = {
    "lead": Rule(  # the field of that name leaves out the next step, too
        {
            "eviction.decision.headroom:coming_bytes": (
                "(lambda with_lead: lambda stats, fill, lead: with_lead(stats, fill, 0.0))"
                "(coming_bytes)"
            )
        }
    ),
    "side-by-side": Rule({"eviction.engine.relief:side_by_side": "lambda the, world: ()"}),
    "turns": Rule({"eviction.engine.relief:TURNS": "2"}),
    "more-in-flight": Rule({"reclaim.removals:limit_in_flight": "lambda parallel: parallel"}),
    "late-space": Rule(
        {
            "eviction.engine.relief:waits_for_late_space": "lambda the, disk: False",
        }
    ),
    "next-step": Rule({"eviction.decision.headroom:STEP_SECONDS": "0.0"}, filesystems=("xfs",)),
    "promised": Rule(
        {"signals.ahead:PromisedByBtrfs": "lambda point: lambda stats: stats"},
        filesystems=("btrfs",),
    ),
    "early-writeback": Rule({"eviction.engine.step:NEAR_SECONDS": "0.0"}),
}
TOGETHER = "+"
ARMS = [*RULES]


def main(arguments: Sequence[str]) -> int:
    """Fills, prints. Returns 1 where no real node can be built, 2 for what is not known."""
    effort = effort_of()
    asked = _parser(effort).parse_args(arguments)
    scene = SCENES[asked.disk](effort)
    if asked.runs and (missing := _missing(asked.runtime, scene)):
        print(missing, file=sys.stderr)
        return 1
    _check(asked.rules or ARMS)
    fills: list[dict[str, Any]] = json.loads(asked.to.read_text()) if asked.to.exists() else []
    for filesystem in (asked.filesystem or FILESYSTEMS) if asked.runs else ():
        with ring(filesystem, scene, asked.runtime) as on:
            for fill in _fills(on, filesystem, asked):
                print(_line(fill), file=sys.stderr)
                fills.append(fill)
                _write(fills, asked.to)
    print(report(fills))
    return 0


def _parser(effort: Effort) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench ablate")
    parser.add_argument("rules", metavar="RULE", nargs="*", type=_known, help=", ".join(RULES))
    parser.add_argument(
        "--filesystem",
        choices=ALL_FILESYSTEMS,
        action="append",
        help=f"may be repeated {FILESYSTEMS}",
    )
    parser.add_argument(
        "--runtime",
        choices=[name for name, tools in RUNTIMES.items() if tools],
        default="containerd",
        help="crio needs CRIO=/path/crio, pinns beside it",
    )
    parser.add_argument(
        "--disk",
        choices=SCENES,
        default="small",
        help="6 or 40 GiB, or one that writes 200 MiB/s (small)",
    )
    parser.add_argument(
        "--writers", type=int, default=0, help="others on the same disk, 100 MiB/s each (0)"
    )
    parser.add_argument(
        "--rate", type=int, action="append", help=f"MiB a second; may be repeated {effort.rates}"
    )
    parser.add_argument(
        "--runs", type=int, default=1 if effort.short else RUNS, help=f"fills of each ({RUNS})"
    )
    parser.add_argument("--to", type=Path, default=REPORT, help=f"where the values go ({REPORT})")
    return parser


def _missing(runtime: str, scene: Scene) -> str | None:
    """What this machine lacks for such fills."""
    if scene.write_mib and not THROTTLE.exists():
        return f"a slow disk needs {THROTTLE}"
    return what_is_missing(RUNTIMES[runtime])


def _known(names: str) -> str:
    """One argument. Raises ArgumentTypeError."""
    if unknown := set(names.split(TOGETHER)) - {*RULES, *NO_RULES}:
        known = ", ".join((*RULES, *NO_RULES))
        raise argparse.ArgumentTypeError(f"no rule {', '.join(sorted(unknown))}; there are {known}")
    return names


def _check(names: Sequence[str]) -> None:
    """That what these rules replace is there, before the first fill.

    Raises ImportError or AttributeError.
    """
    for rule in (
        RULES[each] for name in names if name not in NO_RULES for each in name.split(TOGETHER)
    ):
        for target in rule.attributes:
            find(target)


def _fills(on: Ring, filesystem: str, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All arms at all rates; another arm is the first one of each round."""
    arms = list(_arms(filesystem, asked.rules))
    rates = asked.rate or effort_of().rates
    engine = commit()
    for number in range(asked.runs):
        first = number * max(len(arms) // 3, 1) % len(arms)
        for rate in rates:
            for without, start in arms[first:] + arms[:first]:
                where = {
                    "disk": asked.disk,
                    "runtime": asked.runtime,
                    "writers": asked.writers,
                    "filesystem": filesystem,
                    "rate": rate,
                    "without": without,
                }
                about = {"engine": engine, "date": time.strftime("%Y-%m-%d")}
                yield {**where, **about, **_fought(on, where, start)}


def _fought(on: Ring, where: Mapping[str, Any], start: StartResponder) -> dict[str, Any]:
    began = time.monotonic()
    fought: Fought = on.fight(where["rate"], start, where["writers"])
    return {**asdict(fought), "taken_seconds": round(time.monotonic() - began, 1)}


def _arms(filesystem: str, names: Sequence[str]) -> Iterator[tuple[str, StartResponder]]:
    """Who fights: the engine as it is, without each of these rules (none: of all), and another
    version where there is one."""
    yield NOTHING, _daemon({})
    for name in names or ARMS:
        if name == NOTHING:
            continue
        if name == RECLAIMD:
            yield name, lambda configuration: nullcontext()
            continue
        rules = [RULES[each] for each in name.split(TOGETHER)]
        if all(filesystem in rule.filesystems for rule in rules):
            attributes = {
                target: value for rule in rules for target, value in rule.attributes.items()
            }
            yield name, _daemon(attributes)
    if other := os.environ.get(VARIABLE):
        yield (
            OTHER,
            lambda configuration: Daemon("--config", known_to_both(configuration), program=other),
        )


def _daemon(attributes: Mapping[str, str]) -> StartResponder:
    return lambda configuration: Daemon(
        "--config", configuration, before=CHILD, program=json.dumps(attributes)
    )


def known_to_both(configuration: str) -> str:
    """The configuration file without the fields that the other version may not know."""
    path = Path(configuration)
    fields = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: value for name, value in fields.items() if name not in NEWER_FIELDS})
    )
    return configuration


def _line(fill: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fill.items())


def _write(fills: Sequence[Mapping[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(fill) for fill in fills) + "\n]\n")


def report(fills: Sequence[Mapping[str, Any]]) -> str:
    """A table for each filesystem and rate: medians, the worst in brackets. PRESSURE:
    fills in which the kubelet's mark was passed, and for how many seconds; LOWEST: above that mark;
    BEYOND: freed beyond what was to be reached; OTHERS: what each other writer got to the disk."""
    lines: list[str] = []
    for where in dict.fromkeys(map(_where, fills)):
        here = [fill for fill in fills if _where(fill) == where]
        arms = dict.fromkeys(fill["without"] for fill in here)
        rows = [_cells(arm, [fill for fill in here if fill["without"] == arm]) for arm in arms]
        lines += [where, *table([HEAD.split("|"), *rows]), ""]
    return "\n".join(lines)


def sentence(fills: Sequence[Mapping[str, Any]]) -> str:
    """The root page's item, in Markdown: what became of the engine as it is. A first byte is one
    that statvfs shows in time, which btrfs does not always do."""
    found = [fill for fill in fills if fill["without"] == NOTHING]
    filesystems, runtimes = (
        list(dict.fromkeys(fill[name] for fill in found)) for name in ("filesystem", "runtime")
    )
    rates = " or ".join(map(str, sorted({fill["rate"] for fill in found})))
    first = [fill["first_byte_ms"] for fill in found if fill["first_byte_ms"] is not None]
    beside = [fill for fill in found if fill["writers"]]
    text = (
        f"* On 40 GiB, one file that grows by {rates} MiB/s to 5.2 GiB, with {' or '.join(runtimes)},"
        f" on {', '.join(filesystems)} ([how](tests/README.md#what-each-rule-brings),"
        f" {max(fill['date'] for fill in found)}): {_below(found)} of {len(found)} fills came below"
        f" the kubelet's mark, {_below(beside)} of the {len(beside)} beside two other writers; first"
        f" byte after {figure(min(first))} to {figure(max(first))} ms, median"
        f" {figure(statistics.median(first))} ms."
    )
    return _item(text)


def slow_sentence(fills: Sequence[Mapping[str, Any]]) -> str:
    """The same of a slow disk."""
    found = [fill for fill in fills if fill["without"] == NOTHING]
    rates = " or ".join(map(str, sorted({fill["rate"] for fill in found})))
    below = ", ".join(
        f"{_below(here)} of {len(here)} on {filesystem}"
        for filesystem in dict.fromkeys(fill["filesystem"] for fill in found)
        for here in ([fill for fill in found if fill["filesystem"] == filesystem],)
    )
    return _item(
        f"* The same file at {rates} MiB/s on a disk that writes 200 MiB/s"
        f" ({max(fill['date'] for fill in found)}): fills that came below the kubelet's mark: {below}."
    )


def _item(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 120, subsequent_indent="  ")) + "\n"


def _below(fills: Sequence[Mapping[str, Any]]) -> int:
    return sum(fill["pressure_seconds"] > 0 for fill in fills)


def _where(fill: Mapping[str, Any]) -> str:
    disk = fill.get("disk", "small")  # in older files all are
    kind = fill.get("fill", "one-file")  # there were others
    beside = f", beside {writers} writers" if (writers := fill.get("writers")) else ""
    runtime = fill.get("runtime", "containerd")
    return f"{disk} disk, {runtime}, {fill['filesystem']}, {fill['rate']} MiB/s, {kind}{beside}"


def _cells(arm: str, fills: Sequence[Mapping[str, Any]]) -> list[str]:
    def both(name: str, worst: Callable[[list[float]], float] = max) -> str:
        values = [fill[name] for fill in fills if fill.get(name) is not None]
        return f"{figure(statistics.median(values))} ({figure(worst(values))})" if values else "-"

    return [
        arm,
        str(len(fills)),
        both("first_byte_ms"),
        both("lowest_mib", min),
        f"{_below(fills)} of {len(fills)}",
        both("pressure_seconds"),
        both("images_lost"),
        both("containers_lost"),
        both("beyond_mib"),
        both("others_mib_s", min),
    ]
