"""The judge that asks a chat model for rubrics, scores and reflection scores.

The paper's appendices C and D.6.2 describe it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from rubricem_env.concurrency import open_generator, run_heavy, run_together
from rubricem_env.domain.errors import ModelError, UsageError
from rubricem_env.domain.judgement import Provenance, Rubric, RubricScore, Unscored, shorten
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest, ScoringResult
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.attempt_parts import shorten_middle
from rubricem_env.judge.model.delimiters import delimit
from rubricem_env.judge.model.proposed_rubrics import read_proposal
from rubricem_env.judge.model.replies import (
    WirePurpose,
    WirePurposes,
    WireReflectionScore,
    WireReflectionScores,
    WireScore,
    WireScores,
    read_entries,
    wire_proposal,
)
from rubricem_env.judge.model.request_blocks import (
    MAX_CANDIDATE_CHARS,
    Numbered,
    render_contrast,
    render_reflection_task,
    render_scoring,
)
from rubricem_env.judge.model.shown_attempt import QUESTION_CHARS
from rubricem_env.judge.model.templates import ADMIT, PROPOSE, REFLECT, SCORE, SHIPPED_PROMPTS, JudgePrompts
from rubricem_env.judge.reflections import EMPTY, CandidateScore, ReflectionTask
from rubricem_env.judge.rubrics.admission import refuse_rubric
from rubricem_env.llm.ask import ask_for
from rubricem_env.llm.chat import ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.json_reply import parse_json_object
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.untrusted import neutralize


class LLMJudge:
    """Proposes rubrics, scores trajectories and judges reflections with one chat model."""

    def __init__(
        self,
        model: ChatModel,
        *,
        settings: AskSettings | None = None,
        timing: Timing | None = None,
        prompts: JudgePrompts = SHIPPED_PROMPTS,
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._hashes = prompts.hashes
        self.name = model.name
        self._settings = settings or AskSettings()
        self._timing = timing or Timing.real()

    async def propose(self, contrast: Contrast) -> Proposal:
        """Rubrics from one call for the whole group; each proposed rubric is admitted or refused by itself."""
        scaffold = self._known(contrast.scaffold)
        provenance = Provenance(step=contrast.step, model=self.name, prompt_hash=self._hashes[PROPOSE])
        refused: list[str] = []

        def parse(reply: ChatReply) -> list[Rubric]:
            return list(read_proposal(parse_json_object(reply), provenance, refused=refused, stages=scaffold.names))

        shown = await run_heavy(partial(render_contrast, contrast, tokens=self._settings.group_tokens))
        request = self._request(PROPOSE, shown, schema=wire_proposal(len(scaffold.names)))
        try:
            drafts = await ask_for(self._model, request, parse=parse, retry=self._settings.retry, timing=self._timing)
        except ModelError as failure:
            return Proposal(failure=str(failure))
        faults = await run_heavy(_find_faults, contrast, drafts) if self._settings.gate else [None] * len(drafts)
        admitted = [draft for draft, fault in zip(drafts, faults, strict=True) if not fault]
        objections = await self._read_again(
            contrast.question,
            {n: f"{draft.title}: {draft.description}" for n, draft in enumerate(admitted)},
            contrast.seed,
            scaffold,
        )
        faults += [f"second_reader: rubric {admitted[n].title[:60]!r}: {why}" for n, why in objections.items()]
        kept = tuple(draft for n, draft in enumerate(admitted) if n not in objections)
        return Proposal(kept, refused=(*refused, *filter(None, faults)))

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """One call for the trajectory, one repair of its gaps, and the answer-only call where gaps remain.

        The scores are all that were asked for, or none: a judge that leaves criteria out chooses what counts.
        """
        self._known(request.parsed.scaffold)
        if not request.rubrics:
            return ScoringResult()
        try:
            return await self._score(request, self._settings.retry)
        except ModelError as failure:
            return await self._score_answer(request, str(failure))

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """One score for each candidate; what the judge does not score is unscored, never 0."""
        written = [index for index, text in enumerate(task.candidates) if text.strip()]
        groups = [written] if task.mode == "listwise" else [[index] for index in written]
        candidate_scores: dict[int, CandidateScore] = {}
        for scores in await run_together(self._judge_candidates(task, group) for group in groups if group):
            candidate_scores |= scores
        objections = await self._read_again(
            task.question, {index: task.candidates[index] for index in written}, task.seed, task.parsed.scaffold
        )
        for index, why in objections.items():
            candidate_scores[index] = candidate_scores[index]._replace(refusal=why)
        empty = CandidateScore(EMPTY, "the candidate is empty")
        return tuple(candidate_scores.get(index, empty) for index in range(len(task.candidates)))

    def _known(self, scaffold: Scaffold) -> Scaffold:
        """The scaffold, if the prompts speak of its stages."""
        if scaffold.names != self._prompts.stages:
            raise UsageError(
                f"the attempt has the stages {', '.join(scaffold.names)}; the prompts of this judge speak of "
                f"{', '.join(self._prompts.stages)}. Give it prompts=read_judge_prompts(None, stage_set)."
            )
        return scaffold

    def _request(self, purpose: str, blocks: str, *, schema: type[BaseModel]) -> ChatRequest:
        return ChatRequest(
            prompt=blocks,
            system=self._prompts.systems[purpose],
            schema=schema,
            purpose=purpose,
            temperature=self._settings.temperature,
            max_output_tokens=self._settings.max_output_tokens,
            seed=self._settings.seed,
        )

    async def _read_again(
        self, question: str, texts: Mapping[int, str], seed: int, scaffold: Scaffold
    ) -> dict[int, str]:
        """Why the second reader keeps texts out, by their key. Without an answer it keeps out all."""
        if not (self._settings.second_reader and texts):
            return {}
        rows = [
            {"index": at, "text": neutralize(shorten_middle(text, MAX_CANDIDATE_CHARS), scaffold)}
            for at, text in texts.items()
        ]
        question_block = ("QUESTION", shorten_middle(neutralize(question, scaffold), QUESTION_CHARS))
        request = self._request(ADMIT, delimit([question_block, ("TEXTS", rows)], seed, scaffold), schema=WirePurposes)

        def parse(reply: ChatReply) -> dict[int, WirePurpose]:
            purposes = read_entries(parse_json_object(reply), WirePurpose, asked=texts)
            if len(purposes) < len(texts):
                raise ModelError("it does not give every text one purpose", is_retryable=True)
            return purposes

        retry = self._settings.fallback_retry
        try:
            purposes = await ask_for(self._model, request, parse=parse, retry=retry, timing=self._timing)
        except ModelError as failure:
            return dict.fromkeys(texts, f"it was not read: {failure}")
        return {
            at: f"its purpose is {purpose.purpose}: {shorten(purpose.justification)}"
            for at, purpose in purposes.items()
            if purpose.purpose != "research"
        }

    async def _score_answer(self, request: ScoringRequest, failure: str) -> ScoringResult:
        """The reduced call that follows a failed full one: the answer and its rubrics, nothing else."""
        rubrics = tuple(rubric for rubric in request.rubrics if rubric.stage == request.parsed.scaffold.last)
        if len(rubrics) in (0, len(request.rubrics)):
            # Nothing to leave out: it would be the call that failed.
            return ScoringResult(failure=failure)
        try:
            result = await self._score(request._replace(rubrics=rubrics), self._settings.fallback_retry)
        except ModelError as last:
            return ScoringResult(failure=f"{failure}; then, for the answer alone: {last}")
        return result._replace(is_answer_only=True, failure=failure)

    async def _score(self, request: ScoringRequest, retry: RetryPolicy) -> ScoringResult:
        stages = request.parsed.stages
        # By stage, then by id: the same rubrics have the same indices for every trajectory of the group.
        ordered = sorted(request.rubrics, key=lambda rubric: (stages.index(rubric.stage), rubric.id))
        rubrics: Numbered = dict(enumerate(ordered, start=1))
        shown = await run_heavy(partial(render_scoring, request, rubrics, settings=self._settings))
        call = self._request(SCORE, shown, schema=WireScores)

        def parse(reply: ChatReply) -> dict[int, WireScore]:
            return read_entries(parse_json_object(reply), WireScore, asked=rubrics)

        entries = await ask_for(self._model, call, parse=parse, retry=retry, timing=self._timing)
        missing = rubrics.keys() - entries.keys()
        if missing:
            entries |= await self._repair(call, {index: rubrics[index] for index in sorted(missing)})
        left = rubrics.keys() - entries.keys()
        if left:
            raise ModelError(f"{len(left)} of {len(rubrics)} criteria came back without a usable score")
        rubric_scores = {
            rubrics[index].id: RubricScore.whole(rubrics[index].id, entry.score, entry.justification)
            for index, entry in sorted(entries.items())
        }
        return ScoringResult(rubric_scores, prompt_hash=self._hashes[SCORE])

    async def _repair(self, request: ChatRequest, missing: Numbered) -> dict[int, WireScore]:
        """The entries of one more call, which names the missing indices; none if it fails."""

        def parse(reply: ChatReply) -> dict[int, WireScore]:
            return read_entries(parse_json_object(reply), WireScore, asked=missing)

        again = self._prompts.repair_request(missing)
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
        tokens = self._settings.trajectory_tokens
        shown = await run_heavy(partial(render_reflection_task, task, numbered, tokens=tokens))
        request = self._request(REFLECT, shown, schema=WireReflectionScores)
        entries: dict[int, WireReflectionScore] = {}

        def parse(reply: ChatReply) -> None:
            # What one reply leaves out, a later one may give.
            entries.update(read_entries(parse_json_object(reply), WireReflectionScore, asked=numbered))
            missing = [number for number in numbered if number not in entries]
            if missing:
                raise ModelError(f"no usable entry for the indices {', '.join(map(str, missing))}", is_retryable=True)

        try:
            await ask_for(self._model, request, parse=parse, retry=self._settings.retry, timing=self._timing)
        except ModelError as failure:
            unscored = Unscored(reason="judge_failed", detail=str(failure))
            return dict.fromkeys(indices, CandidateScore(unscored))
        scores: dict[int, CandidateScore] = {}
        for number, entry in entries.items():
            score = ReflectionScore(
                diagnosis=entry.diagnostic_accuracy, specificity=entry.specificity, scope=entry.scope_and_balance
            )
            scores[numbered[number]] = CandidateScore(score, shorten(entry.justification))
        return scores


def _find_faults(contrast: Contrast, drafts: Sequence[Rubric]) -> list[str | None]:
    """Why each draft is refused, or None."""
    shown = ShownText.in_trajectories(parsed.trajectory for parsed in contrast.trajectories)
    scaffold = contrast.scaffold
    return [refuse_rubric(draft, shown, question=contrast.question, scaffold=scaffold) for draft in drafts]
