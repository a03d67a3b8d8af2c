"""What a judge model is shown of an attempt: its stages as JSON, within a limit of tokens."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.model.attempt_parts import Part, fit_parts, join_parts, mark, parts_of
from rubricem_env.judge.model.delimiters import write_block
from rubricem_env.judge.model.repeats import find_repeats
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.tools.render import estimate_tokens

TRUNCATED = "[truncated]"
QUESTION_CHARS = 20_000
"""The most characters that a judge is shown of a question. Longer text keeps its head and its tail."""
TRAJECTORY_TOKENS = 24_576
"""How many tokens are shown of one attempt: more than the paper's 18,432 tokens of a response."""
GROUP_TOKENS = 196_608
"""How many tokens are shown of all attempts of a group together."""
LEAST_TOKENS = 512
"""The least that can be asked for."""
MOST_ESCAPED = 2
"""By how much the escapes of JSON may lengthen an attempt that fits: quotes and backslashes double, and control
characters would make six of one.
"""


def render_stages(parsed: ParsedTrajectory, *, tokens: int = TRAJECTORY_TOKENS) -> dict[str, Any]:
    """Each stage as a list of {"agent": text} and {"tool_output": text}; None where the stage never happened.

    An attempt whose text has more tokens is shortened until all that is written of it has no more, with notes of how
    much was left out. Tokens are estimated.
    """
    parts = tuple(parts_of(parsed, repeats=find_repeats(parsed)))
    stages = _staged(parsed, parts)
    written = sum(map(estimate_tokens, _texts(stages)))
    if written <= tokens and _size(stages, parsed) <= MOST_ESCAPED * max(tokens, LEAST_TOKENS):
        return stages
    shown = fit_parts(parts, lambda form: tokens - _size(_staged(parsed, form), parsed), spare=tokens // 64)
    return _staged(parsed, shown)


def _size(stages: Mapping[str, Any], parsed: ParsedTrajectory) -> int:
    """The tokens of what is written into a request."""
    return estimate_tokens(write_block(stages, parsed.scaffold))


def _texts(stages: Mapping[str, Any]) -> Iterator[str]:
    entries = (entry for own in stages.values() for entry in own or ())
    return (text for entry in entries for author, text in entry.items() if author != "note")


def _staged(parsed: ParsedTrajectory, parts: Iterable[Part]) -> dict[str, Any]:
    by_stage: dict[str, list[Part]] = {stage: [] for stage in parsed.stages}
    for part in parts:
        by_stage[part.stage].append(part)
    stages: dict[str, Any] = {}
    for stage, own in by_stage.items():
        stages[stage] = list(_entries(own)) if parsed.happened(stage) else None
        if stages[stage] and parsed.is_truncated(stage):
            stages[stage].append({"note": TRUNCATED})
    return stages


def _entries(parts: Iterable[Part]) -> Iterator[dict[str, str]]:
    """The turns and observations of a stage; one note for all that are left out in a row."""
    left_out = 0
    for (author, _), run in groupby(parts, key=lambda part: (part.author, part.segment)):
        together = list(run)
        gone = sum(part.left_out for part in together)
        if gone and not any(part.text for part in together):
            left_out += gone
            continue
        if left_out:
            yield {"note": mark(left_out)}
            left_out = 0
        yield {"agent" if author is Origin.POLICY else "tool_output": join_parts(together)}
    if left_out:
        yield {"note": mark(left_out)}
