"""Reflects on a judged group: draws an attempt, writes candidates, has them judged, gives the best one to the bank.

Which attempt of a group is reflected on: one, drawn evenly among those that the world did not break.

What reflecting on one question has yielded: samples to train on, and the item that the bank took.

Scores candidates and ranks them: the best of sound form goes to the bank, every scored one to training.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.gate import Refusal, RefusalCode
from rubricem_agent.memory.store import BankItem
from rubricem_agent.policy.base import Opening, TokenSegment
from rubricem_agent.reflection.candidates import (
    Blocks,
    Candidate,
    CandidateSource,
    ReflectionError,
    ReflectionSettings,
    SampledCandidates,
    draw_candidates,
    parse_blocks,
)
from rubricem_env.concurrency import derive_seed, open_generator
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Judgement, Provenance, Reflection, ReflectionScore, Rubric, Unscored
from rubricem_env.domain.trajectory import Ending
from rubricem_env.judge.base import EMPTY, Group, ReflectionJudge, ReflectionMode, ReflectionOpinion, ReflectionTask
from rubricem_env.judge.scoring import GroupJudgement
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.untrusted import ShownText


class JudgedAttempt(NamedTuple):
    """One rollout, with what the evaluators said of it."""

    reading: Reading
    judgement: Judgement
    rubrics: tuple[Rubric, ...] = ()
    """Those that the judgement's verdicts speak of."""

    @property
    def is_intact(self) -> bool:
        """Whether it ended by the policy's doing or by a limit; one without an answer is intact (choice C6)."""
        return self.reading.trajectory.ending is not Ending.ABANDONED


def judged_attempts(group: Group, judged: GroupJudgement) -> tuple[JudgedAttempt, ...]:
    """A group's attempts, each with its judgement."""
    pairs = zip(group.readings, judged.judgements, strict=True)
    return tuple(JudgedAttempt(reading, judgement, judged.rubrics) for reading, judgement in pairs)


def draw_attempt(attempts: Sequence[JudgedAttempt], generator: np.random.Generator) -> int:
    """The place of one intact attempt, each as likely as any other: no look at score or length.

    Raises:
        ReflectionError: none is intact.
    """
    intact = [place for place, attempt in enumerate(attempts) if attempt.is_intact]
    if not intact:
        raise ReflectionError(f"none of the {len(attempts)} attempts came to an end of its own; nothing to reflect on.")
    return int(generator.choice(intact))


class ReflectionSample(Frozen):
    """One candidate, for training and for the record."""

    text: Text
    pieces: tuple[TokenSegment, ...] = ()
    """Its tokens, the prompt's first; empty where the policy works in text."""
    score: ReflectionScore | None = None
    """None where the judge gave none: such a sample is not trained on. Its reward is the score's `utility`."""
    justification: Text = ""
    refusal: Text = ""
    """Why it could not enter the bank, as code and sentence; empty where it could or was not tried."""

    @property
    def is_readable(self) -> bool:
        """Whether its blocks could be read, whatever the bank made of them."""
        return not self.refusal.startswith(RefusalCode.FORMAT)


class ReflectionOutcome(Frozen):
    """One question's reflections in one step. Travels through a checkpoint as JSON."""

    query_key: Text
    step: int
    attempt: int
    """Which of the group's attempts was drawn."""
    opening: Opening
    prompt_hash: Text
    temperature: float
    """That of the samples; their log-probabilities must be taken at it (choice C9)."""
    policy_version: int | None = None
    """How many updates the weights that drew the samples had seen (choice C16); None where nobody counts."""
    samples: tuple[ReflectionSample, ...]
    chosen: int | None = None
    """The place of the sample that entered the bank."""
    item: BankItem | None = None

    @property
    def has_lesson(self) -> bool:
        """Whether the bank took one, and may show it."""
        return self.item is not None and self.item.is_retrievable

    @property
    def scored(self) -> tuple[ReflectionSample, ...]:
        """The samples to train on, sound of form or not (choice C3)."""
        return tuple(sample for sample in self.samples if sample.score is not None)


