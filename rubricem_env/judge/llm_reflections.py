"""Asks a chat model to judge reflections, with the evaluators' marks beside them (paper, section D.5)."""

from typing import Any

from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import StageScore, Unscored, UnscoredReason
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.asking import REFLECT, Asker
from rubricem_env.judge.fence import Fence
from rubricem_env.judge.opinion import shorten
from rubricem_env.judge.prompts import Prompt
from rubricem_env.judge.reflecting import (
    EMPTY,
    ReflectionFindings,
    ReflectionMode,
    ReflectionOpinion,
    ReflectionTask,
)
from rubricem_env.judge.render import SCORING_BUDGET, render_stages, shorten_middle
from rubricem_env.judge.schemas import WireReflectionScore, WireReflectionScores, read_entries
from rubricem_env.judge.seeds import open_generator
from rubricem_env.judge.together import run_together
from rubricem_env.llm.base import ChatReply, ChatRequest
from rubricem_env.llm.structured import UnusableReplyError, ask_for, parse_json_object

MAX_CANDIDATE_CHARS = 8_000
Entries = dict[int, WireReflectionScore]


async def judge_reflections(asker: Asker, prompt: Prompt, *, task: ReflectionTask) -> ReflectionFindings:
    """One opinion for each candidate; what the judge does not score is unscored, never 0."""
    written = [place for place, text in enumerate(task.candidates) if text.strip()]
    opinions: dict[int, ReflectionOpinion] = {}
    groups = [written] if task.mode is ReflectionMode.LISTWISE else [[place] for place in written]
    for found in await run_together(_judge(asker, prompt, task=task, places=group) for group in groups if group):
        opinions |= found
    empty = ReflectionOpinion(EMPTY, "the candidate is empty")
    return tuple(opinions.get(place, empty) for place in range(len(task.candidates)))


async def _judge(
    asker: Asker, prompt: Prompt, *, task: ReflectionTask, places: list[int]
) -> dict[int, ReflectionOpinion]:
    """One call for the candidates at these places, which get shuffled numbers from 1."""
    order = open_generator(task.seed, "reflections").permutation(len(places))
    numbered = {number: places[chosen] for number, chosen in enumerate(order, start=1)}
    blocks = _render(task, numbered)
    request = asker.request(prompt, blocks, schema=WireReflectionScores, purpose=REFLECT)
    detail = "the judge gave no usable scores for this candidate"
    found: Entries = {}
    try:
        found = await _ask(asker, request, numbered=numbered)
    except ModelError as failure:
        detail = str(failure)
    missing = Unscored(reason=UnscoredReason.JUDGE_FAILED, detail=detail)
    return {
        place: _opinion(found[number], prompt) if number in found else ReflectionOpinion(missing)
        for number, place in numbered.items()
    }


async def _ask(asker: Asker, request: ChatRequest, *, numbered: dict[int, int]) -> Entries:
    """The usable entries: of a complete reply, or of the fullest one that the judge could be brought to give."""
    fullest: Entries = {}

    def parse(reply: ChatReply) -> Entries:
        found, _ = read_entries(parse_json_object(reply), WireReflectionScore, asked=numbered)
        fullest.update(found)
        missing = [number for number in numbered if number not in fullest]
        if missing:
            raise UnusableReplyError(f"no usable entry for the indices {', '.join(map(str, missing))}")
        return fullest

    try:
        return await ask_for(asker.model, request, parse=parse, insistence=asker.insistence)
    except ModelError:
        if fullest:
            return fullest
        raise


def _opinion(entry: WireReflectionScore, prompt: Prompt) -> ReflectionOpinion:
    score = ReflectionScore(
        diagnosis=entry.diagnostic_accuracy, specificity=entry.specificity, scope=entry.scope_and_balance
    )
    return ReflectionOpinion(score, shorten(entry.justification), prompt.hash)


def _render(task: ReflectionTask, numbered: dict[int, int]) -> str:
    candidates = [
        {"index": number, "reflection": shorten_middle(task.candidates[place], MAX_CANDIDATE_CHARS)}
        for number, place in numbered.items()
    ]
    contents = (
        ("QUESTION", shorten_middle(task.question, SCORING_BUDGET.question_chars)),
        ("TRAJECTORY", render_stages(task.reading, SCORING_BUDGET)),
        ("MARKS", _render_marks(task)),
        ("CANDIDATES", candidates),
    )
    fence = Fence.around([content for _, content in contents], task.seed)
    return "\n\n".join(fence.block(label, content) for label, content in contents)


def _render_marks(task: ReflectionTask) -> dict[str, Any]:
    titles = {rubric.id: rubric for rubric in task.rubrics}
    marks: dict[str, Any] = {}
    for stage in STAGES:
        outcome = task.judgement.outcome(stage)
        if not isinstance(outcome, StageScore):
            marks[stage.value] = {"score": None, "why": outcome.reason.value}
            continue
        verdicts = [
            {
                "criterion": titles[verdict.rubric_id].title,
                "polarity": titles[verdict.rubric_id].polarity.value,
                "mark": verdict.score,
                "why": verdict.justification,
            }
            for verdict in outcome.verdicts
            if verdict.rubric_id in titles
        ]
        marks[stage.value] = {"score": round(outcome.score, 3), "missing": outcome.missing, "criteria": verdicts}
    return marks
