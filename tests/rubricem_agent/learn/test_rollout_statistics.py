"""The statistics of a step's rollouts."""

import pytest

from rubricem_agent.learn.rollout_statistics import measure_rollouts, measure_tokens
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_env.world.offline import shipped_toolbox
from rubricem_records.rollouts.packed_tokens import PackedTokens, pack_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
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


def packed(stages: tuple[int, ...], *starts: int) -> PackedTokens:
    blank = (0,) * len(stages)
    return pack_tokens(
        RolloutTokens(ids=blank, stage_ids=stages, logprobs=blank, prompt_length=1, window_starts=(0, *starts))
    )


def test_windows_are_counted_a_rollout_and_their_prompts_as_a_share_of_what_was_read():
    # Three windows, each read before it is written: 2 + 1, 3 and, in a failed one, 2 tokens; then a rollout of one.
    folded = packed((-1, -1, 0, -1, -1, -1, -1, 1, -1, -1), 4, 8)
    # 5 of the 8 + 2 tokens that were read are prompts of later windows; 2 + 1 tokens were written.
    assert measure_tokens([folded, packed((-1, -1, 3))]) == {"policy_tokens": 3, "windows": 2.0, "prompts_again": 0.5}


def test_statistics_of_windows_are_left_out_where_nothing_was_folded():
    assert measure_tokens([packed((-1, 0)), packed((-1, 0, 0))]) == {"policy_tokens": 3}
