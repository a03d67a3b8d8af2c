"""Means and spreads by stage."""

from rubricem_agent.learn.stage_metrics import spread_shares
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement, StageScore


def test_the_spread_of_a_stage_is_the_share_of_groups_whose_given_scores_differ():
    def group(*scores):
        given = [{stage: StageScore(score=score) for stage, score in of_rollout.items()} for of_rollout in scores]
        return [Judgement.of(outcomes) for outcomes in given]

    def scored(plan, answer):
        return dict(zip(STAGES, (plan, 0.5, 0.5, answer), strict=True))

    groups = [group(scored(0.0, 0.2), scored(1.0, 0.2)), group(scored(1.0, 0.2), scored(1.0, 0.2))]

    # The plans of one group of two differ; all else agrees.
    assert spread_shares(groups) == {"plan": 0.5, "research": 0.0, "review": 0.0, "answer": 0.0}
    assert spread_shares([]) == dict.fromkeys(("plan", "research", "review", "answer"), 0.0)
