"""Reads the rubrics that a judge model proposes in one reply."""

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from pydantic import JsonValue

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Polarity, Provenance, Rubric

ACCEPTED_PER_STAGE = 6
"""How many rubrics of a stage are taken from one reply.

It is more than the prompt asks for, and fewer than a reply could hold.
"""
TITLE_WORDS = 10
"""The longest title that the prompt asks for."""
DESCRIPTION_WORDS = 80
"""The longest description that the prompt asks for."""
WEIGHTS = {1: "minor", 2: "important", 3: "critical"}
"""The weights that a judge model may give, with their meaning."""
_Lists = Mapping[Polarity, Sequence[JsonValue]]


def stage_keys(stages: Sequence[str]) -> dict[str, str]:
    """The field of a reply that has a stage's rubrics, by stage."""
    return {stage: f"stage_{number}" for number, stage in enumerate(stages, start=1)}


def read_proposal(
    reply: Mapping[str, JsonValue], provenance: Provenance, *, refused: list[str], stages: Sequence[str] = STAGES
) -> Iterator[Rubric]:
    """The rubrics of a reply. A malformed rubric is refused by itself.

    Raises:
        ModelError: the reply is not the stages, each with its two lists, and nothing else. Then none was refused.
    """
    keys = stage_keys(stages)
    lists = {stage: _lists_of(reply.get(key), key) for stage, key in keys.items()}
    others = sorted(reply.keys() - keys.values())
    if others:
        raise ModelError(f"it has the field {others[0][:40]!r} beside the stages", is_retryable=True)
    for stage in stages:
        drafts = list(_read_stage(lists[stage], stage, provenance=provenance, refused=refused))
        refused += [
            f"too_many: {stage} rubric {draft.title[:60]!r} is one too many" for draft in drafts[ACCEPTED_PER_STAGE:]
        ]
        yield from drafts[:ACCEPTED_PER_STAGE]


def _lists_of(written: JsonValue, key: str) -> _Lists:
    """The rows of a stage by polarity."""
    fields = written if isinstance(written, dict) else {}
    lists: dict[Polarity, list[JsonValue]] = {}
    for polarity in get_args(Polarity):
        rows = fields.get(f"{polarity}_rubrics")
        if isinstance(rows, list):
            lists[polarity] = rows
    if len(lists) < len(get_args(Polarity)) or len(fields) > len(lists):
        raise ModelError(f"{key} is not the two lists of rubrics and nothing else", is_retryable=True)
    return lists


def _read_stage(lists: _Lists, stage: str, *, provenance: Provenance, refused: list[str]) -> Iterator[Rubric]:
    for polarity, rows in lists.items():
        for row in rows:
            title, description, weight = _fields(row)
            if not (title and description) or weight is None:
                refused.append(
                    f"format: {stage} rubric {title[:60]!r} lacks a title, a description or a weight of "
                    f"{', '.join(map(str, WEIGHTS))}"
                )
                continue
            yield Rubric(
                stage=stage,
                title=title,
                description=description,
                polarity=polarity,
                weight=float(weight),
                provenance=provenance,
            )


def _fields(row: JsonValue) -> tuple[str, str, int | None]:
    fields = row if isinstance(row, dict) else {}
    title, description, weight = (fields.get(name) for name in ("title", "description", "weight"))
    return (
        " ".join(title.split()) if isinstance(title, str) else "",
        " ".join(description.split()) if isinstance(description, str) else "",
        weight if type(weight) is int and weight in WEIGHTS else None,
    )
