"""Reflects on a judged group: draws an attempt, draws candidates, has them judged, offers the best to the bank.

One attempt of a group is reflected on, drawn evenly among those that the infrastructure did not abort. Every scored
candidate is a training sample; the best one of valid form goes to the bank.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.gate import TEXT_CODES, Refusal
from rubricem_agent.policy.base import Opening, Policy
from rubricem_agent.prompting import SHIPPED_PROMPTS, AgentPrompts
from rubricem_agent.reflection.candidates import (
    Blocks,
    ReflectionError,
    ReflectionSample,
    ReflectionSettings,
    build_opening,
    draw_candidates,
    intact_share,
    parse_blocks,
)
from rubricem_agent.reflection.origin import trace_origin
from rubricem_env.concurrency import derive_seed, open_generator, run_heavy
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Judgement, Provenance, Rubric, Unscored
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.trajectory import Ending
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement, count_reasons
from rubricem_env.judge.reflections import CandidateScore, ReflectionJudge, ReflectionTask
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.bank.bank_items import BankItem

_NOTHING = ReflectionScore(diagnosis=0.0, specificity=0.0, scope=0.0)
"""The score of a candidate that is empty, or whose unreadable form counts."""


class JudgedAttempt(NamedTuple):
    """One rollout with its judgement."""

    parsed: ParsedTrajectory
    judgement: Judgement
    rubrics: tuple[Rubric, ...] = ()
    """Those that the judgement's verdicts refer to."""

    @property
    def is_intact(self) -> bool:
        """Whether the policy or a limit ended it; an attempt without an answer is intact."""
        return self.parsed.trajectory.ending is not Ending.ABANDONED


def judged_attempts(group: Group, judged: GroupJudgement) -> tuple[JudgedAttempt, ...]:
    """A group's attempts, each with its judgement."""
    pairs = zip(group.trajectories, judged.judgements, strict=True)
    return tuple(JudgedAttempt(parsed, judgement, judged.rubrics) for parsed, judgement in pairs)


def draw_attempt(attempts: Sequence[JudgedAttempt], generator: np.random.Generator) -> int:
    """The index of one intact attempt, drawn evenly, whatever its score or length.

    Raises:
        ReflectionError: none is intact.
    """
    intact = [index for index, attempt in enumerate(attempts) if attempt.is_intact]
    if not intact:
        raise ReflectionError(f"all {len(attempts)} attempts were aborted; there is nothing to reflect on.")
    return int(generator.choice(intact))


class ReflectionOutcome(Frozen):
    """The reflections on one question in one step. A checkpoint stores it as JSON."""

    query_key: Text
    step: int
    attempt: int
    """Which of the group's attempts was drawn."""
    opening: Opening
    prompt_hash: Text
    temperature: float
    """Sampling temperature, at which log-probabilities must be taken."""
    policy_version: int | None = None
    """Updates of the weights that drew the samples; None where unknown."""
    samples: tuple[ReflectionSample, ...]
    chosen: int | None = None
    """The index of the sample that entered the bank."""
    item: BankItem | None = None

    @property
    def scored(self) -> tuple[ReflectionSample, ...]:
        """The samples to train on, of valid form or not."""
        return tuple(sample for sample in self.samples if sample.score is not None)


def measure_reflections(outcomes: Sequence[ReflectionOutcome], refused_rubrics: Mapping[str, int]) -> dict[str, Any]:
    """What a step's line says of its reflections; `refused_rubrics` are those of the gate, by reason.

    `utility` is the mean of the candidates that the judge scored, `readable` the share whose blocks can be read: the
    one may rise while the other falls. `refused` counts by reason: broken form, or what a gate found.
    """
    samples = [sample for outcome in outcomes for sample in outcome.samples]
    utilities = [sample.score.utility for sample in samples if sample.score is not None]
    return {
        "utility": round(float(np.mean(utilities)), 4) if utilities else None,
        "readable": round(sum(sample.is_readable for sample in samples) / len(samples), 4) if samples else None,
        "refused": {
            "rubrics": dict(refused_rubrics),
            "reflections": count_reasons(sample.refusal for sample in samples),
        },
    }


class AssessedCandidate(NamedTuple):
    """A candidate with the judge's score, and its blocks or why it lacks them."""

    sample: ReflectionSample
    judged: CandidateScore
    blocks: Blocks | Refusal


class _Offered(NamedTuple):
    """What the bank did with the candidates of one attempt."""

    chosen: int | None
    """The index of the accepted candidate; None where the bank accepted none."""
    item: BankItem | None
    refusals: dict[int, Refusal]
    """The refusals by the candidate's index."""


