"""The statistics of a step's rollouts."""

import pytest

from rubricem_agent.learn.rollout_statistics import measure_rollouts
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_env.world.offline import shipped_toolbox
from rubricem_records.rollouts.rollouts import Rollout


async def test_statistics_of_a_good_episode_and_of_an_empty_one_are_averaged():
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
