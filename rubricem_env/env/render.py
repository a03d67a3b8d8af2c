"""Prints an episode for a terminal, stage by stage and in colour."""

import re
import textwrap
from collections.abc import Sequence

from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import TERMINAL_CONTROL

_COLOURS = ("34", "33", "35", "36", "31", "94", "95")
_LAST_COLOUR = "32"
"""The terminal's colours of the stages, by their place; the last stage has one of its own."""
GREY = "90"
_BLOCK_BEGINS = re.compile(r"(?<=>)(?=<(?!cite|/))")
WIDTH = 100


def render_ansi(parsed: ParsedTrajectory, *, colour: bool = True) -> str:
    """The whole episode as text. Control characters are escaped, so that no page can control the terminal."""
    lines = [_paint(f"Question: {_printable(parsed.trajectory.question)}", "1", colour)]
    offset = 0
    shown: str | None = None
    for segment in parsed.trajectory.segments:
        if segment.origin is Origin.TOOL:
            lines.append(_paint(_wrapped(segment.text, "  │ "), GREY, colour))
        if segment.origin is not Origin.POLICY:
            continue
        for stage, text in _by_stage(parsed, offset, segment.text):
            if stage != shown:
                heading = f"── {stage.upper()} ".ljust(WIDTH, "─")
                lines.append(_paint(f"\n{heading}", f"1;{colour_of(parsed.stages, stage)}", colour))
                shown = stage
            lines.append(_paint(_wrapped(text, "  "), colour_of(parsed.stages, stage), colour))
        offset += len(segment.text)
    ending = parsed.trajectory.ending
    lines.append(_paint(f"\n── {ending.value if ending else 'running'}", "1", colour))
    return "\n".join(line for line in lines if line.strip())


def colour_of(stages: Sequence[str], stage: str) -> str:
    """The terminal's colour of a stage."""
    return _LAST_COLOUR if stage == stages[-1] else _COLOURS[stages.index(stage)]


def _by_stage(parsed: ParsedTrajectory, offset: int, text: str) -> list[tuple[str, str]]:
    """The parts of one policy segment, each with its stage."""
    parts = []
    for stage, span in parsed.spans.items():
        start, end = max(span.start - offset, 0), min(span.end - offset, len(text))
        if start < end:
            parts.append((stage, text[start:end]))
    return parts


def _wrapped(text: str, indent: str) -> str:
    """Wrapped lines. Line breaks of the text are kept, and each block begins a new line."""
    lines: list[str] = []
    for line in _BLOCK_BEGINS.sub("\n", _printable(text)).split("\n"):
        lines += textwrap.wrap(line, WIDTH - len(indent), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def _printable(text: str) -> str:
    return TERMINAL_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text.strip() else text
