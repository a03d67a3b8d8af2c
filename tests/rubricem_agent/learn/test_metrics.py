"""The rollout_stats of rollouts: counted from what the policy wrote."""

import pytest

from rubricem_agent.learn.rollout_statistics import measure_rollouts
from rubricem_agent.learn.stage_metrics import spread_shares
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_env.world.offline import shipped_toolbox
from rubricem_records.repeated_calls import count_repeats
from rubricem_records.rollouts import Rollout


def test_a_call_repeats_another_whatever_its_case_and_spacing():
    calls = [
        ToolCall(name="google_search", query="Tall Fox width"),
        ToolCall(name="google_search", query="tall  fox width"),
        ToolCall(name="snippet_search", query="tall fox width"),
        ToolCall(name="google_search", query="tall fox length"),
    ]

    assert count_repeats(calls) == 1
    assert count_repeats([]) == 0


async def test_habits_of_a_good_episode_and_of_an_empty_one_are_averaged():
    episode = await run_scripted_episode(shipped_toolbox())
    parsed = episode.read()
    good = Rollout(trajectory=parsed.trajectory, policy="scripted")
    empty = Rollout(trajectory=parsed.trajectory.model_copy(update={"segments": ()}), policy="scripted")

    rollout_stats = measure_rollouts([[good], [empty]])

    assert rollout_stats.answer_words == pytest.approx(len(parsed.answer.split()) / 2)
    assert rollout_stats.valid == 0.5
    assert rollout_stats.repeated_calls == 0.0
    # The scripted policy has no tokens.
    assert rollout_stats.policy_tokens == 0


def test_the_spread_of_a_stage_is_the_share_of_groups_whose_given_scores_differ():
    def group(*scores):
        given = [{stage: StageScore(score=score) for stage, score in one.items()} for one in scores]
        return [Judgement.of(each) for each in given]

    def scored(plan, answer):
        return dict(zip(STAGES, (plan, 0.5, 0.5, answer), strict=True))

    groups = [group(scored(0.0, 0.2), scored(1.0, 0.2)), group(scored(1.0, 0.2), scored(1.0, 0.2))]

    # The plans of one group of two differ; all else agrees.
    assert spread_shares(groups) == {"plan": 0.5, "research": 0.0, "review": 0.0, "answer": 0.0}
    assert spread_shares([]) == dict.fromkeys(("plan", "research", "review", "answer"), 0.0)
