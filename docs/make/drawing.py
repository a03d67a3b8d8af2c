"""A small drawing: boxes, arrows and words as SVG that is read in dark and in light, alone or inside a page."""

from html import escape

STYLE = """
svg.drawing { --ink: #1d2733; --soft: #5b6875; --line: #8a96a3; --box: #f3f5f7; --plan: #d6e6fa; --research: #fbe6c4;
  --review: #f6d9e2; --answer: #d5efdd; --mark: #b3261e; font: 14px system-ui, "Segoe UI", sans-serif; }
@media (prefers-color-scheme: dark) { svg.drawing { --ink: #e7ebef; --soft: #aab4bf; --line: #71808f; --box: #262d36;
  --plan: #1f3a5c; --research: #553c12; --review: #57283a; --answer: #1e4a30; --mark: #ffb4ab; } }
[data-md-color-scheme="default"] svg.drawing { --ink: #1d2733; --soft: #5b6875; --line: #8a96a3; --box: #f3f5f7;
  --plan: #d6e6fa; --research: #fbe6c4; --review: #f6d9e2; --answer: #d5efdd; --mark: #b3261e; }
[data-md-color-scheme="slate"] svg.drawing { --ink: #e7ebef; --soft: #aab4bf; --line: #71808f; --box: #262d36;
  --plan: #1f3a5c; --research: #553c12; --review: #57283a; --answer: #1e4a30; --mark: #ffb4ab; }
.drawing text { fill: var(--ink); } .drawing .soft { fill: var(--soft); font-size: 12px; }
.drawing .bold { font-weight: 600; } .drawing .mark { fill: var(--mark); font-size: 12px; }
.drawing .code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; }
.drawing rect { stroke: var(--line); } .drawing .arrow { stroke: var(--line); stroke-width: 1.6; fill: none; }
.drawing .dashed { stroke-dasharray: 5 4; } .drawing .tip { fill: var(--line); }
"""
LINE = 17
"""Pixels from one line of text to the next."""


class Drawing:
    """Shapes in the order in which they are drawn. Coordinates are pixels from the top left corner."""

    def __init__(self, name: str, title: str, *, width: int, height: int) -> None:
        self.name = name
        self._title = title
        self._size = (width, height)
        self._shapes: list[str] = []

    def box(self, at: tuple[int, int], size: tuple[int, int], words: str = "", *, kind: str = "box") -> None:
        """A box with its words in the middle; the first line is bold where there are several."""
        (x, y), (width, height) = at, size
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" style="fill:var(--{kind})"/>'
        )
        lines = words.split("\n") if words else []
        first = y + height / 2 - (len(lines) - 1) * LINE / 2 + 5
        for number, line in enumerate(lines):
            style = "bold" if number == 0 else "soft"
            self.text((x + width // 2, round(first + number * LINE)), line, style=style, anchor="middle")

    def text(self, at: tuple[int, int], words: str, *, style: str = "", anchor: str = "start") -> None:
        """Words that begin, or are centred, at a point."""
        self._shapes.append(
            f'<text x="{at[0]}" y="{at[1]}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def arrow(self, *points: tuple[int, int], words: str = "", dashed: bool = False, lift: int = 6) -> None:
        """A line through the points with a tip at the last one; its words stand over the middle of its first part."""
        path = " L ".join(f"{x} {y}" for x, y in points)
        style = "arrow dashed" if dashed else "arrow"
        self._shapes.append(f'<path class="{style}" d="M {path}" marker-end="url(#tip-{self.name})"/>')
        if words:
            (x1, y1), (x2, y2) = points[0], points[1]
            self.text(((x1 + x2) // 2, (y1 + y2) // 2 - lift), words, style="soft", anchor="middle")

    def render(self) -> str:
        """The whole file."""
        width, height = self._size
        tip = (
            f'<marker id="tip-{self.name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path class="tip" d="M 0 0 L 8 4 L 0 8 z"/></marker>'
        )
        return "\n".join(
            [
                '<svg xmlns="http://www.w3.org/2000/svg" class="drawing" '
                f'viewBox="0 0 {width} {height}" width="{width}">',
                f"<title>{escape(self._title)}</title>",
                f"<style>{STYLE}</style>",
                f"<defs>{tip}</defs>",
                *self._shapes,
                "</svg>",
                "",
            ]
        )
