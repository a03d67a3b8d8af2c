"""The length-bias probe: the same answer, padded with words that add nothing; a fair judge gives it no more."""

from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import Stage
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.base import Examination, Judge
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.judge.together import run_together
from rubricem_env.scaffold.reading import read_trajectory

PADDING = (
    " It should be noted that this matter can be looked at from more than one side. Many considerations may play a "
    "role here, and each of them deserves attention in its own right. As is often the case, a broader view is helpful."
)
_CLOSING = "</answer>"


class LengthBias(NamedTuple):
    """How scores move when only the length does."""

    pairs: int
    unscored: int
    mean_gain: float | None
    """Of the padded answer over the plain one, in the answer's score; 0 is fair."""
    raised: int
    """Answers that gained by padding."""


def pad_answer(trajectory: Trajectory, times: int = 6) -> Trajectory | None:
    """The trajectory with an idle passage at the end of its answer; None where no answer is closed."""
    segments = list(trajectory.segments)
    for place in range(len(segments) - 1, -1, -1):
        text = segments[place].text
        if segments[place].origin is Origin.POLICY and _CLOSING in text:
            at = text.rindex(_CLOSING)
            segments[place] = Segment(origin=Origin.POLICY, text=text[:at] + PADDING * times + text[at:])
            return trajectory.model_copy(update={"segments": tuple(segments)})
    return None


async def probe_length(judge: Judge, trajectories: Sequence[Trajectory], *, rubrics: Sequence[Rubric]) -> LengthBias:
    """Score each answer plain and padded by the answer rubrics given."""
    own = tuple(rubric for rubric in rubrics if rubric.stage is Stage.ANSWER)
    padded = [(plain, long) for plain in trajectories if (long := pad_answer(plain)) is not None]
    scores = await run_together(_score(judge, trajectory, rubrics=own) for pair in padded for trajectory in pair)
    gains = [
        long - plain
        for plain, long in zip(scores[::2], scores[1::2], strict=True)
        if plain is not None and long is not None
    ]
    mean = sum(gains) / len(gains) if gains else None
    return LengthBias(len(gains), len(trajectories) - len(gains), mean, sum(gain > 0 for gain in gains))


async def _score(judge: Judge, trajectory: Trajectory, *, rubrics: tuple[Rubric, ...]) -> float | None:
    reading = read_trajectory(trajectory)
    found = await judge.score(Examination(trajectory.question, reading, rubrics))
    return score_trajectory((Stage.ANSWER,), rubrics, opinions=found.opinions, failure=found.failure).score(
        Stage.ANSWER
    )
