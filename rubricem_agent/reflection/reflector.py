"""Reflects on a judged group: draws an attempt, writes candidates, has them judged, gives the best one to the bank."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.item import BankItem
from rubricem_agent.reflection.attempt import JudgedAttempt, draw_attempt
from rubricem_agent.reflection.candidates import CandidateSource
from rubricem_agent.reflection.format import Blocks, parse_blocks
from rubricem_agent.reflection.generate import Draws, ReflectionSettings, draw_candidates
from rubricem_agent.reflection.outcome import ReflectionOutcome, ReflectionSample
from rubricem_agent.reflection.select import Assessed, assess, count_form, rank
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.rubric import Provenance
from rubricem_env.judge.reflecting import ReflectionJudge
from rubricem_env.judge.seeds import derive_seed, open_generator
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.shown_text import ShownText


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

    async def _offer(self, reading: Reading, assessed: Sequence[Assessed], *, draws: Draws, step: int) -> _Offered:
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
