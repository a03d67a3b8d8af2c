"""A line chart over training steps as an SVG file, with bands for intervals.

It needs no script and no library. Text is escaped, and coordinates have one decimal, so that files stay small.
"""

import math
from collections.abc import Sequence
from html import escape

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import package_text
from rubricem_viewer.api.figures import Curve

WIDTH, HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 36
_TICKS = 5
_NUM_COLOURS = 5
PlotArea = tuple[float, float, float, float]
"""The numbers at the edges of the drawing area: lowest and highest x, then y."""


def _position(area: PlotArea, x: float, y: float) -> str:
    x_low, x_high, y_low, y_high = area
    across = _LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT)
    down = HEIGHT - _BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - _TOP - _BOTTOM)
    return f"{across:.1f},{down:.1f}"


def draw_svg(title: str, curves: Sequence[Curve]) -> str:
    """The chart over the steps as a file of its own, with title, legend and colours inside.

    Raises:
        UsageError: there is nothing to draw.
    """
    drawn = [curve for curve in curves if curve.x]
    if not drawn:
        raise UsageError(f"there is no point to draw for the figure {title!r}; evaluate the runs at least once.")
    x_ticks = nice_ticks([x for curve in drawn for x in curve.x])
    y_ticks = nice_ticks([y for curve in drawn for y in (*curve.y, *curve.low, *curve.high)])
    area = x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1]
    shapes = "".join(_draw_curve(curve, area, index % _NUM_COLOURS) for index, curve in enumerate(drawn))
    keys = []
    for index, curve in enumerate(drawn):
        y = HEIGHT + 40 + 18 * index
        line = f'<line class="curve c{index % _NUM_COLOURS}" x1="48" x2="68" y1="{y - 4}" y2="{y - 4}"/>'
        keys.append(f'{line}<text class="tick" x="76" y="{y}">{escape(curve.name)}</text>')
    height = HEIGHT + 30 + 18 * len(keys)
    head = f'<text class="title" x="8" y="18">{escape(title)}</text>'
    inner = f'<svg y="26" width="{WIDTH}" height="{HEIGHT}">{_draw_axes(area, x_ticks, y_ticks)}{shapes}</svg>'
    outer = f'viewBox="0 0 {WIDTH} {height}" width="{2 * WIDTH}" height="{2 * height}"'
    named = f'role="img" aria-label="{escape(title, quote=True)}"'
    # A chart in a file of its own has no page to take colours from.
    style = f"<style>{package_text('research', 'line_chart.css')}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {outer} {named}>{style}{head}{inner}{"".join(keys)}</svg>\n'


def nice_ticks(values: Sequence[float]) -> list[float]:
    """About `_TICKS` round numbers, from below the least value to above the greatest; one value lies between two."""
    low, high = min(values), max(values)
    room = (abs(low) * 0.1 or 0.5) if low == high else 0.0
    raw = (high - low + 2 * room) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor((low - room) / step + 1e-9), math.ceil((high + room) / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _draw_axes(frame: PlotArea, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> str:
    lines = []
    for tick in y_ticks:
        x, y = _position(frame, x_ticks[0], tick).split(",")
        lines.append(f'<line class="grid" x1="{x}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text class="tick" x="{_LEFT - 6}" y="{float(y) + 3:.1f}" text-anchor="end">{tick:.4g}</text>')
    for tick in x_ticks:
        x = _position(frame, tick, y_ticks[0]).split(",")[0]
        lines.append(f'<text class="tick" x="{x}" y="{HEIGHT - 20}" text-anchor="middle">{tick:.4g}</text>')
    lines.append(f'<text class="tick" x="{WIDTH - _RIGHT}" y="{HEIGHT - 5}" text-anchor="end">step</text>')
    return "".join(lines)


def _draw_curve(curve: Curve, frame: PlotArea, colour: int) -> str:
    band = ""
    if len(curve.low) > 1:
        edge = [_position(frame, x, high) for x, high in zip(curve.x, curve.high, strict=True)]
        edge += [_position(frame, x, low) for x, low in zip(curve.x[::-1], curve.low[::-1], strict=True)]
        band = f'<polygon class="band c{colour}" points="{" ".join(edge)}"/>'
    positions = [_position(frame, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
    line = f'<polyline class="curve c{colour}"{dashes} points="{" ".join(positions)}"/>' if len(positions) > 1 else ""
    dots = positions if len(positions) <= 40 and not curve.dashed else []
    circles = (f'<circle class="dot c{colour}" cx="{x}" cy="{y}" r="2.2"/>' for x, y in (at.split(",") for at in dots))
    return band + line + "".join(circles)