def _score(candidate_score: CandidateScore) -> ReflectionScore | None:
    return None if isinstance(candidate_score.outcome, Unscored) else candidate_score.outcome


async def assess(
    judge: ReflectionJudge,
    attempt: JudgedAttempt,
    candidates: Sequence[ReflectionSample],
    *,
    settings: ReflectionSettings,
    seed: int,
) -> tuple[AssessedCandidate, ...]:
    """Every candidate with the judge's score.

    An empty candidate gets 0 without a request; where the form counts, so does one whose blocks cannot be
    read, or it gets its utility for the share of its tags that is in place.
    """
    blocks = [parse_blocks(candidate.text, repairs=settings.repairs_form) for candidate in candidates]
    written = [index for index, candidate in enumerate(candidates) if candidate.text.strip()]
    task = ReflectionTask(
        question=attempt.parsed.trajectory.question,
        parsed=attempt.parsed,
        judgement=attempt.judgement,
        rubrics=attempt.rubrics,
        candidates=tuple(candidates[index].text for index in written),
        mode=settings.mode,
        seed=seed,
    )
    judged = await judge.judge_reflections(task) if written else ()
    candidate_scores = dict(zip(written, judged, strict=True))
    for index in range(len(candidates)):
        if index not in candidate_scores:
            candidate_scores[index] = CandidateScore(_NOTHING, "the candidate is empty")
        if settings.form_counts and isinstance(blocks[index], Refusal):
            share = intact_share(candidates[index].text) if settings.form_counts == "share" else 0.0
            candidate_scores[index] = _scaled(candidate_scores[index], share)
    return tuple(
        AssessedCandidate(candidate, candidate_scores[index], blocks[index])
        for index, candidate in enumerate(candidates)
    )


def _scaled(candidate_score: CandidateScore, share: float) -> CandidateScore:
    score = _score(candidate_score)
    if score is None and share:
        return candidate_score
    values = {name: share * value for name, value in (score or _NOTHING).model_dump().items()}
    return candidate_score._replace(outcome=ReflectionScore(**values))


def rank(assessed: Sequence[AssessedCandidate]) -> list[int]:
    """The indices of scored candidates of valid form: greatest utility first, then the shorter, then the earlier."""
    utilities = {
        index: score.utility
        for index, candidate in enumerate(assessed)
        if (score := _score(candidate.judged)) is not None and not isinstance(candidate.blocks, Refusal)
    }
    return sorted(utilities, key=lambda index: (-utilities[index], len(assessed[index].sample.text), index))


