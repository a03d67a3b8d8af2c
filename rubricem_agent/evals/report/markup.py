"""HTML from text, escaped in one place: nothing reaches a page but through here."""

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def show(value: object) -> Markup:
    """Any value as escaped text; markup as it is."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def element(name: str, *content: object, css: str = "") -> Markup:
    """An element around its content."""
    opening = f'{name} class="{escape(css)}"' if css else name
    return Markup(f"<{opening}>{''.join(map(show, content))}</{name}>")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, css: str = "") -> Markup:
    """A table in a box that scrolls by itself where it is too wide."""
    head = element("tr", *(element("th", heading) for heading in headings))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return element("div", element("table", element("thead", head), element("tbody", *body), css=css), css="scroll")


def interval_bar(value: float | None, low: float, *, high: float) -> Markup:
    """A score from 0 to 1 on a scale, with its interval; what lies outside the scale is drawn at its end."""
    if value is None:
        return Markup("")
    at, start, end = (min(1.0, max(0.0, x)) * 100 for x in (value, low, high))
    return Markup(
        '<svg width="108" height="14" viewBox="-4 0 108 14" role="img" aria-hidden="true">'
        '<rect class="scale" x="0" y="6" width="100" height="2"/>'
        f'<rect class="range" x="{start:.1f}" y="4" width="{max(1.0, end - start):.1f}" height="6"/>'
        f'<circle class="point" cx="{at:.1f}" cy="7" r="4"/></svg>'
    )