def readable_share(outcomes: Sequence[ReflectionOutcome]) -> float | None:
    """Of all candidates, those whose blocks can be read: utility may rise while this falls. None without any."""
    readable = [sample.is_readable for outcome in outcomes for sample in outcome.samples]
    return round(sum(readable) / len(readable), 4) if readable else None


class Assessed(NamedTuple):
    """A candidate with its score and its blocks, or why it lacks either."""

    candidate: Candidate
    opinion: ReflectionOpinion
    blocks: Blocks | Refusal

    @property
    def score(self) -> ReflectionScore | None:
        return None if isinstance(self.opinion.outcome, Unscored) else self.opinion.outcome


class Ranked(NamedTuple):
    """A candidate that may be offered to the bank."""

    place: int
    blocks: Blocks
    score: ReflectionScore


async def assess(
    judge: ReflectionJudge, attempt: JudgedAttempt, candidates: Sequence[Candidate], *, mode: ReflectionMode, seed: int
) -> tuple[Assessed, ...]:
    """Every candidate with the judge's opinion. Form does not touch the score; an empty text gets 0 unasked."""
    asked = [place for place, candidate in enumerate(candidates) if candidate.text.strip()]
    task = ReflectionTask(
        question=attempt.reading.trajectory.question,
        reading=attempt.reading,
        judgement=attempt.judgement,
        rubrics=attempt.rubrics,
        candidates=tuple(candidates[place].text for place in asked),
        mode=mode,
        seed=seed,
    )
    findings = await judge.judge_reflections(task) if asked else ()
    opinions = dict(zip(asked, findings, strict=True))
    empty = ReflectionOpinion(EMPTY, "the candidate is empty")
    return tuple(
        Assessed(candidate, opinions.get(place, empty), parse_blocks(candidate.text))
        for place, candidate in enumerate(candidates)
    )


def count_form(assessed: Sequence[Assessed]) -> tuple[Assessed, ...]:
    """The same, but a candidate whose blocks cannot be read has earned nothing."""
    nothing = ReflectionOpinion(EMPTY, "the blocks cannot be read")
    return tuple(one if isinstance(one.blocks, Blocks) else one._replace(opinion=nothing) for one in assessed)


def rank(assessed: Sequence[Assessed]) -> list[Ranked]:
    """The scored candidates of sound form: greatest utility first, then the shorter, then the earlier."""
    eligible = [
        Ranked(place, one.blocks, one.score)
        for place, one in enumerate(assessed)
        if one.score is not None and isinstance(one.blocks, Blocks)
    ]
    return sorted(eligible, key=lambda one: (-one.score.utility, len(assessed[one.place].candidate.text), one.place))


class _Offered(NamedTuple):
    """What the bank made of the candidates."""

    refusals: dict[int, Refusal]
    """By the candidate's place."""
    chosen: int | None = None
    item: BankItem | None = None


