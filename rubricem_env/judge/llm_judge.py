"""The judge that asks a chat model for rubrics, scores and reflection scores (paper, sections C and D.5)."""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field

from rubricem_env.concurrency import open_generator, run_together
from rubricem_env.domain.base import STAGES, Frozen, Stage
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.judgement import (
    Polarity,
    Provenance,
    ReflectionScore,
    Rubric,
    RubricScore,
    StageScore,
    Unscored,
    shorten,
)
from rubricem_env.judge.prompting import digest, delimit, read_entries, shorten_middle, render_stages, QUESTION_CHARS, TRAJECTORY_TOKENS, GROUP_TOKENS, WireProposal, WirePurposes, WirePurpose, WireScores, WireScore, WireReflectionScores, WireReflectionScore
from rubricem_env.judge.base import (
    EMPTY,
    CandidateScore,
    Contrast,
    Proposal,
    ReflectionTask,
    ScoringRequest,
    ScoringResult,
)
from rubricem_env.judge.rubrics import refuse_rubric
from rubricem_env.llm.ask import ask_for
from rubricem_env.llm.chat import ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.json_reply import parse_json_object
from rubricem_env.llm.retry import RetryPolicy
from rubricem_env.llm.timing import Timing
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.untrusted import neutralize

PROPOSE, SCORE, REFLECT, ADMIT, _REPAIR = "propose", "score", "reflect", "admit", "repair"
_PROMPTS = {
    name: package_text("rubricem_env.judge", "prompts", f"{name}.md")
    for name in (PROPOSE, SCORE, REFLECT, ADMIT, _REPAIR)
}
_HASHES = {name: digest(text) for name, text in _PROMPTS.items()}
MAX_PER_STAGE = 6
"""More than the prompt's targets, fewer than a reply could hold (choice B16)."""
MIN_WEIGHT, MAX_WEIGHT = 1, 3
MAX_CANDIDATE_CHARS = 8_000
Numbered = Mapping[int, Rubric]
"""Rubrics by their index in the prompt, from 1."""


class AskSettings(Frozen):
    """How a judge model is asked."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=256)] = 16_384
    """Thoughts included, where the model has them."""
    retry: RetryPolicy = RetryPolicy()
    """For proposals, full scorings and reflections: five retries (section C.4)."""
    fallback_retry: RetryPolicy = RetryPolicy(attempts=2, deadline=60.0)
    """For the reduced, answer-only call that follows them."""
    seed: int | None = None
    trajectory_tokens: Annotated[int, Field(ge=512)] = TRAJECTORY_TOKENS
    """Shown of one attempt, for scores and reflections. Longer ones are shortened: pages first, then the agent's steps,
    then the snippets that the answer cites, and the answer last. Lower it where the judge's context is small."""
    group_tokens: Annotated[int, Field(ge=1_024)] = GROUP_TOKENS
    """Shown of all attempts of a group together, for proposals; each gets an equal part."""
    requires_quote: bool = True
    """A quality for which the judge can quote nothing scores 0; criteria of absence ("avoids ...") are exempt."""
    gate: bool = True
    """Refuse proposed rubrics that a page or an attempt may have dictated (`refuse_rubric`); false is for measurements."""
    second_reader: bool = False
    """Ask the judge as well what each new rubric and reflection is for, in a call of its own. What does not describe
    research on the question stays out, and so does what the judge gives no answer for."""


