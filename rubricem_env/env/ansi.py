"""An episode for a terminal, stage by stage, each in its colour."""

import re
import textwrap

from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.reading import Reading

_COLOURS = {Stage.PLAN: "34", Stage.RESEARCH: "33", Stage.REVIEW: "35", Stage.ANSWER: "32"}
_GREY = "90"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BLOCK_BEGINS = re.compile(r"(?<=>)(?=<(?!cite|/))")
WIDTH = 100


def render_ansi(reading: Reading, *, colour: bool = True) -> str:
    """The whole episode as text. Control characters are made visible: a page cannot drive the reader's terminal."""
    lines = [_paint(f"Question: {_printable(reading.trajectory.question)}", "1", colour)]
    offset = 0
    shown: Stage | None = None
    for segment in reading.trajectory.segments:
        if segment.origin is Origin.TOOL:
            lines.append(_paint(_wrapped(segment.text, "  │ "), _GREY, colour))
        if segment.origin is not Origin.POLICY:
            continue
        for stage, text in _by_stage(reading, offset, segment.text):
            if stage is not shown:
                heading = f"── {stage.value.upper()} ".ljust(WIDTH, "─")
                lines.append(_paint(f"\n{heading}", f"1;{_COLOURS[stage]}", colour))
                shown = stage
            lines.append(_paint(_wrapped(text, "  "), _COLOURS[stage], colour))
        offset += len(segment.text)
    ending = reading.trajectory.ending
    lines.append(_paint(f"\n── {ending.value if ending else 'running'}", "1", colour))
    return "\n".join(line for line in lines if line.strip())


def _by_stage(reading: Reading, offset: int, text: str) -> list[tuple[Stage, str]]:
    """The parts of one policy segment with the stage that each belongs to."""
    parts = []
    for stage in STAGES:
        for span in reading.spans.of(stage):
            start, end = max(span.start - offset, 0), min(span.end - offset, len(text))
            if start < end:
                parts.append((stage, text[start:end]))
    return parts


def _wrapped(text: str, indent: str) -> str:
    """Wrapped lines; the line breaks of the text are kept, and each block begins a new one."""
    lines: list[str] = []
    for line in _BLOCK_BEGINS.sub("\n", _printable(text)).split("\n"):
        lines += textwrap.wrap(line, WIDTH - len(indent), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def _printable(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text.strip() else text
