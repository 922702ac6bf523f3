"""The CSS of the drill's pages and pictures: light or dark by the reader's preference, and for print."""

from __future__ import annotations

COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --ink: #1d2126; --soft: #5c6570; --edge: #d9dde2; --grid: #e6e9ed; --sheet: #ffffff;
  --a: #1f6feb; --b: #b35900; --mark: #c0261d; --soft-mark: #9a6700; --band: rgba(214, 48, 39, 0.13);
  --good: #1a7f37; --bad: #c0261d; --image: #6f42c1; --container: #0b7285; --sandbox: #6b7280; --log: #8a6100;
  --fault: #c2255c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e4e7eb; --soft: #9aa4af; --edge: #363d46; --grid: #272d34; --sheet: #1a1e23;
    --a: #6cb0ff; --b: #ffab5c; --mark: #ff7b72; --soft-mark: #e3b341; --band: rgba(255, 123, 114, 0.17);
    --good: #56d364; --bad: #ff7b72; --image: #c4a1ff; --container: #5fd3e6; --sandbox: #a2abb5; --log: #e3c16f;
    --fault: #ff8fb8;
  }
}
"""

DRAWING = """.grid { stroke: var(--grid); }
.axis { fill: var(--soft); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.label { fill: var(--mark); }
.line-a, .line-b { fill: none; stroke: var(--a); stroke-width: 1.8; stroke-linejoin: round; }
.line-b { stroke: var(--b); stroke-dasharray: 7 3; }
.mark { stroke: var(--mark); stroke-width: 1.2; }
.soft-mark { stroke: var(--soft-mark); stroke-width: 1.2; stroke-dasharray: 5 3; }
.soft-mark-label { fill: var(--soft-mark); }
.release { stroke: var(--soft); stroke-dasharray: 2 3; }
.release-label { fill: var(--soft); }
.band { fill: var(--band); }
.condition { fill: var(--mark); }
.pressure { fill: var(--soft); }
.pressure-b { fill: var(--b); }
.tick { stroke: var(--sandbox); stroke-width: 1.6; }
.tick .hit { stroke: transparent; stroke-width: 9; pointer-events: stroke; }
.image { stroke: var(--image); } .container { stroke: var(--container); }
.sandbox { stroke: var(--sandbox); } .log { stroke: var(--log); }
.fault { stroke: var(--fault); stroke-width: 2.4; } .pod { stroke: var(--mark); stroke-width: 2.4; }
"""
"""The CSS classes of a chart."""

STYLE = (
    COLOURS
    + """* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p { margin: 0.4rem 0; }
.why { color: var(--soft); }
.verdict { font-weight: 600; }
.good { color: var(--good); }
.bad { color: var(--bad); }
figure { margin: 0 0 1rem; padding: 0.6rem 0.6rem 0.2rem; background: var(--sheet); border: 1px solid var(--edge);
  border-radius: 6px; overflow-x: auto; }
figcaption { font-weight: 600; margin: 0 0 0.2rem 0.3rem; }
svg { display: block; width: 100%; min-width: 40rem; height: auto; font: 11px system-ui, sans-serif; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--sheet); }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.7rem 0.3rem 0.5rem; border: 1px solid var(--edge); }
th { font-weight: 600; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.8rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.key span { display: inline-block; margin-right: 1.2rem; white-space: nowrap; }
.key i { display: inline-block; width: 1.1rem; height: 0.6rem; margin-right: 0.4rem; }
"""
    + DRAWING
    + """i.image { background: var(--image); } i.container { background: var(--container); }
i.sandbox { background: var(--sandbox); } i.log { background: var(--log); }
i.fault { background: var(--fault); } i.band { background: var(--band);
  border: 1px solid var(--mark); } i.release { border-top: 2px dotted var(--soft); height: 0; vertical-align: middle; }
i.line-a { border-top: 3px solid var(--a); height: 0; vertical-align: middle; }
i.line-b { border-top: 3px dashed var(--b); height: 0; vertical-align: middle; }
@media (max-width: 40rem) { body { padding: 0.8rem; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 0.4rem; } }
@media print {
  :root { color-scheme: light; --paper: #fff; --sheet: #fff; --ink: #000; --soft: #444; --edge: #999; --grid: #ddd;
    --a: #00439c; --b: #8a4500; --mark: #a00; --soft-mark: #754c00; --band: #f6d9d6; --good: #0a5a20; --bad: #a00;
    --image: #4b2a8c; --container: #064b57; --sandbox: #444;
    --log: #5c4000; --fault: #8c1a43; }
  body { max-width: none; padding: 0; font-size: 10pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  figure, tr { break-inside: avoid; }
  figure { border: 0; }
  svg { min-width: 0; }
  .scroll { overflow: visible; }
  table { font-size: 8.5pt; }
  th, td { padding: 0.15rem 0.4rem; }
  h2 { break-after: avoid; }
}
"""
)
"""The CSS of a page."""