class LLMJudge:
    """Proposes rubrics, scores trajectories and judges reflections with one chat model."""

    def __init__(self, model: ChatModel, *, settings: AskSettings | None = None, timing: Timing | None = None) -> None:
        self._model = model
        self.name = model.name
        self._settings = settings or AskSettings()
        self._timing = timing or Timing.real()

    async def propose(self, contrast: Contrast) -> Proposal:
        """Rubrics from one call for the whole group; each proposed rubric is admitted or refused by itself."""
        provenance = Provenance(step=contrast.step, model=self.name, prompt_hash=_HASHES[PROPOSE])
        refused: list[str] = []

        def parse(reply: ChatReply) -> list[Rubric]:
            refused.clear()
            return list(_read_proposal(parse_json_object(reply), provenance, refused=refused))

        request = self._request(
            PROPOSE, _render_contrast(contrast, tokens=self._settings.group_tokens), schema=WireProposal
        )
        try:
            drafts = await ask_for(self._model, request, parse=parse, retry=self._settings.retry, timing=self._timing)
        except ModelError as failure:
            return Proposal(failure=str(failure))
        shown = ShownText.in_trajectories(parsed.trajectory for parsed in contrast.trajectories)
        is_open = not self._settings.gate
        faults = [None if is_open else refuse_rubric(draft, shown, question=contrast.question) for draft in drafts]
        admitted = [draft for draft, fault in zip(drafts, faults, strict=True) if not fault]
        objections = await self._read_again(
            contrast.question,
            {n: f"{draft.title}: {draft.description}" for n, draft in enumerate(admitted)},
            contrast.seed,
        )
        faults += [f"second_reader: rubric {admitted[n].title[:60]!r}: {why}" for n, why in objections.items()]
        kept = tuple(draft for n, draft in enumerate(admitted) if n not in objections)
        return Proposal(kept, refused=(*refused, *filter(None, faults)))

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """One call for the trajectory, one repair of its gaps, and the answer-only call where a stage has no score."""
        rubrics = request.rubrics
        if not rubrics:
            return ScoringResult()
        try:
            found = await self._score(request, self._settings.retry)
        except ModelError as failure:
            return await self._score_answer(request, str(failure))
        unscored = {rubric.stage for rubric in rubrics} - {r.stage for r in rubrics if r.id in found.rubric_scores}
        if not unscored:
            return found
        # A stage without one score is a failed scoring (choices B5, B7); a scored answer need not be asked for again.
        if Stage.ANSWER in unscored:
            return await self._score_answer(request, found.failure)
        answer = {rubric.id for rubric in rubrics if rubric.stage is Stage.ANSWER}
        rubric_scores = {key: score for key, score in found.rubric_scores.items() if key in answer}
        return found._replace(rubric_scores=rubric_scores, is_answer_only=True) if rubric_scores else found

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """One score for each candidate; what the judge does not score is unscored, never 0."""
        written = [index for index, text in enumerate(task.candidates) if text.strip()]
        groups = [written] if task.mode == "listwise" else [[index] for index in written]
        candidate_scores: dict[int, CandidateScore] = {}
        for found in await run_together(self._judge_candidates(task, group) for group in groups if group):
            candidate_scores |= found
        objections = await self._read_again(
            task.question, {index: task.candidates[index] for index in written}, task.seed
        )
        for index, why in objections.items():
            candidate_scores[index] = candidate_scores[index]._replace(refusal=why)
        empty = CandidateScore(EMPTY, "the candidate is empty")
        return tuple(candidate_scores.get(index, empty) for index in range(len(task.candidates)))

    def _request(self, purpose: str, blocks: str, *, schema: type[BaseModel]) -> ChatRequest:
        return ChatRequest(
            prompt=blocks,
            system=_PROMPTS[purpose],
            schema=schema,
            purpose=purpose,
            temperature=self._settings.temperature,
            max_output_tokens=self._settings.max_output_tokens,
            seed=self._settings.seed,
        )

    async def _read_again(self, question: str, texts: Mapping[int, str], seed: int) -> dict[int, str]:
        """Why the second reader keeps texts out, by their key. Without an answer it keeps out all."""
        if not (self._settings.second_reader and texts):
            return {}
        rows = [
            {"index": at, "text": neutralize(shorten_middle(text, MAX_CANDIDATE_CHARS))}
            for at, text in texts.items()
        ]
        asked = ("QUESTION", shorten_middle(neutralize(question), QUESTION_CHARS))
        request = self._request(ADMIT, delimit([asked, ("TEXTS", rows)], seed), schema=WirePurposes)

        def parse(reply: ChatReply) -> dict[int, WirePurpose]:
            found, is_exact = read_entries(parse_json_object(reply), WirePurpose, asked=texts)
            if not is_exact:
                raise ModelError("it does not give every text one purpose", is_retryable=True)
            return found

        retry = self._settings.fallback_retry
        try:
            found = await ask_for(self._model, request, parse=parse, retry=retry, timing=self._timing)
        except ModelError as failure:
            return dict.fromkeys(texts, f"it was not read: {failure}")
        return {
            at: f"its purpose is {one.purpose}: {shorten(one.justification)}"
            for at, one in found.items()
            if one.purpose != "research"
        }

    async def _score_answer(self, request: ScoringRequest, failure: str) -> ScoringResult:
        """The reduced call of choice B7: the answer and its rubrics, nothing else."""
        rubrics = tuple(rubric for rubric in request.rubrics if rubric.stage is Stage.ANSWER)
        if not rubrics:
            return ScoringResult(failure=failure)
        try:
            found = await self._score(request._replace(rubrics=rubrics), self._settings.fallback_retry)
        except ModelError as last:
            return ScoringResult(failure=f"{failure}; then, for the answer alone: {last}")
        return found._replace(is_answer_only=True, failure=failure)

    async def _score(self, request: ScoringRequest, retry: RetryPolicy) -> ScoringResult:
        # By stage, then by id: the same rubrics have the same indices for every trajectory of the group.
        ordered = sorted(request.rubrics, key=lambda rubric: (STAGES.index(rubric.stage), rubric.id))
        rubrics: Numbered = dict(enumerate(ordered, start=1))
        call = self._request(
            SCORE, _render_scoring(request, rubrics, settings=self._settings), schema=WireScores
        )

        def parse(reply: ChatReply) -> tuple[dict[int, WireScore], bool]:
            found, is_exact = read_entries(parse_json_object(reply), WireScore, asked=rubrics)
            if not found:
                raise ModelError("it holds no usable entry for any index of CRITERIA", is_retryable=True)
            return found, is_exact

        found, is_exact = await ask_for(self._model, call, parse=parse, retry=retry, timing=self._timing)
        if not is_exact:
            found = {**await self._repair(call, rubrics, found=found), **found}
        rubric_scores = {
            rubrics[index].id: RubricScore.whole(rubrics[index].id, entry.score, entry.justification)
            for index, entry in sorted(found.items())
        }
        left = len(rubrics) - len(rubric_scores)
        failure = f"{left} of {len(rubrics)} criteria came back without a usable mark" if left else ""
        return ScoringResult(rubric_scores, failure=failure, prompt_hash=_HASHES[SCORE])

    async def _repair(
        self, request: ChatRequest, rubrics: Numbered, *, found: Mapping[int, WireScore]
    ) -> dict[int, WireScore]:
        """The entries of one more call, which names the missing indices. If it fails, the first reply stands."""

        def parse(reply: ChatReply) -> dict[int, WireScore]:
            return read_entries(parse_json_object(reply), WireScore, asked=rubrics)[0]

        missing = ", ".join(str(index) for index in rubrics if index not in found)
        again = _PROMPTS[_REPAIR].format(missing=missing or "none, but other indices were given")
        once = self._settings.fallback_retry.model_copy(update={"attempts": 1})
        repair = request._replace(prompt=f"{request.prompt}\n\n{again}")
        try:
            return await ask_for(self._model, repair, parse=parse, retry=once, timing=self._timing)
        except ModelError:
            return {}

    async def _judge_candidates(self, task: ReflectionTask, indices: list[int]) -> dict[int, CandidateScore]:
        """One call for the candidates at these indices, which get shuffled numbers from 1."""
        order = open_generator(task.seed, "reflections").permutation(len(indices))
        numbered = {number: indices[chosen] for number, chosen in enumerate(order, start=1)}
        request = self._request(
            REFLECT,
            _render_task(task, numbered, tokens=self._settings.trajectory_tokens),
            schema=WireReflectionScores,
        )
        found: dict[int, WireReflectionScore] = {}
        detail = "the judge gave no usable scores for this candidate"

        def parse(reply: ChatReply) -> None:
            # Entries of incomplete replies are kept, for the case that no complete one comes.
            found.update(
                read_entries(parse_json_object(reply), WireReflectionScore, asked=numbered)[0]
            )
            missing = [number for number in numbered if number not in found]
            if missing:
                raise ModelError(f"no usable entry for the indices {', '.join(map(str, missing))}", is_retryable=True)

        try:
            await ask_for(self._model, request, parse=parse, retry=self._settings.retry, timing=self._timing)
        except ModelError as failure:
            detail = detail if found else str(failure)
        scores = dict.fromkeys(indices, CandidateScore(Unscored(reason="judge_failed", detail=detail)))
        for number, entry in found.items():
            score = ReflectionScore(
                diagnosis=entry.diagnostic_accuracy, specificity=entry.specificity, scope=entry.scope_and_balance
            )
            scores[numbered[number]] = CandidateScore(score, shorten(entry.justification))
        return scores


