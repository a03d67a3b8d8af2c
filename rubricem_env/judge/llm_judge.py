"""The judge that asks a chat model (paper, section C).

How this project's judges ask a chat model: with which settings, how insistently, by which prompt.

Asks a chat model for rubrics by contrast, and lets in only those that pass the gate.

Asks a chat model to mark one trajectory: one call, one repair, and the answer-only call when all that failed.

Asks a chat model to judge reflections, with the evaluators' marks beside them (paper, section D.5).
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from rubricem_env.concurrency import open_generator, run_together
from rubricem_env.domain.base import STAGES, Frozen, Stage
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import (
    Polarity,
    Provenance,
    ReflectionScore,
    Rubric,
    StageScore,
    Unscored,
    UnscoredReason,
)
from rubricem_env.judge.base import (
    EMPTY,
    Contrast,
    Findings,
    Proposal,
    ReflectionFindings,
    ReflectionMode,
    ReflectionOpinion,
    ReflectionTask,
    ScoringRequest,
)
from rubricem_env.judge.prompting import (
    CONTRAST_BUDGET,
    SCORING_BUDGET,
    Fence,
    JudgePrompt,
    RenderBudget,
    WireProposal,
    WireReflectionScore,
    WireReflectionScores,
    WireScore,
    WireScores,
    read_entries,
    read_prompt,
    render_stages,
    shorten_middle,
)
from rubricem_env.judge.rubrics import RubricSet, refuse_rubric
from rubricem_env.judge.scoring import Opinion, shorten
from rubricem_env.llm.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Insistence,
    UnusableReplyError,
    ask_for,
    parse_json_object,
)
from rubricem_env.llm.limits import RetryPolicy, Timing
from rubricem_env.scaffold.untrusted import ShownText

PROPOSE = "propose"
SCORE = "score"
REFLECT = "reflect"


class AskSettings(Frozen):
    """How a judge model is asked."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=256)] = 16_384
    """Thoughts included, where the model has them."""
    retry: RetryPolicy = RetryPolicy()
    """Of proposals and full scorings: five retries (section C.4)."""
    fallback_retry: RetryPolicy = RetryPolicy(attempts=2, deadline=60.0)
    """Of the reduced, answer-only call, which comes after all those."""
    seed: int | None = None


class Asker(NamedTuple):
    """A model with the settings and the clock that it is asked by."""

    model: ChatModel
    settings: AskSettings
    timing: Timing

    def request(self, prompt: JudgePrompt, blocks: str, *, schema: type[BaseModel], purpose: str) -> ChatRequest:
        """The system text from the prompt's file, the fenced blocks as the user's text."""
        return ChatRequest(
            prompt=blocks,
            system=prompt.text,
            schema=schema,
            purpose=purpose,
            temperature=self.settings.temperature,
            max_output_tokens=self.settings.max_output_tokens,
            seed=self.settings.seed,
        )

    @property
    def insistence(self) -> Insistence:
        return Insistence(self.settings.retry, self.timing)

    @property
    def once(self) -> Insistence:
        """One try, within the time of the fallback."""
        return Insistence(self.settings.fallback_retry.model_copy(update={"attempts": 1}), self.timing)

    @property
    def last_insistence(self) -> Insistence:
        return Insistence(self.settings.fallback_retry, self.timing)


MAX_PER_STAGE = 6
"""More than the prompt's targets, fewer than a reply could hold (choice B16)."""
MIN_WEIGHT, MAX_WEIGHT = 1, 3
Drafts = list[Rubric]


