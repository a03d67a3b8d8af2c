"""Stage scores by the rules judge, for an attempt that is alone with its question."""

from collections.abc import Sequence

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.judge.group_scorer import GroupScorer
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rules.rules import rules_for
from rubricem_env.judge.rules.rules_judge import RulesJudge


class RulesScorer:
    """Scores each stage by the question's own rubrics, and by all rules where it has none for the stage.

    It needs no model and no contrast between attempts: the same attempt always gets the same scores.
    """

    def __init__(self, queries: Sequence[Query] = (), *, stage_set: StageSet = DEEP_RESEARCH) -> None:
        """`queries` bring their own rubrics; other questions are scored by the rules alone."""
        for query in queries:
            if not isinstance(query, Query):
                raise UsageError(
                    f"RulesScorer got a {type(query).__name__}; it takes the questions. Write "
                    "RulesScorer([Query(question='...')])."
                )
        self._stage_set = stage_set
        self._queries = {query.key: query for query in queries}

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order.

        Raises:
            UsageError: the trajectories are of more than one question.
        """
        queries = {trajectory.query_key: self._with_rules(trajectory) for trajectory in trajectories}
        return await GroupScorer(StepJudge(RulesJudge(), RubricBuffer(), stage_set=self._stage_set), queries).score(
            trajectories
        )

    def _with_rules(self, trajectory: Trajectory) -> Query:
        query = self._queries.get(trajectory.query_key) or Query(
            question=trajectory.question, answer_format=trajectory.answer_format
        )
        has_rubrics = {rubric.stage for rubric in query.rubrics}
        rules = [
            rule.rubric
            for rule in rules_for(query.question, scaffold=self._stage_set.scaffold)
            if rule.rubric.stage not in has_rubrics
        ]
        persistent = tuple(rubric.model_copy(update={"persistent": True}) for rubric in rules)
        return query.model_copy(update={"rubrics": query.rubrics + persistent})