def _render_contrast(contrast: Contrast, *, tokens: int) -> str:
    """The group in delimited blocks: shuffled, anonymous, with the rubrics that exist already."""
    order = open_generator(contrast.seed, "order").permutation(len(contrast.trajectories))
    each = tokens // max(1, len(contrast.trajectories))
    attempts = [
        {"attempt": f"T{number}", **render_stages(contrast.trajectories[chosen], tokens=each)}
        for number, chosen in enumerate(order, start=1)
    ]
    known = contrast.known
    existing = {
        "persistent": [_describe(rubric) for rubric in known.persistent],
        "active": [_describe(entry.rubric) for entry in known.active],
        "retired": [_describe(entry.last.rubric) for entry in known.archive],
    }
    question = shorten_middle(neutralize(contrast.question), QUESTION_CHARS)
    return delimit([("QUESTION", question), ("ATTEMPTS", attempts), ("EXISTING", existing)], contrast.seed)


_ABSENCE = re.compile(
    r"(?:(?:the|this|an?)\s+)?(?:(?:answer|attempt|response|report|plan|review|agent|it)\s+)?(?:avoids?|avoiding|refrains?|omits?|"
    r"leaves?\s+out|keeps?\s+(?:free|clear)|is\s+free|(?:does|do|did|is|are|has|have|must|should)\s+not\b|doesn't|never|"
    r"(?:makes?|gives?|contains?|has|claims?|uses?|invents?)\s+no\b|without|no\b|not\b|absence|freedom\s+from|free\s+of)",
    re.IGNORECASE,
)