async def propose_rubrics(
    asker: Asker, prompt: JudgePrompt, *, contrast: Contrast, budget: RenderBudget = CONTRAST_BUDGET
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


Indexed = Mapping[int, Rubric]


class ScoringPrompts(NamedTuple):
    """The prompt to mark by, and the sentence that asks for what is missing."""

    score: JudgePrompt
    repair: JudgePrompt


async def mark_trajectory(
    asker: Asker, prompts: ScoringPrompts, *, examination: ScoringRequest, budget: RenderBudget = SCORING_BUDGET
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
    asker: Asker, prompts: ScoringPrompts, *, examination: ScoringRequest, budget: RenderBudget, failure: str
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
    examination: ScoringRequest,
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


def render_examination(examination: ScoringRequest, rubrics: Indexed, *, budget: RenderBudget) -> str:
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


MAX_CANDIDATE_CHARS = 8_000
Entries = dict[int, WireReflectionScore]


async def judge_reflections(asker: Asker, prompt: JudgePrompt, *, task: ReflectionTask) -> ReflectionFindings:
    """One opinion for each candidate; what the judge does not score is unscored, never 0."""
    written = [place for place, text in enumerate(task.candidates) if text.strip()]
    opinions: dict[int, ReflectionOpinion] = {}
    groups = [written] if task.mode is ReflectionMode.LISTWISE else [[place] for place in written]
    for found in await run_together(_judge(asker, prompt, task=task, places=group) for group in groups if group):
        opinions |= found
    empty = ReflectionOpinion(EMPTY, "the candidate is empty")
    return tuple(opinions.get(place, empty) for place in range(len(task.candidates)))


async def _judge(
    asker: Asker, prompt: JudgePrompt, *, task: ReflectionTask, places: list[int]
) -> dict[int, ReflectionOpinion]:
    """One call for the candidates at these places, which get shuffled numbers from 1."""
    order = open_generator(task.seed, "reflections").permutation(len(places))
    numbered = {number: places[chosen] for number, chosen in enumerate(order, start=1)}
    blocks = _render(task, numbered)
    request = asker.request(prompt, blocks, schema=WireReflectionScores, purpose=REFLECT)
    detail = "the judge gave no usable scores for this candidate"
    found: Entries = {}
    try:
        found = await _ask_reflection(asker, request, numbered=numbered)
    except ModelError as failure:
        detail = str(failure)
    missing = Unscored(reason=UnscoredReason.JUDGE_FAILED, detail=detail)
    return {
        place: _opinion(found[number], prompt) if number in found else ReflectionOpinion(missing)
        for number, place in numbered.items()
    }


async def _ask_reflection(asker: Asker, request: ChatRequest, *, numbered: dict[int, int]) -> Entries:
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


def _opinion(entry: WireReflectionScore, prompt: JudgePrompt) -> ReflectionOpinion:
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


class LLMJudge:
    """Proposes rubrics, marks trajectories and judges reflections with one chat model."""

    def __init__(self, asker: Asker, *, propose: JudgePrompt, scoring: ScoringPrompts, reflect: JudgePrompt) -> None:
        self._asker = asker
        self._propose = propose
        self._scoring = scoring
        self._reflect = reflect

    @classmethod
    def over(cls, model: ChatModel, *, settings: AskSettings | None = None, timing: Timing | None = None) -> "LLMJudge":
        """A judge over the model, with the prompts that come with this package."""
        asker = Asker(model, settings or AskSettings(), timing or Timing.real())
        return cls(
            asker,
            propose=read_prompt("propose"),
            scoring=ScoringPrompts(read_prompt("score"), read_prompt("repair")),
            reflect=read_prompt("reflect"),
        )

    @property
    def name(self) -> str:
        return self._asker.model.name

    @property
    def prompt_hashes(self) -> dict[str, str]:
        """What to store beside results, so that a changed prompt shows."""
        return {"propose": self._propose.hash, "score": self._scoring.score.hash, "reflect": self._reflect.hash}

    async def propose(self, contrast: Contrast) -> Proposal:
        """One call for the whole group."""
        return await propose_rubrics(self._asker, self._propose, contrast=contrast)

    async def score(self, examination: ScoringRequest) -> Findings:
        """One call for one trajectory, with repair and fallback."""
        return await mark_trajectory(self._asker, self._scoring, examination=examination)

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings:
        """All candidates of one trajectory, in one call or one each as the task says."""
        return await judge_reflections(self._asker, self._reflect, task=task)
