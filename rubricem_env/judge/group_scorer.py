"""Offers a `StepJudge` as the scorer of an environment."""

from collections.abc import Callable, Mapping, Sequence

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge


class GroupScorer:
    """Scores a group with rubrics by contrast, and a single trajectory by the persistent and active rubrics alone."""

    def __init__(
        self, judge: StepJudge, queries: Mapping[str, Query] | None = None, *, step: Callable[[], int] = lambda: 0
    ) -> None:
        """`queries`, by key, bring the persistent rubrics; `step` returns the training step."""
        self._judge = judge
        self._queries = dict(queries or {})
        self._step = step

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order. A failure of the judge is an unscored stage with its reason.

        Raises:
            UsageError: the trajectories are of more than one question.
        """
        if not trajectories:
            return []
        keys = {trajectory.query_key for trajectory in trajectories}
        if len(keys) > 1:
            raise UsageError(
                f"the group has {len(keys)} questions; trajectories are contrasted within one. Score each separately."
            )
        first = trajectories[0]
        query = self._queries.get(first.query_key) or Query(question=first.question, answer_format=first.answer_format)
        return (await self._judge.judge_group(Group.of(query, trajectories), step=self._step())).judgements
