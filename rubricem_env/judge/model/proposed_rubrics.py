"""Reads the rubrics that a judge model proposes in one reply."""

import sys
from collections.abc import Iterator, Mapping
from typing import get_args

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Polarity, Provenance, Rubric

RUBRICS_PER_STAGE = "1 to 4"
"""How many rubrics the prompt asks for in the stages plan, research and review."""
RUBRICS_PER_ANSWER = "2 to 5"
"""How many rubrics the prompt asks for in the stage answer."""
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


def read_proposal(reply: Mapping[str, object], provenance: Provenance, *, refused: list[str]) -> Iterator[Rubric]:
    """The rubrics of a reply. A malformed rubric is refused by itself.

    Raises:
        ModelError: no stage is there at all.
    """
    keys = {stage: f"stage_{stage.position + 1}" for stage in STAGES}
    if not any(isinstance(reply.get(key), dict) for key in keys.values()):
        raise ModelError(f"none of {', '.join(keys.values())} is there", is_retryable=True)
    for stage, key in keys.items():
        lists = reply.get(key)
        drafts = list(
            _read_stage(lists if isinstance(lists, dict) else {}, stage, provenance=provenance, refused=refused)
        )
        refused += [
            f"too_many: {stage.value} rubric {draft.title[:60]!r} is one too many"
            for draft in drafts[ACCEPTED_PER_STAGE:]
        ]
        yield from drafts[:ACCEPTED_PER_STAGE]


def _read_stage(
    lists: Mapping[str, object], stage: Stage, *, provenance: Provenance, refused: list[str]
) -> Iterator[Rubric]:
    for polarity in get_args(Polarity):
        rows = lists.get(f"{polarity}_rubrics")
        for row in rows if isinstance(rows, list) else []:
            title, description, weight = _fields(row)
            if not (title and description) or weight is None:
                refused.append(f"format: {stage.value} rubric {title[:60]!r} lacks a title, a description or a weight")
                continue
            clamped = min(max(WEIGHTS), max(min(WEIGHTS), weight))
            if clamped != weight:
                refused.append(
                    f"weight: {stage.value} rubric {title[:60]!r} had the weight {weight:g}; taken as {clamped:g}"
                )
            yield Rubric(
                stage=stage,
                title=title,
                description=description,
                polarity=polarity,
                weight=float(clamped),
                provenance=provenance,
            )


def _fields(row: object) -> tuple[str, str, float | None]:
    fields = row if isinstance(row, dict) else {}
    title, description, weight = (fields.get(name) for name in ("title", "description", "weight"))
    # A whole number may be larger than any float.
    usable = isinstance(weight, int | float) and type(weight) is not bool and abs(weight) <= sys.float_info.max
    return (
        " ".join(title.split()) if isinstance(title, str) else "",
        " ".join(description.split()) if isinstance(description, str) else "",
        float(weight) if usable and weight is not None else None,
    )
