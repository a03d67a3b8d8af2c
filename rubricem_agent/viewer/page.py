"""One self-contained HTML page: the template, and the few pieces that pages are made of. Everything is escaped here."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

_TEMPLATE = Path(__file__).parent / "templates" / "run_report.html"


def fill_page(title: str, sections: Iterable[str]) -> str:
    """The page; `title` is text, the sections are HTML."""
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body="\n".join(sections))


def heading(title: str, lead: str) -> str:
    return f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>'


def section(title: str, *parts: str) -> str:
    """A titled section of HTML parts."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def alarm_box(text: str) -> str:
    return f'<p class="alarm" role="note">{escape(text)}</p>'


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Numbers with their names."""
    cells = (f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b></div>' for name, value in pairs)
    return f'<div class="tiles">{"".join(cells)}</div>'


def charts(figures: Iterable[str]) -> str:
    return f'<div class="charts">{"".join(figures)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text; wide ones scroll by themselves."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def folded(summary: str, text: str) -> str:
    """Text as it is, behind a summary."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
