"""The root page's moving picture, of a drill: `python -m tests.moving_picture REPORT`.

REPORT: the JSON document of a run of `drill/filling-disk.yaml`. What is drawn of it is kept beside
the other measured figures, and fills the places of `moving_picture.svg`.

CSS moves it, without scripts. By its attributes alone it is the end of the run, with every text, on
light ground: so it looks where nothing may move, and where CSS is unknown.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from eviction.drill.report.page import html_text
from reclaim.types import Reason
from signals.quantity import format_bytes, format_duration
from tests.picture import DARK, LIGHT
from tests.repository import ROOT

MEASURED = ROOT / "tests" / "lab" / "bench" / "measured" / "filling-disk.json"
PICTURE = ROOT / "config" / "pictures" / "filling-disk.svg"
PLACES = Template(Path(__file__).with_suffix(".svg").read_text())
SIGNAL = "imagefs.available"
LEFT_TO_KUBELET = int(KUBELET_EVICTION_HARD[SIGNAL].rstrip("%")) / 100
DRAWN = """held ended_pods filesystems marks lowest crossed_seconds ended_seconds removals
from_crossing_to_first_relief_seconds"""
EVERY = 10  # of so many points of the timeline one is drawn
PLOT = 608  # wide
APART = 40
BOX = '<rect x="{x}" y="404" width="34" height="34" rx="5"><title>{name}</title></rect>'
GOING = BOX.replace("<rect", '<rect class="box{place}" opacity="0"')
POD = """<g transform="translate({x} 512)"><circle cx="18" cy="17" r="6"/>\
<rect width="196" height="34" rx="5" fill="none" stroke="currentColor" stroke-width="2"/>\
<text x="34" y="25">{name}</text></g>"""
# It moves in so many rounds: in each the run, then its end.
ROUNDS, ROUND_SECONDS, RUN_PERCENT = 3, 12, 75
SHOWN, HIDDEN = "opacity:1;transform:none", "opacity:0;transform:translateY(-12px)"


def drawn(report: dict[str, Any]) -> dict[str, Any]:
    """What is drawn of a run."""
    last = report["passes"][-1]
    return {name: report[name] for name in DRAWN.split()} | {
        "date": last["started"][:10],
        "kept": last["kept"],
        "timeline": report["timeline"][::EVERY],
    }


def moving_picture(run: dict[str, Any]) -> str:
    """The picture of a run in which everything held, and the kubelet's mark was not reached."""
    capacity, mark = run["filesystems"][0]["capacity_bytes"], run["marks"][0]["effective"]
    ended, first = run["ended_seconds"], run["from_crossing_to_first_relief_seconds"]
    lowest = run["lowest"][SIGNAL]
    assert run["held"]
    assert not run["ended_pods"]
    assert lowest > LEFT_TO_KUBELET * capacity
    removed = [gone["name"] for gone in run["removals"]]
    kept: dict[str, list[str]] = {"spared": [], "used": [], "pods": []}
    for each in run["kept"]:
        image = "spared" if each["reason"] == Reason.RELIEVED else "used"
        kept[image if each["kind"] == "image" else "pods"].append(each["name"])
    count = {name: len(names) for name, names in kept.items()} | {"removed": len(removed)}
    first_used = count["removed"] + count["spared"]

    def y(left: float) -> str:
        """Of an amount that is left. The plot is 240 high, from 50 to 90 % full."""
        return f"{600 * left / capacity - 60:.1f}"

    def then(at: float, before: str = HIDDEN, after: str = SHOWN) -> str:
        share = RUN_PERCENT * at / ended
        return f"0%,{share:.1f}%{{{before}}}{share + 2:.1f}%,100%{{{after}}}"

    moves = {
        # what has not happened yet is behind it
        "veil": f"0%{{opacity:1}}{RUN_PERCENT}%,100%{{opacity:1;transform:translateX({PLOT}px)}}",
        "freed": then(run["crossed_seconds"] + first),
        "gone": then(run["removals"][-1]["seconds"]),
        "end": then(ended),
    }
    for place, gone in enumerate(run["removals"]):
        moves[f"box{place}"] = then(gone["seconds"], SHOWN, HIDDEN)
    return PLACES.substitute(
        LIGHT | count,
        dark="".join(f".{name}{{color:{colour}}}" for name, colour in DARK.items()),
        moves="".join(
            f"\n.{name}{{animation:{name} {ROUND_SECONDS}s linear {ROUNDS}}}"
            f"@keyframes {name}{{{frames}}}"
            for name, frames in moves.items()
        ),
        line="L".join(
            f"{PLOT * point['seconds'] / ended:.1f} {y(point['available_bytes'])}"
            for point in run["timeline"]
        ),
        kubelets=f"{100 - 100 * LEFT_TO_KUBELET:g}",
        kubelets_y=y(LEFT_TO_KUBELET * capacity),
        ours=f"{100 - 100 * mark / capacity:.0f}",
        ours_y=y(mark),
        date=run["date"],
        seconds=round(ended),
        first=format_duration(first),
        lowest=format_bytes(lowest),
        images=first_used + count["used"],
        left=_boxes(removed),
        going=_boxes(removed, box=GOING),
        stay=_boxes(kept["spared"], count["removed"]),
        needed=_boxes(kept["used"], first_used),
        spared_x=APART * count["removed"],
        used_x=APART * first_used,
        running=_boxes((name.split("/")[1] for name in kept["pods"]), box=POD, apart=206),
    )


def _boxes(names: Iterable[str], first: int = 0, box: str = BOX, apart: int = APART) -> str:
    """A box for each, at its place in the row."""
    return "\n".join(
        box.format(place=place, x=apart * place, name=html_text(name))
        for place, name in enumerate(names, first)
    )


if __name__ == "__main__":
    stored = drawn(json.loads(Path(sys.argv[1]).read_text()))
    MEASURED.write_text(json.dumps(stored).replace("}, {", "},\n{") + "\n")
    PICTURE.write_text(moving_picture(stored))
