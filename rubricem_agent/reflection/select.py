"""Scores candidates and ranks them: the best of sound form goes to the bank, every scored one to training."""

from collections.abc import Sequence
from typing import NamedTuple

from rubricem_agent.memory.gate import Refusal
from rubricem_agent.reflection.attempt import JudgedAttempt
from rubricem_agent.reflection.candidates import Candidate
from rubricem_agent.reflection.format import Blocks, parse_blocks
from rubricem_env.domain.judgement import Unscored
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.judge.reflecting import (
    EMPTY,
    ReflectionJudge,
    ReflectionMode,
    ReflectionOpinion,
    ReflectionTask,
)


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
