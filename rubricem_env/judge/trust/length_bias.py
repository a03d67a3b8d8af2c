"""The length-bias probe: pads answers with empty words, for which a fair judge gives no more."""

from collections.abc import Sequence

from rubricem_env.concurrency import run_together
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.base import Judge, ScoringRequest
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.scaffold.parsed import parse_trajectory

PADDING = (
    " It should be noted that this matter can be looked at from more than one side. Many considerations may play a "
    "role here, and each of them deserves attention in its own right. As is often the case, a broader view is helpful."
)


def pad_answer(trajectory: Trajectory, times: int = 6) -> Trajectory | None:
    """The trajectory with empty words at the end of its answer; None where no answer is closed."""
    closing = f"</{trajectory.scaffold.answer_tag}>"
    segments = list(trajectory.segments)
    for index in range(len(segments) - 1, -1, -1):
        text = segments[index].text
        if segments[index].origin is Origin.POLICY and closing in text:
            at = text.rindex(closing)
            segments[index] = Segment(origin=Origin.POLICY, text=text[:at] + PADDING * times + text[at:])
            return trajectory.model_copy(update={"segments": tuple(segments)})
    return None


async def probe_length(
    judge: Judge, trajectories: Sequence[Trajectory], *, rubrics: Sequence[Rubric]
) -> tuple[float | None, ...]:
    """What padding adds to each answer's score, by the rubrics of the last stage that are given: 0 is fair.

    None where no answer is closed, or where the judge gave no score to one of the two versions.
    """

    async def score(trajectory: Trajectory) -> float | None:
        stages = trajectory.scaffold.names
        own = tuple(rubric for rubric in rubrics if rubric.stage == stages[-1])
        result = await judge.score(ScoringRequest(trajectory.question, parse_trajectory(trajectory), own))
        return score_trajectory(
            stages[-1:], own, rubric_scores=result.rubric_scores, failure=result.failure, stages=stages
        ).score(stages[-1])

    async def gain(plain: Trajectory) -> float | None:
        padded = pad_answer(plain)
        if padded is None:
            return None
        before, after = await run_together([score(plain), score(padded)])
        return None if before is None or after is None else after - before

    return tuple(await run_together(gain(trajectory) for trajectory in trajectories))
