"""A prompt that fills the model's context is refused before anything is played; an empty first turn is warned of."""

from types import SimpleNamespace

import pytest

from rubricem_agent.adapters.local_play import play_locally
from rubricem_agent.prompting import agent_prompt
from rubricem_env.adapters.session import EpisodeSession, offline_env_spec
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_env.world.offline import offline_queries, shipped_toolbox


async def test_a_prompt_longer_than_the_models_context_is_refused_at_the_first_step():
    tokenizer = tiny_tokenizer()
    trainer = SimpleNamespace(
        model=tiny_qwen3(len(tokenizer), max_length=64),
        processing_class=tokenizer,
        temperature=1.0,
        state=SimpleNamespace(global_step=0),
    )
    tools = shipped_toolbox()
    play = play_locally(agent_prompt(tools.names), tools, limits=EpisodeLimits(), max_turn_tokens=8)

    with pytest.raises(ConfigError, match=r"has \d+ tokens, and the model reads 64: it could not write a word"):
        await play(offline_queries()[:2], trainer)


async def test_an_empty_first_turn_is_warned_of_and_a_later_one_is_not():
    session = EpisodeSession(offline_env_spec(), offline_queries()[0], seed=0)
    with pytest.warns(UserWarning, match="the policy's first turn is empty"):
        await session.step(" ")
    session = EpisodeSession(offline_env_spec(), offline_queries()[0], seed=0)
    await session.step('<call_tool name="google_search">Tall Fox</call_tool>')
    await session.step("")
