"""The rows as an SVG: a line each, a dot per peer at its time relative to eager's, on a logarithmic axis, with its interval.

Written by hand, since nothing that draws is a dependency. Text and lines take their colour from the viewer's scheme,
light or dark; peers' colours (Okabe & Ito 2008, made a little lighter or darker) and shapes are told apart on both.
"""

import math
from html import escape

import report as reports

COLOURS = {
    "tenon": "#d55e00", "inductor": "#0b84c6", "inductor_frozen": "#5fb4e5", "jax": "#1aa87a", "onnxruntime": "#c76ba0",
    "openvino": "#b8a000", "eager": "#888888",
}  # fmt: skip
OTHER = "#8a63d2"
SHAPES = {"tenon": "diamond", "inductor_frozen": "square", "openvino": "square", "jax": "triangle"}
LEFT, RIGHT, TOP, LINE, WIDTH = 250, 40, 70, 22, 1000
STYLE = "text{fill:#1f2328}.dim{fill-opacity:.7}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
GRID, ONE = 'stroke="#808080" stroke-opacity=".35"', 'stroke="#808080" stroke-width="2"'  # seen on white and on black


class Axis:
    """Logarithmic, over whole 1-2-5 steps around the values."""

    STEPS = [m * 10.0**e for e in range(-5, 5) for m in (1, 2, 5)]

    def __init__(self, values: list[float], left: float, right: float):
        low, high = min([*values, 0.8]), max([*values, 1.25])
        self.low = max(step for step in self.STEPS if step <= low)
        self.high = min(step for step in self.STEPS if step >= high)
        self.left, self.right = left, right

    def place(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        inside = [step for step in self.STEPS if self.low <= step <= self.high]
        return inside if len(inside) <= 12 else [step for step in inside if f"{step:e}".startswith("1")]


def svg(report: dict) -> str:
    summaries = [s for s in report["rows"] if any("ratio" in entry for entry in s["peers"].values())]
    peers = [peer for peer in reports.order(summaries) if peer != "eager"]
    ratios = [entry["ratio"] for s in summaries for peer, entry in s["peers"].items() if peer in peers and "ratio" in entry]
    axis = Axis([r[key] for r in ratios for key in ("low", "high")], LEFT, WIDTH - RIGHT)
    bottom = TOP + LINE * len(summaries)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" '
             'font-family="sans-serif" font-size="12">',
             "<title>Time of each peer relative to eager</title>", f"<style>{STYLE}</style>"]  # fmt: skip
    parts += _legend(peers)
    for tick in axis.ticks():
        x = axis.place(tick)
        parts.append(f'<line {ONE if tick == 1 else GRID} x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 14}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    said = "time relative to eager's, smaller is better"
    parts.append(f'<text class="dim" x="{axis.place(1):.1f}" y="{bottom + 32}" text-anchor="middle">{said}</text>')
    for index, summary in enumerate(summaries):
        parts += _row(summary, peers, axis, TOP + LINE * index)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(peers: list[str]) -> list[str]:
    parts, x = [], LEFT
    for peer in peers:
        parts += [_mark(peer, x, 24, 1.0, peer), f'<text x="{x + 10}" y="28">{escape(peer)}</text>']
        x += 34 + 7 * len(peer)
    return [*parts, f'<text class="dim" x="{LEFT}" y="46">hollow: wrong values; faint: noisy</text>']


def _row(summary: dict, peers: list[str], axis: Axis, y: float) -> list[str]:
    remark = " *" if summary["reaches_backend"] is False else ""
    remark += " ~" if summary["noisy"] else ""
    parts = [f'<text x="{LEFT - 14}" y="{y + 4}" text-anchor="end">{escape(summary["row"] + remark)}</text>',
             f'<line {GRID} x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>']  # fmt: skip
    shown = [peer for peer in peers if "ratio" in summary["peers"].get(peer, {})]
    for place, peer in enumerate(shown):
        entry = summary["peers"][peer]
        at, ratio = y + (place - (len(shown) - 1) / 2) * 2.5, entry["ratio"]
        colour, opacity = COLOURS.get(peer, OTHER), 0.4 if entry["noisy"] else 1.0
        a, b = axis.place(ratio["low"]), axis.place(ratio["high"])
        line = f'x1="{a:.1f}" x2="{b:.1f}" y1="{at:.1f}" y2="{at:.1f}"'
        parts.append(f'<line {line} stroke="{colour}" stroke-width="2" stroke-opacity="{opacity}"/>')
        title = f"{summary['row']}: {peer} {reports.cell(entry)}"
        parts.append(_mark(peer, axis.place(ratio["median"]), at, opacity, title, entry["wrong"]))
    return parts


def _mark(peer: str, x: float, y: float, opacity: float, title: str, hollow: bool = False) -> str:
    colour = COLOURS.get(peer, OTHER)
    paint = f'fill="{"none" if hollow else colour}" stroke="{colour}" opacity="{opacity}"'
    shape = {
        "diamond": f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6-6z" {paint}>',
        "square": f'<path d="M{x - 4:.1f} {y - 4:.1f}h8v8h-8z" {paint}>',
        "triangle": f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" {paint}>',
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {paint}>',
    }[SHAPES.get(peer, "circle")]
    return f"{shape}<title>{escape(title)}</title></{'circle' if shape.startswith('<circle') else 'path'}>"
