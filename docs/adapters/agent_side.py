"""What the agent lends to an adapter: stage advantages, and a play of episodes in tokens with a trainer's model."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import assign_credit, spread_to_tokens
from rubricem_agent.learn.group_scores import group_scores
from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.local import LocalPolicy
from rubricem_agent.policy.pretrained import policy_tokenizer
from rubricem_agent.prompting.agent_prompt import AgentPrompt
from rubricem_agent.rollout.group import Plan, run_groups
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Setting
from rubricem_env.adapters.groups import JudgedRows
from rubricem_env.domain.query import Query
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.tools.base import Toolbox


def stage_advantages(rows: JudgedRows) -> npt.NDArray[np.float32]:
    """The paper's credit for every token of a judged batch (equation 2), 0 where the policy did not write."""
    groups = np.array(rows.groups)
    scores, valid = np.zeros((len(groups), 4)), np.array(rows.valid)
    for number in np.unique(groups):
        places = np.flatnonzero(groups == number)
        found = group_scores([rows.judgements[place] for place in places])
        scores[places] = found.scores
        valid[places] &= found.valid
    return spread_to_tokens(assign_credit(scores, groups=groups, valid=valid).advantages, rows.stage_ids)


def play_locally(
    prompt: AgentPrompt, toolbox: Toolbox, *, limits: EpisodeLimits, max_turn_tokens: int, rows: int = 16
) -> Callable[[Sequence[Query], Any], Awaitable[Sequence[Rollout]]]:
    """Episodes with the trainer's own model, in this process; each call draws with a seed of its own."""
    calls = iter(range(1_000_000_000))

    async def opened(query: Query) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    async def play(queries: Sequence[Query], trainer: Any) -> Sequence[Rollout]:
        policy = LocalPolicy.over(trainer.model, policy_tokenizer(trainer.processing_class), rows=rows)
        sampling = Sampling(temperature=trainer.temperature, max_turn_tokens=max_turn_tokens)
        plan = Plan(queries, opened, group_size=1, seed=next(calls))
        was_training = trainer.model.training
        trainer.model.eval()
        groups = await run_groups(plan, Setting(policy, toolbox, limits, sampling))
        trainer.model.train(was_training)
        await policy.aclose()
        return [rollout for group in groups for rollout in group]

    return play
