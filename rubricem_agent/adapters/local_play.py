"""Episodes in tokens, played in this process with the model that a trainer holds."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.local import LocalPolicy, policy_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Setting, run_groups
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.tools.base import Toolbox


def play_locally(
    prompt: AgentPrompt, toolbox: Toolbox, *, limits: EpisodeLimits, max_turn_tokens: int, rows: int = 16
) -> Callable[[Sequence[Query], Any], Awaitable[Sequence[Rollout]]]:
    """Plays one attempt at each query with the weights that a trainer has at that moment, `rows` at a time.

    The trainer has `model` (a Qwen3), `processing_class`, `temperature` and `state.global_step`. Each call draws with a
    new seed, which follows from the step and the calls within it, so that a resumed run repeats none.
    """
    calls: Counter[int] = Counter()

    async def opened(query: Query, _attempt: int) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    async def play(queries: Sequence[Query], trainer: Any) -> Sequence[Rollout]:
        policy = LocalPolicy.over(trainer.model, policy_tokenizer(trainer.processing_class), rows=rows)
        sampling = Sampling(temperature=trainer.temperature, max_turn_tokens=max_turn_tokens)
        step = int(trainer.state.global_step)
        calls[step] += 1
        seed = derive_seed(0, "local play", step, calls[step])
        setting = Setting(policy, toolbox, limits, sampling)
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            groups = await run_groups(queries, opened, setting, group_size=1, seed=seed)
        finally:
            trainer.model.train(was_training)
            await policy.aclose()
        return [rollout for group in groups for rollout in group]

    return play
