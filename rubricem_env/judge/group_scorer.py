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
        """`queries`, by key, bring the persistent rubrics; `step` returns the training step.

        Raises:
            UsageError: the judge is no StepJudge, or the queries are not by key.
        """
        if not isinstance(judge, StepJudge):
            raise UsageError(
                f"GroupScorer got a judge of the kind {type(judge).__name__}; it needs a StepJudge, which owns the "
                "rubrics. Write GroupScorer(StepJudge(judge, RubricBuffer()), {query.key: query for query in queries})."
            )
        if queries is not None and not isinstance(queries, Mapping):
            raise UsageError(
                f"the queries of GroupScorer are a {type(queries).__name__}; it finds a question by its key. Write "
                "{query.key: query for query in queries}."
            )
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
