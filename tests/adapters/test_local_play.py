"""Playing with the model that a trainer holds."""

from types import SimpleNamespace

import pytest

from rubricem_agent.adapters.local_play import play_locally
from rubricem_agent.prompting import AgentPrompt
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_env.world.offline import offline_queries, shipped_toolbox


def trainer_at(step, tokenizer):
    model = tiny_qwen3(len(tokenizer)).train()
    state = SimpleNamespace(global_step=step)
    return SimpleNamespace(model=model, processing_class=tokenizer, temperature=1.0, state=state)


def refuse(query):
    raise ConfigError("no such prompt")


async def test_a_model_that_was_training_trains_on_where_playing_fails():
    tokenizer = tiny_tokenizer(["How wide is the Tall Fox?"] * 3)
    trainer = trainer_at(0, tokenizer)
    prompt = SimpleNamespace(opening=refuse, hash="")
    play = play_locally(prompt, shipped_toolbox(), limits=EpisodeLimits(), max_turn_tokens=8)
    with pytest.raises(ConfigError, match="no such prompt"):
        await play(offline_queries()[:1], trainer)
    assert trainer.model.training


async def test_a_resumed_run_draws_as_the_run_would_have_and_repeats_no_seed():
    tokenizer = tiny_tokenizer(["How wide is the Tall Fox?"] * 3)
    query, limits = offline_queries()[0], EpisodeLimits(max_calls=1, max_turns=2)

    async def drawn(*steps):
        """The first attempt's tokens at each step, in one process."""
        play = play_locally(AgentPrompt("Go.", ""), shipped_toolbox(), limits=limits, max_turn_tokens=8)
        return [(await play([query], trainer_at(step, tokenizer)))[0].tokens.ids for step in steps]

    whole = await drawn(0, 1, 1)
    assert len(set(whole)) == 3
    assert await drawn(1, 1) == whole[1:]