class Reflector:
    """Many questions may be reflected on at once; a failure of one touches no other."""

    def __init__(
        self,
        source: CandidateSource,
        judge: ReflectionJudge,
        bank: RubricBank,
        *,
        settings: ReflectionSettings | None = None,
        version: Callable[[], int] | None = None,
    ) -> None:
        """`version` tells how many updates the weights that have just drawn had seen."""
        self._source = source
        self._judge = judge
        self._bank = bank
        self._version = version
        self._kept: dict[str, int] = {}
        """The step of the latest attempt at each question whose lesson the bank has taken from here."""
        self.settings = settings or ReflectionSettings()

    async def reflect(self, group: Sequence[JudgedAttempt], *, step: int) -> ReflectionOutcome:
        """Reflect on one attempt of a group, all on the same question.

        What is drawn depends on (seed, step, question) alone, so work that is launched again after a restart
        draws the same attempt.

        Raises:
            ReflectionError: no attempt is intact, or the attempt does not fit into a prompt.
            ModelError: the policy failed.
            BankStoreError: the bank's store failed.
        """
        seed = self.settings.seed
        key = group[0].reading.trajectory.query_key if group else ""
        place = draw_attempt(group, open_generator(seed, step, key, "attempt"))
        attempt = group[place]
        count = self.settings.num_candidates
        draws = await draw_candidates(self._source, attempt.reading, settings=self.settings, step=step, count=count)
        version = self._version() if self._version is not None else None
        judge_seed = derive_seed(seed, step, key, "reflection judge")
        assessed = await assess(self._judge, attempt, draws.candidates, mode=self.settings.mode, seed=judge_seed)
        if self.settings.form_counts:
            assessed = count_form(assessed)
        offered = await self._offer(attempt.reading, assessed, draws=draws, step=step)
        return ReflectionOutcome(
            query_key=key,
            step=step,
            attempt=place,
            opening=draws.opening,
            prompt_hash=draws.prompt_hash,
            temperature=self.settings.temperature,
            policy_version=version,
            samples=tuple(_sample(one, offered.refusals.get(at)) for at, one in enumerate(assessed)),
            chosen=offered.chosen,
            item=offered.item,
        )

    async def reflect_unjudged(self, reading: Reading) -> BankItem | Refusal:
        """One reflection without a judge, as at inference: unranked, unscored, through the same gate (choice C20)."""
        draws = await draw_candidates(self._source, reading, settings=self.settings, step=0, count=1)
        blocks = parse_blocks(draws.candidates[0].text)
        if isinstance(blocks, Refusal):
            return blocks
        provenance = Provenance(model=self._source.name, prompt_hash=draws.prompt_hash)
        return await self._write(reading, blocks, score=None, provenance=provenance)

    async def _offer(
        self, reading: Reading, assessed: Sequence[Assessed], *, draws: SampledCandidates, step: int
    ) -> _Offered:
        """Offer the candidates to the bank, best first, until it takes one.

        A reflection that comes after one on a later attempt at its question is kept as history.
        """
        key = reading.trajectory.query_key
        provenance = Provenance(step=step, model=self._source.name, prompt_hash=draws.prompt_hash)
        refusals: dict[int, Refusal] = {}
        for place, blocks, score in rank(assessed):
            is_late = step < self._kept.get(key, step)
            outcome = await self._write(reading, blocks, score=score, provenance=provenance, is_late=is_late)
            if not isinstance(outcome, Refusal):
                self._kept[key] = max(step, self._kept.get(key, step))
                return _Offered(refusals, place, outcome)
            refusals[place] = outcome
        return _Offered(refusals)

    async def _write(
        self,
        reading: Reading,
        blocks: Blocks,
        *,
        score: ReflectionScore | None,
        provenance: Provenance,
        is_late: bool = False,
    ) -> BankItem | Refusal:
        reflection = Reflection(
            query_key=reading.trajectory.query_key,
            question=reading.trajectory.question,
            rubrics=blocks.rubrics,
            takeaways=blocks.takeaways,
            score=score,
            provenance=provenance,
        )
        pages = ShownText.in_trajectories([reading.trajectory])
        # The store forces rows to the disk; the event loop must not wait for that.
        return await asyncio.to_thread(self._bank.write, reflection, pages=pages, is_late=is_late)


def _sample(one: Assessed, refusal: Refusal | None) -> ReflectionSample:
    refused = one.blocks if isinstance(one.blocks, Refusal) else refusal
    return ReflectionSample(
        text=one.candidate.text,
        pieces=one.candidate.pieces,
        score=one.score,
        justification=one.opinion.justification,
        refusal=f"{refused.code}: {refused.sentence}" if refused else "",
    )
