"""Asks a chat model to mark one trajectory: one call, one repair, and the answer-only call when all that failed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.asking import SCORE, Asker
from rubricem_env.judge.base import Examination, Findings
from rubricem_env.judge.fence import Fence
from rubricem_env.judge.opinion import Opinion
from rubricem_env.judge.prompts import Prompt
from rubricem_env.judge.render import SCORING_BUDGET, RenderBudget, render_stages, shorten_middle
from rubricem_env.judge.schemas import WireScore, WireScores, read_entries
from rubricem_env.llm.base import ChatReply, ChatRequest
from rubricem_env.llm.structured import Insistence, UnusableReplyError, ask_for, parse_json_object

Indexed = Mapping[int, Rubric]


class ScoringPrompts(NamedTuple):
    """The prompt to mark by, and the sentence that asks for what is missing."""

    score: Prompt
    repair: Prompt


async def mark_trajectory(
    asker: Asker, prompts: ScoringPrompts, *, examination: Examination, budget: RenderBudget = SCORING_BUDGET
) -> Findings:
    """Marks for every rubric given, as far as the judge can be brought to give them."""
    if not examination.rubrics:
        return Findings()
    try:
        found = await _mark(asker, prompts, examination=examination, budget=budget, insistence=asker.insistence)
    except ModelError as failure:
        return await _mark_answer_alone(asker, prompts, examination=examination, budget=budget, failure=str(failure))
    lost = _lost_stages(examination.rubrics, found)
    if not lost:
        return found
    # A stage without one mark is a failed scoring (choices B5, B7); an answer that was marked need not be asked again.
    if Stage.ANSWER in lost:
        return await _mark_answer_alone(asker, prompts, examination=examination, budget=budget, failure=found.failure)
    answer = {rubric.id for rubric in examination.rubrics if rubric.stage is Stage.ANSWER}
    opinions = {key: opinion for key, opinion in found.opinions.items() if key in answer}
    return found._replace(opinions=opinions, is_answer_only=True) if opinions else found


def _lost_stages(rubrics: Sequence[Rubric], found: Findings) -> set[Stage]:
    asked = {rubric.stage for rubric in rubrics}
    return asked - {rubric.stage for rubric in rubrics if rubric.id in found.opinions}


async def _mark_answer_alone(
    asker: Asker, prompts: ScoringPrompts, *, examination: Examination, budget: RenderBudget, failure: str
) -> Findings:
    """The reduced call of choice B7: the answer and its rubrics, nothing else."""
    rubrics = tuple(rubric for rubric in examination.rubrics if rubric.stage is Stage.ANSWER)
    if not rubrics:
        return Findings(failure=failure)
    reduced = examination._replace(rubrics=rubrics)
    try:
        found = await _mark(asker, prompts, examination=reduced, budget=budget, insistence=asker.last_insistence)
    except ModelError as last:
        return Findings(failure=f"{failure}; then, for the answer alone: {last}")
    return found._replace(is_answer_only=True, failure=failure)


async def _mark(
    asker: Asker,
    prompts: ScoringPrompts,
    *,
    examination: Examination,
    budget: RenderBudget,
    insistence: Insistence,
) -> Findings:
    rubrics: Indexed = dict(enumerate(_in_order(examination.rubrics), start=1))
    blocks = render_examination(examination, rubrics, budget=budget)
    request = asker.request(prompts.score, blocks, schema=WireScores, purpose=SCORE)
    found, is_exact = await _ask(asker, request, rubrics=rubrics, insistence=insistence)
    if not is_exact:
        missing = [index for index in rubrics if index not in found]
        again = prompts.repair.text.format(missing=", ".join(map(str, missing)) or "none, but other indices were given")
        repaired = await _repair(asker, request._replace(prompt=f"{blocks}\n\n{again}"), rubrics=rubrics)
        found = {**repaired, **found}
    opinions = {
        rubrics[index].id: Opinion.whole(rubrics[index].id, entry.score, entry.justification)
        for index, entry in sorted(found.items())
    }
    left = len(rubrics) - len(opinions)
    failure = f"{left} of {len(rubrics)} criteria came back without a usable mark" if left else ""
    return Findings(opinions, failure=failure, prompt_hash=prompts.score.hash)


async def _ask(
    asker: Asker, request: ChatRequest, *, rubrics: Indexed, insistence: Insistence
) -> tuple[dict[int, WireScore], bool]:
    def parse(reply: ChatReply) -> tuple[dict[int, WireScore], bool]:
        found, is_exact = read_entries(parse_json_object(reply), WireScore, asked=rubrics)
        if not found:
            raise UnusableReplyError("it holds no usable entry for any index of CRITERIA")
        return found, is_exact

    return await ask_for(asker.model, request, parse=parse, insistence=insistence)


async def _repair(asker: Asker, request: ChatRequest, *, rubrics: Indexed) -> dict[int, WireScore]:
    """What one more call yields. It may fail: what the first one gave is kept."""

    def parse(reply: ChatReply) -> dict[int, WireScore]:
        return read_entries(parse_json_object(reply), WireScore, asked=rubrics)[0]

    try:
        return await ask_for(asker.model, request, parse=parse, insistence=asker.once)
    except ModelError:
        return {}


def render_examination(examination: Examination, rubrics: Indexed, *, budget: RenderBudget) -> str:
    """The question, the attempt, its answer apart, and the criteria, each in a fenced block."""
    asked = {rubric.stage for rubric in rubrics.values()}
    stages = render_stages(examination.reading, budget)
    answer = stages.pop(Stage.ANSWER.value)
    # A reduced call is small because it is asked when the full one failed: nothing but the answer goes in.
    trajectory = stages if asked - {Stage.ANSWER} else {"left_out": "only the answer is to be marked"}
    question = shorten_middle(examination.question, budget.question_chars)
    criteria = [_criterion(index, rubric) for index, rubric in rubrics.items()]
    contents = (("QUESTION", question), ("TRAJECTORY", trajectory), ("ANSWER", answer), ("CRITERIA", criteria))
    fence = Fence.around([content for _, content in contents], examination.seed)
    return "\n\n".join(fence.block(label, content) for label, content in contents)


def _criterion(index: int, rubric: Rubric) -> dict[str, object]:
    return {
        "index": index,
        "stage": rubric.stage.value,
        "polarity": rubric.polarity.value.upper(),
        "title": rubric.title,
        "description": rubric.description,
    }


def _in_order(rubrics: Sequence[Rubric]) -> list[Rubric]:
    """By stage, then by id: the same criteria have the same indices for every trajectory of the group."""
    return sorted(rubrics, key=lambda rubric: (STAGES.index(rubric.stage), rubric.id))
