"""An episode as veRL's row: no longer than what the engine was allowed to read, and all of what is trained on."""

from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.trajectory import Trajectory
from trainers.verl_backend.engine_policy import Versions
from trainers.verl_backend.rows import OURS, Marks, episode_row

MARKS = Marks((1.0,) * 4, (None,) * 4, is_valid=True)


def row_of(stages, tokenizer, *, prompt_length=2):
    logprobs = tuple(-1.0 if stage >= 0 else 0.0 for stage in stages)
    tokens = RolloutTokens(
        ids=tuple(range(100, 100 + len(stages))), stage_ids=stages, logprobs=logprobs, prompt_length=prompt_length
    )
    rollout = Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)
    return episode_row(rollout, MARKS, tokenizer=tokenizer, versions=Versions(0, 0), encounter="new")


def test_what_a_tool_answers_after_the_last_drawn_token_is_left_out(tokenizer):
    row = row_of((-1, -1, 0, 0, -1, -1, 1, *(-1,) * 500), tokenizer)
    assert row.prompt_ids == [100, 101]
    assert row.response_ids == [102, 103, 104, 105, 106]
    assert row.response_mask == [1, 1, 0, 0, 1]
    assert row.response_logprobs == [-1.0, -1.0, 0.0, 0.0, -1.0]
    assert row.extra_fields[OURS].stage_ids.tolist() == [0, 0, -1, -1, 1]


def test_a_prompt_too_long_to_be_answered_leaves_a_row_of_two_tokens(tokenizer):
    row = row_of((-1,) * 30_000, tokenizer, prompt_length=30_000)
    assert (len(row.prompt_ids), row.response_mask) == (1, [0])
