"""slime: three functions, and each token's advantage is in the loss.

In my_module.py:

    hooks = ResearchHooks(play, offline_scorer())
    generate, judge_group = hooks.generate, hooks.judge_group

and on the command line:

    --custom-generate-function-path my_module.generate
    --group-rm --custom-rm-path my_module.judge_group
    --custom-advantage-function-path docs.adapters.recipes.slime_hooks.advantages

Few fields of a sample reach the workers that train. `teacher_log_probs` does, a number for each token of the response
and cut for context parallelism; nothing else reads it without `--use-opd`, so it carries the advantages.
"""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any, cast

from slime.utils.types import RolloutBatch, Sample

from rubricem_agent.adapters import completion_of, group_advantages, tokens_of
from rubricem_agent.rollout import Rollout
from rubricem_env.domain import STAGES, Query
from rubricem_env.env import Scorer

Play = Callable[[Query, Namespace, dict[str, Any]], Awaitable[Rollout]]
"""Plays one attempt with a policy in tokens over the SGLang router that the arguments name."""


class ResearchHooks:
    """Plays attempts, and judges those at one question together."""

    def __init__(self, play: Play, scorer: Scorer) -> None:
        self._play = play
        self._scorer = scorer

    async def generate(self, args: Namespace, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
        """One attempt; `sample.prompt` is the question."""
        rollout = await self._play(Query(question=str(sample.prompt)), args, sampling_params)
        ids, stage_ids, logprobs = completion_of(rollout)
        sample.tokens = list(tokens_of(rollout).ids)
        sample.response = rollout.trajectory.policy_text
        sample.response_length = len(ids)
        sample.loss_mask = [int(stage >= 0) for stage in stage_ids]
        sample.rollout_log_probs = logprobs
        sample.metadata["rollout"] = rollout.model_dump(mode="json")
        sample.status = Sample.Status.COMPLETED if rollout.is_valid else Sample.Status.FAILED
        return sample

    async def judge_group(self, args: Namespace, samples: list[Sample]) -> list[float]:
        """Credits the group; the sum of the stage scores is what slime logs as the reward."""
        rollouts = [Rollout.model_validate(sample.metadata["rollout"], strict=False) for sample in samples]
        judgements = await self._scorer.score([rollout.trajectory for rollout in rollouts])
        for sample, row in zip(samples, group_advantages(rollouts, judgements), strict=True):
            sample.teacher_log_probs = row
        return [sum(judgement.score(stage) or 0.0 for stage in STAGES) for judgement in judgements]


def advantages(args: Namespace, rollout_data: RolloutBatch) -> None:
    """What the loss is given for each token."""
    rollout_data["advantages"] = rollout_data["returns"] = cast(Any, rollout_data["teacher_log_probs"])