class Reflector:
    """Reflects on many questions concurrently; a failure of one affects no other."""

    def __init__(
        self,
        policy: Policy,
        judge: ReflectionJudge,
        bank: RubricBank,
        *,
        settings: ReflectionSettings | None = None,
        version: Callable[[], int] | None = None,
        prompts: AgentPrompts = SHIPPED_PROMPTS,
    ) -> None:
        """`version` returns the number of updates of the weights that have just drawn."""
        self._policy = policy
        self._judge = judge
        self._bank = bank
        self._version = version
        self._prompts = prompts
        self.writing = asyncio.Lock()
        """Whoever holds it finds each reflection written and finished, or neither; a checkpoint is taken under it."""
        self._latest: dict[str, int] = {}
        """By question, the step of the latest attempt whose lesson the bank has accepted."""
        self.settings = settings or ReflectionSettings()

    async def reflect(self, group: Sequence[JudgedAttempt], *, step: int) -> ReflectionOutcome:
        """Reflect on one attempt of a group, all on the same question.

        The draws depend on (seed, step, question) alone, so work that is relaunched after a restart draws the same
        attempt.

        Raises:
            ReflectionError: no attempt is intact, or the attempt does not fit into a prompt.
            ModelError: the policy failed.
            BankStoreError: the bank's store failed.
        """
        seed = self.settings.seed
        key = group[0].parsed.trajectory.query_key if group else ""
        index = draw_attempt(group, open_generator(seed, step, key, "attempt"))
        attempt = group[index]
        opening, prompt_hash = await run_heavy(
            partial(build_opening, self._policy, attempt.parsed, settings=self.settings, prompts=self._prompts)
        )
        candidates = await draw_candidates(
            self._policy, opening, key=key, settings=self.settings, step=step, count=self.settings.num_candidates
        )
        version = self._version() if self._version is not None else None
        assessed = await assess(
            self._judge,
            attempt,
            candidates,
            settings=self.settings,
            seed=derive_seed(seed, step, key, "reflection judge"),
        )
        provenance = Provenance(step=step, model=self._policy.name, prompt_hash=prompt_hash)
        async with self.writing:
            offered = await self._offer(
                attempt.parsed, assessed, provenance=provenance, step=step, attempt=index, known=opening.system
            )
        # No waiting from here on: the outcome is there before anyone else gets the lock.
        return ReflectionOutcome(
            query_key=key,
            step=step,
            attempt=index,
            opening=opening,
            prompt_hash=prompt_hash,
            temperature=self.settings.temperature,
            policy_version=version,
            samples=tuple(
                _sample(candidate, offered.refusals.get(position), gate_counts=self.settings.gate_counts)
                for position, candidate in enumerate(assessed)
            ),
            chosen=offered.chosen,
            item=offered.item,
        )

    async def reflect_unjudged(self, parsed: ParsedTrajectory) -> BankItem | Refusal:
        """One reflection without a judge, as at inference: unranked, unscored, through the same gate."""
        opening, prompt_hash = build_opening(self._policy, parsed, settings=self.settings, prompts=self._prompts)
        key = parsed.trajectory.query_key
        candidates = await draw_candidates(self._policy, opening, key=key, settings=self.settings, step=0, count=1)
        blocks = parse_blocks(candidates[0].text, repairs=self.settings.repairs_form)
        if isinstance(blocks, Refusal):
            return blocks
        provenance = Provenance(model=self._policy.name, prompt_hash=prompt_hash)
        reflection = _reflection(parsed, blocks, score=None, provenance=provenance)
        pages = ShownText.in_trajectories([parsed.trajectory])
        origin = trace_origin(parsed, f"{blocks.rubrics}\n{blocks.takeaways}", known=opening.system)
        return await asyncio.to_thread(self._bank.write, reflection, pages=pages, origin=origin)

    async def _offer(
        self,
        parsed: ParsedTrajectory,
        assessed: Sequence[AssessedCandidate],
        *,
        provenance: Provenance,
        step: int,
        attempt: int,
        known: str,
    ) -> _Offered:
        """Offer the candidates to the bank, best first, until it accepts one; the others are checked by its gate.

        A reflection that comes after one on a later attempt at its question is stored as history.
        """
        key = parsed.trajectory.query_key
        pages = await run_heavy(ShownText.in_trajectories, [parsed.trajectory])
        refusals: dict[int, Refusal] = {}
        chosen = None
        item = None
        for index in rank(assessed):
            _, candidate_score, blocks = assessed[index]
            assert not isinstance(blocks, Refusal), "only candidates of valid form are ranked"
            if candidate_score.refusal:
                refusals[index] = Refusal("second_reader", candidate_score.refusal)
                continue
            reflection = _reflection(parsed, blocks, score=_score(candidate_score), provenance=provenance)
            text = f"{blocks.rubrics}\n{blocks.takeaways}"
            origin = await run_heavy(partial(trace_origin, parsed, text, known=known, attempt=attempt))
            # The store waits for the disk; the event loop must not.
            if item is None:
                is_late = step < self._latest.get(key, step)
                outcome = await asyncio.to_thread(
                    self._bank.write, reflection, pages=pages, origin=origin, is_late=is_late
                )
                if not isinstance(outcome, Refusal):
                    self._latest[key] = max(step, self._latest.get(key, step))
                    chosen = index
                    item = outcome
                    continue
                refusals[index] = outcome
            elif refusal := await asyncio.to_thread(self._bank.refusal, reflection, pages=pages, origin=origin):
                refusals[index] = refusal
        return _Offered(chosen, item, refusals)


def _reflection(
    parsed: ParsedTrajectory, blocks: Blocks, *, score: ReflectionScore | None, provenance: Provenance
) -> Reflection:
    return Reflection(
        query_key=parsed.trajectory.query_key,
        question=parsed.trajectory.question,
        rubrics=blocks.rubrics,
        takeaways=blocks.takeaways,
        score=score,
        provenance=provenance,
    )


def _sample(candidate: AssessedCandidate, refusal: Refusal | None, *, gate_counts: bool) -> ReflectionSample:
    sample, candidate_score, blocks = candidate
    refused = blocks if isinstance(blocks, Refusal) else refusal
    is_worthless = (
        gate_counts and refusal is not None and refusal.code in TEXT_CODES and _score(candidate_score) is not None
    )
    return sample.model_copy(
        update={
            "score": _NOTHING if is_worthless else _score(candidate_score),
            "justification": candidate_score.justification,
            "refusal": f"{refused.code}: {refused.sentence}" if refused else "",
        }
    )
