"""Playing with the model that a trainer holds."""

from types import SimpleNamespace

import pytest

from rubricem_agent.adapters.local_play import play_locally
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import offline_queries, shipped_toolbox
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer


def refuse(query):
    raise ConfigError("no such prompt")


async def test_a_model_that_was_training_trains_on_where_playing_fails():
    tokenizer = tiny_tokenizer(["How wide is the Tall Fox?"] * 3)
    trainer = SimpleNamespace(model=tiny_qwen3(len(tokenizer)).train(), processing_class=tokenizer, temperature=1.0)
    prompt = SimpleNamespace(opening=refuse, hash="")
    play = play_locally(prompt, shipped_toolbox(), limits=EpisodeLimits(), max_turn_tokens=8)
    with pytest.raises(ConfigError, match="no such prompt"):
        await play(offline_queries()[:1], trainer)
    assert trainer.model.training
