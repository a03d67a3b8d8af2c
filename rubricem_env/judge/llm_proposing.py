"""Asks a chat model for rubrics by contrast, and lets in only those that pass the gate."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.rubric import Polarity, Provenance, Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.asking import PROPOSE, Asker
from rubricem_env.judge.base import Contrast, Proposal
from rubricem_env.judge.fence import Fence
from rubricem_env.judge.gate import refuse_rubric
from rubricem_env.judge.prompts import Prompt
from rubricem_env.judge.render import CONTRAST_BUDGET, RenderBudget, render_stages, shorten_middle
from rubricem_env.judge.rubric_set import RubricSet
from rubricem_env.judge.schemas import WireProposal
from rubricem_env.judge.seeds import open_generator
from rubricem_env.llm.base import ChatReply
from rubricem_env.llm.structured import UnusableReplyError, ask_for, parse_json_object
from rubricem_env.scaffold.shown_text import ShownText

MAX_PER_STAGE = 6
"""More than the prompt's targets, fewer than a reply could hold (choice B16)."""
MIN_WEIGHT, MAX_WEIGHT = 1, 3
Drafts = list[Rubric]


async def propose_rubrics(
    asker: Asker, prompt: Prompt, *, contrast: Contrast, budget: RenderBudget = CONTRAST_BUDGET
) -> Proposal:
    """New rubrics for the group; a failure is told in the proposal."""
    provenance = Provenance(step=contrast.step, model=asker.model.name, prompt_hash=prompt.hash)
    request = asker.request(prompt, render_contrast(contrast, budget), schema=WireProposal, purpose=PROPOSE)
    refused: list[str] = []

    def parse(reply: ChatReply) -> Drafts:
        refused.clear()
        return list(_read_proposal(parse_json_object(reply), provenance, refused=refused))

    try:
        drafts = await ask_for(asker.model, request, parse=parse, insistence=asker.insistence)
    except ModelError as failure:
        return Proposal(failure=str(failure))
    shown = ShownText.in_trajectories(reading.trajectory for reading in contrast.readings)
    admitted = []
    for draft in drafts:
        fault = refuse_rubric(draft, shown)
        admitted += [] if fault else [draft]
        refused += [fault] if fault else []
    return Proposal(tuple(admitted), refused=tuple(refused))


def render_contrast(contrast: Contrast, budget: RenderBudget) -> str:
    """The group in fenced blocks: shuffled, anonymous, with the criteria that exist already."""
    order = open_generator(contrast.seed, "order").permutation(len(contrast.readings))
    attempts = [
        {"attempt": f"T{place + 1}", **render_stages(contrast.readings[chosen], budget)}
        for place, chosen in enumerate(order)
    ]
    question = shorten_middle(contrast.question, budget.question_chars)
    known = _render_known(contrast.known)
    fence = Fence.around([question, attempts, known], contrast.seed)
    blocks = (("QUESTION", question), ("ATTEMPTS", attempts), ("EXISTING", known))
    return "\n\n".join(fence.block(label, content) for label, content in blocks)


def _render_known(known: RubricSet) -> dict[str, Any]:
    return {
        "persistent": [_describe(rubric) for rubric in known.persistent],
        "active": [_describe(entry.rubric) for entry in known.active],
        "retired_titles": [f"{entry.last.rubric.stage.value}: {entry.last.rubric.title}" for entry in known.archive],
    }


def _describe(rubric: Rubric) -> dict[str, str]:
    return {
        "stage": rubric.stage.value,
        "polarity": rubric.polarity.value,
        "title": rubric.title,
        "description": rubric.description,
    }


def _read_proposal(reply: Mapping[str, object], provenance: Provenance, *, refused: list[str]) -> Iterator[Rubric]:
    """The rubrics of a reply; what is malformed by itself is refused by itself.

    Raises:
        UnusableReplyError: no stage is there at all.
    """
    keys = {stage: f"stage_{stage.position + 1}" for stage in STAGES}
    if not any(isinstance(reply.get(key), dict) for key in keys.values()):
        raise UnusableReplyError(f"none of {', '.join(keys.values())} is there")
    for stage, key in keys.items():
        lists = reply.get(key)
        drafts = list(
            _read_stage(lists if isinstance(lists, dict) else {}, stage, provenance=provenance, refused=refused)
        )
        refused += [f"{stage.value} rubric {draft.title[:60]!r} is one too many" for draft in drafts[MAX_PER_STAGE:]]
        yield from drafts[:MAX_PER_STAGE]


def _read_stage(
    lists: Mapping[str, object], stage: Stage, *, provenance: Provenance, refused: list[str]
) -> Iterator[Rubric]:
    for polarity in Polarity:
        rows = lists.get(f"{polarity.value}_rubrics")
        for row in rows if isinstance(rows, list) else []:
            title, description, weight = _fields(row)
            if not (title and description) or weight is None:
                refused.append(f"{stage.value} rubric {title[:60]!r} lacks a title, a description or a weight")
                continue
            clamped = min(MAX_WEIGHT, max(MIN_WEIGHT, weight))
            if clamped != weight:
                refused.append(f"{stage.value} rubric {title[:60]!r} had the weight {weight:g}; taken as {clamped:g}")
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
    usable = isinstance(weight, int | float) and not isinstance(weight, bool) and _is_finite(weight)
    return (
        " ".join(title.split()) if isinstance(title, str) else "",
        " ".join(description.split()) if isinstance(description, str) else "",
        float(weight) if usable and weight is not None else None,
    )


def _is_finite(weight: float) -> bool:
    """A whole number may be larger than any float."""
    return abs(weight) <= sys.float_info.max
