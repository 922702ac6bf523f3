"""The page: sections of the root page, the tables of the stored runs, the report of a drill."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from datetime import date
from functools import partial
from importlib import metadata

from eviction.drill.report.page import STYLE, table
from eviction.drill.report.timeline import html_text
from signals.quantity import format_duration
from tests.bench.measure import figure
from tests.bench.regret.page import NAMES, Results
from tests.bench.regret.policies import POLICIES
from tests.bench.regret.workloads import GIB, WORKLOADS
from tests.kubelet.duel import MIB, Responder
from tests.kubelet.matrix_page import Recorded, figures, nodes
from tests.repository import ROOT
from tests.site.sections import html, section

README = ROOT / "README.md"
WRITTEN = ("Beside what people use today", "Try it")  # sections of the root page
WHO = {
    Responder.NOBODY: "the kubelet alone",
    Responder.RECLAIMD: "with reclaimd",
    Responder.PRUNE: "crictl rmi --prune each minute",
}
OUR_STYLE = """
a { color: var(--a); overflow-wrap: anywhere; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 0.5rem; top: 0.5rem; padding: 0.5rem 1rem; background: var(--sheet); }
nav ul { display: flex; flex-wrap: wrap; gap: 0 1.5rem; padding: 0; list-style: none; }
nav a { display: inline-block; padding: 0.4rem 0; }
h1 { font-size: 2.2rem; }
h2 { font-size: 1.4rem; margin-top: 3rem; }
h3 { font-size: 1.1rem; margin: 1.5rem 0 0.5rem; text-align: left; }
h4 { margin: 1.5rem 0 0.5rem; text-align: left; }
p, li { max-width: 46rem; }
main p { margin: 0.8rem 0; }
caption h3, caption h4 { position: sticky; left: 0; max-width: 80vw; }
li { margin: 0.4rem 0; }
.lead { font-size: 1.15rem; }
code, pre { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { padding: 0.8rem; overflow-x: auto; background: var(--sheet); border: 1px solid var(--edge); border-radius: 6px; }
pre code { overflow-wrap: normal; }
img { display: block; width: 100%; min-width: 60rem; height: auto; }
caption { text-align: left; }
caption.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
footer { margin-top: 3rem; border-top: 1px solid var(--edge); color: var(--soft); }
"""


def site(
    report: str, runs: Sequence[Recorded], regret: Results, measured_on: str, source: str = ""
) -> str:
    """The page. `report`: the page of a drill. `runs`: of the matrix. `measured_on`:
    when `regret` was simulated. `source`: where the repository is on the web, with a
    slash at its end; "": nowhere."""
    measured = {
        "Beside a real kubelet": _duels(runs),
        "What removals cost later": _regret(regret, measured_on),
        "The report of a drill": _drill(report),
    }
    written = partial(
        html, source=source, headings=[_anchor(name) for name in (*WRITTEN, *measured)]
    )
    parts = {name: written(section(README, name), name) for name in WRITTEN} | measured
    links = "".join(f'<li><a href="#{_anchor(name)}">{html_text(name)}</a></li>' for name in parts)
    sections = "\n".join(
        f'<section id="{_anchor(name)}"'
        f' aria-label="{html_text(name)}">\n<h2>{html_text(name)}</h2>\n{text}\n</section>'
        for name, text in parts.items()
    )
    lead = written(section(README, ""), "reclaimd").replace("<p>", '<p class="lead">', 1)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"/>
<meta name="description" content="{html_text(metadata.metadata("reclaimd")["Summary"])}"/>
<title>reclaimd</title>
<style>{STYLE}{OUR_STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>reclaimd</h1>
<nav aria-label="On this page"><ul>{links}</ul></nav>
</header>
<main id="main">
{lead}
{sections}
</main>
<footer><p>reclaimd {html_text(metadata.version("reclaimd"))}, Apache-2.0</p></footer>
</body>
</html>
"""


def _duels(runs: Sequence[Recorded]) -> str:
    """How often there was DiskPressure, by filesystem, and the figures of each node."""
    first = runs[0].head
    days = sorted({date.fromisoformat(run.head["date"][:10]) for run in runs})
    when = " to ".join(dict.fromkeys(map(str, (days[0], days[-1]))))
    rates, kubelets = (sorted({run.head[name] for run in runs}) for name in ("rate_mib", "kubelet"))
    size, images = (
        f"{first['size_bytes'] / GIB:g} GiB",
        f"{first['unused_images']} of its images unused",
    )
    prose = (
        f"A new node for each run: a kubelet ({', '.join(kubelets)}), a container runtime, a disk"
        f" of {size}, {images}. One file grows by {' and '.join(map(str, rates))} MiB/s until the"
        f" disk is far below the kubelet's threshold. {len(runs)} runs on"
        f" {first['machine']['processors']} shared processors, Linux {first['kernel']}, {when}."
    )
    there = [who for who in Responder if any(run.head["responder"] == who for run in runs)]
    filesystems = sorted({run.head["filesystem"] for run in runs})
    pressed = [[name, *(_pressed(runs, name, who) for who in there)] for name in filesystems]
    rows = []
    for node in nodes(runs):
        kubelet, runtime, filesystem, rate = node
        differs = [f"kubelet {kubelet}"] * (len(kubelets) > 1), [f"{rate} MiB/s"] * (len(rates) > 1)
        name = ", ".join([*differs[0], runtime, filesystem, *differs[1]])
        for who in there:
            if (found := figures(runs, node, who)) is not None:
                freed = found.first_freed_seconds
                rows.append(
                    [
                        html_text(name),
                        html_text(WHO[who]),
                        f"{found.pressure} of {found.runs}",
                        "-" if freed is None else format_duration(freed),
                        f"{found.lowest_bytes / MIB:+.0f} MiB",
                        f"{found.images_left:g}",
                        str(found.evicted),
                    ]
                )
    head = ["Node", "Who answers", "DiskPressure", "First byte", "Lowest", "Images left", "Evicted"]
    key = (
        "First byte: after the own mark was crossed (on btrfs no time: it accounts for it later)."
        " Lowest: above the kubelet's threshold, or below it (-); the kubelet looks each 10 s, so"
        " it may not see a short while. Both, and the images that were left, are medians. Evicted:"
        " pods, of all runs."
    )
    return "\n".join(
        [
            f"<p>{html_text(prose)}</p>",
            _below(
                table(
                    "Runs with DiskPressure", ["Filesystem", *(WHO[who] for who in there)], pressed
                )
            ),
            _below(table("Each node", head, rows, numbers=head[2:], name="Node")),
            f"<p>{html_text(key)}</p>",
        ]
    )


def _pressed(runs: Sequence[Recorded], filesystem: str, who: Responder) -> str:
    found = [
        run for run in runs if run.head["filesystem"] == filesystem and run.head["responder"] == who
    ]
    return f"{sum(run.summary['pressure'] for run in found)} of {len(found)}" if found else "-"


def _regret(results: Results, measured_on: str) -> str:
    """Two figures of each order, by kind of node."""
    prose = (
        "An image that is removed may be pulled again. Simulated on"
        f" {results.machine.removesuffix(', simulated')}, {measured_on}."
    )
    head = ["Order of removals", *WORKLOADS]
    again, pressures = [], []
    for order in (
        order for order in POLICIES if any(order in found for found in results.figures.values())
    ):
        name = re.sub(r"`([^`]+)`", r"<code>\1</code>", html_text(NAMES[order]))
        found = [results.figures.get(workload, {}).get(order, []) for workload in WORKLOADS]
        medians = [
            statistics.median(each.again_bytes for each in of) if of else None for of in found
        ]
        again.append([name, *("-" if size is None else figure(size / GIB) for size in medians)])
        pressures.append(
            [name, *(str(sum(each.pressures for each in of)) if of else "-" for of in found)]
        )
    return "\n".join(
        [
            f"<p>{html_text(prose)}</p>",
            _below(table("GiB pulled again, median of the nodes", head, again, numbers=head[1:])),
            _below(table("Times of DiskPressure, of all nodes", head, pressures, numbers=head[1:])),
        ]
    )


def _drill(report: str) -> str:
    """The body of its own page, below a heading of this one."""
    body = report.partition("<main>")[2].partition("</main>")[0]
    return re.sub(r"(</?h)([12])>", lambda tag: f"{tag[1]}{int(tag[2]) + 2}>", body)


def _below(text: str) -> str:
    """A table whose caption is a heading below one of this page."""
    return text.replace("h2>", "h3>")


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower())
