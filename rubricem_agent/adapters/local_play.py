"""Episodes in tokens, played in this process with the model that a trainer holds."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.causal_lm import open_decoder
from rubricem_agent.policy.local import LocalPolicy, policy_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.tools.base import Toolbox
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.sampling import Sampling


@contextmanager
def plain(model: Any) -> Iterator[None]:
    """The model in evaluation, in the type of its weights: accelerate's forward pass, which may round, is put aside."""
    was_training = model.training
    wrapped = vars(model).pop("forward", None)
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
        if wrapped is not None:
            model.forward = wrapped


def refuse_unplayable(model: Any) -> None:
    """Raise ConfigError where `play_locally` cannot play the model."""
    with plain(model):
        open_decoder(model, rows=2, max_length=16)


def _refuse_long_prompt(policy: LocalPolicy, prompt: AgentPrompt, queries: Sequence[Query]) -> None:
    """Raise ConfigError where the longest question leaves the model no room: its completion would be empty."""
    longest = max(queries, key=lambda query: len(query.question))
    tokens = len(policy.tokenizer.encode_opening(prompt.opening(longest)))
    if tokens >= policy.max_length:
        raise ConfigError(
            f"the prompt of {longest.question[:60]!r} has {tokens} tokens, and the model reads {policy.max_length}: it "
            "could not write a word. Take a model with a longer context, or give research_spec a shorter prompt=, as "
            "agent_prompt(names, style='react')."
        )


def play_locally(
    prompt: AgentPrompt, toolbox: Toolbox, *, limits: EpisodeLimits, max_turn_tokens: int, rows: int = 16
) -> Callable[[Sequence[Query], Any], Awaitable[Sequence[Rollout]]]:
    """Plays one attempt at each query with the weights that a trainer has at that moment, `rows` at a time.

    The trainer has `model`, `processing_class`, `temperature` and `state.global_step`. Each call draws with a new seed,
    which follows from the step and the calls within it, so that a resumed run repeats none.
    """
    calls: Counter[int] = Counter()

    async def opened(query: Query, _attempt: int) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    async def play(queries: Sequence[Query], trainer: Any) -> Sequence[Rollout]:
        sampling = Sampling(temperature=trainer.temperature, max_turn_tokens=max_turn_tokens)
        step = int(trainer.state.global_step)
        calls[step] += 1
        seed = derive_seed(0, "local play", step, calls[step])
        with plain(trainer.model):
            policy = LocalPolicy(trainer.model, policy_tokenizer(trainer.processing_class), rows=rows)
            _refuse_long_prompt(policy, prompt, queries)
            context = RolloutContext(policy, toolbox, limits, sampling)
            try:
                groups = await run_groups(queries, opened, context, group_size=1, seed=seed)
            finally:
                await policy.aclose()
        return [rollout for group in groups for rollout in group]

    return play