def is_of_absence(rubric: Rubric) -> bool:
    """Whether title or description begins by saying what is not there; then there is nothing to quote for it."""
    return any(_ABSENCE.match(text.strip()) for text in (rubric.title, rubric.description))


def _describe(rubric: Rubric) -> dict[str, str]:
    return {
        "stage": rubric.stage.value,
        "polarity": rubric.polarity,
        "title": neutralize(rubric.title),
        "description": neutralize(rubric.description),
    }


def _read_proposal(reply: Mapping[str, object], provenance: Provenance, *, refused: list[str]) -> Iterator[Rubric]:
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
            f"too_many: {stage.value} rubric {draft.title[:60]!r} is one too many" for draft in drafts[MAX_PER_STAGE:]
        ]
        yield from drafts[:MAX_PER_STAGE]


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
            clamped = min(MAX_WEIGHT, max(MIN_WEIGHT, weight))
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


def _render_scoring(request: ScoringRequest, rubrics: Numbered, *, settings: AskSettings) -> str:
    """Question, criteria, attempt and its answer, each in a delimited block: first what a group shares, which is cached."""
    stages = render_stages(request.parsed, tokens=settings.trajectory_tokens)
    answer = stages.pop(Stage.ANSWER.value)
    # A reduced call follows a failed full one, so it is kept small: it has nothing but the answer.
    is_reduced = all(rubric.stage is Stage.ANSWER for rubric in rubrics.values())
    criteria = [
        {
            "index": index,
            **_describe(rubric),
            "polarity": rubric.polarity.upper(),
            "needs_quote": settings.requires_quote and rubric.polarity == "positive" and not is_of_absence(rubric),
        }
        for index, rubric in rubrics.items()
    ]
    contents = [
        ("QUESTION", shorten_middle(neutralize(request.question), QUESTION_CHARS)),
        ("CRITERIA", criteria),
        ("TRAJECTORY", {"left_out": "only the answer is to be marked"} if is_reduced else stages),
        ("ANSWER", answer),
    ]
    # One seed for all attempts: that of the request differs between them, and with it all delimiters would.
    return delimit(contents, settings.seed or 0)


def _render_task(task: ReflectionTask, numbered: Mapping[int, int], *, tokens: int) -> str:
    candidates = [
        {"index": number, "reflection": shorten_middle(task.candidates[index], MAX_CANDIDATE_CHARS)}
        for number, index in numbered.items()
    ]
    contents = [
        ("QUESTION", shorten_middle(neutralize(task.question), QUESTION_CHARS)),
        ("TRAJECTORY", render_stages(task.parsed, tokens=tokens)),
        ("MARKS", _render_scores(task)),
        ("CANDIDATES", candidates),
    ]
    return delimit(contents, task.seed)


def _render_scores(task: ReflectionTask) -> dict[str, Any]:
    rubrics = {rubric.id: rubric for rubric in task.rubrics}
    scores: dict[str, Any] = {}
    for stage in STAGES:
        outcome = task.judgement.outcome(stage)
        if not isinstance(outcome, StageScore):
            scores[stage.value] = {"score": None, "why": outcome.reason}
            continue
        criteria = [
            {
                "criterion": neutralize(rubrics[score.rubric_id].title),
                "polarity": rubrics[score.rubric_id].polarity,
                "score": score.rounded,
                "why": neutralize(score.justification),
            }
            for score in outcome.rubric_scores
            if score.rubric_id in rubrics
        ]
        scores[stage.value] = {"score": round(outcome.score, 3), "missing": outcome.missing, "criteria": criteria}
    return scores
