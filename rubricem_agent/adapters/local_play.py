"""Episodes in tokens, played in this process with the model that a trainer holds."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.local import LocalPolicy, policy_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Setting, run_groups
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.tools.base import Toolbox


def play_locally(
    prompt: AgentPrompt, toolbox: Toolbox, *, limits: EpisodeLimits, max_turn_tokens: int, rows: int = 16
) -> Callable[[Sequence[Query], Any], Awaitable[Sequence[Rollout]]]:
    """Plays one attempt at each query with the weights that a trainer has at that moment, `rows` at a time.

    The trainer has `model` (a Qwen3), `processing_class` and `temperature`. Each call draws with a new seed.
    """
    seeds = count()

    async def opened(query: Query) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    async def play(queries: Sequence[Query], trainer: Any) -> Sequence[Rollout]:
        policy = LocalPolicy.over(trainer.model, policy_tokenizer(trainer.processing_class), rows=rows)
        sampling = Sampling(temperature=trainer.temperature, max_turn_tokens=max_turn_tokens)
        setting = Setting(policy, toolbox, limits, sampling)
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            groups = await run_groups(queries, opened, setting, group_size=1, seed=next(seeds))
        finally:
            trainer.model.train(was_training)
            await policy.aclose()
        return [rollout for group in groups for rollout in group]

    return play
