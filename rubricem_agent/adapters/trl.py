"""TRL's GRPOTrainer with rollouts in tokens, the scores of the stages as rewards, and stage advantages in the loss.

    spec = research_spec()
    trainer = StageGRPOTrainer(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)
    trainer.train()

`TrlSpec` takes another way to play. A plain GRPOTrainer takes the same arguments; it sees a reward for each stage and
makes one advantage of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.adapters.credit import (
    completion_of,
    group_by_query,
    refuse_retokenised,
    stage_advantages,
    tokens_of,
)
from rubricem_agent.learn.credit import CreditSettings
from rubricem_agent.learn.padding import pad_rows
from rubricem_agent.prompting import AgentPrompt, agent_prompt, stage_prompts
from rubricem_env.adapters.session import offline_scorer, require_tested
from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.rewards import Scorer
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.offline import offline_queries, shipped_toolbox
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
from rubricem_records.rollouts.rollouts import Rollout

require_tested("trl", ">=1.16,<1.17", extra="trl")

import torch  # noqa: E402 - the version of TRL is looked at first
from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]  # noqa: E402 - of the extra
from trl import GRPOTrainer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402 - of the extra

from rubricem_agent.adapters.local_play import play_locally, refuse_unplayable  # noqa: E402 - needs torch too

Play = Callable[[Sequence[Query], Any], Awaitable[Sequence[Rollout]]]
"""Plays one attempt at each query with a trainer's weights, in order; a query may occur many times."""


class TrlSpec:
    """The arguments of a GRPOTrainer; the trainer decides on batches, group size and steps.

    `advantages` is called like `stage_advantages`; `stages` are those of the attempts, in order.
    """

    def __init__(
        self,
        *,
        play: Play,
        scorer: Scorer,
        advantages: Callable[..., npt.NDArray[np.float32]] | None = None,
        queries: Sequence[Query] | None = None,
        stages: Sequence[str] = STAGES,
    ) -> None:
        self._play = play
        self._scorer = scorer
        self._stages = tuple(stages)
        self._advantages = advantages
        self._queries = {query.question: query for query in (offline_queries() if queries is None else queries)}
        self._loop = LoopThread()
        self.check: Callable[[Any], object] = id
        """Raises ConfigError for a model that cannot be played. StageGRPOTrainer calls it at construction."""

    @property
    def train_dataset(self) -> Dataset:
        """A row for each question. The prompt is the question; the policy adds rules and references."""
        return Dataset.from_list(
            [
                {"prompt": [{"role": "user", "content": query.question}], "query_key": query.key}
                for query in self._queries.values()
            ]
        )

    @property
    def reward_funcs(self) -> list[Callable[..., list[float | None]]]:
        """One function for each stage; None where it has no score. For GDPO set multi_objective_aggregation."""
        return [_stage_reward(stage) for stage in self._stages]

    @property
    def trainer_arguments(self) -> dict[str, Any]:
        """The trainer's arguments, by the names of its parameters."""
        return {
            "reward_funcs": self.reward_funcs,
            "train_dataset": self.train_dataset,
            "rollout_func": self.rollout_func,
        }

    def rollout_func(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play and judge a batch; every prompt is one attempt, as TRL repeats them for the group.

        Raises:
            ConfigError: the trainer is set to mask completions without an end token.
            UsageError: a prompt is not in the data set, or the policy has no tokens.
        """
        if trainer.args.mask_truncated_completions:
            raise ConfigError(
                "mask_truncated_completions masks every episode, because none ends in <eos>; set it to False."
            )
        queries = [self._query(prompt) for prompt in prompts]
        attempts = self._loop.run(_awaited(self._play(queries, trainer)))
        completions = [completion_of(attempt) for attempt in attempts]
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        keys = [query.key for query in queries]
        judgements = self._judge(attempts, group_by_query(keys, size))
        fields: dict[str, list[Any]] = {
            "prompt_ids": [list(tokens_of(attempt).ids[: tokens_of(attempt).prompt_length]) for attempt in attempts],
            "completion_ids": [ids for ids, _, _ in completions],
            "logprobs": [logprobs for _, _, logprobs in completions],
            "env_mask": [[int(stage != NO_STAGE) for stage in stage_ids] for _, stage_ids, _ in completions],
            "written_ids": [list(ids) for ids, _, _ in completions],
            "judgement": judgements,
        }
        if self._advantages is not None:
            fields["stage_advantages"] = list(
                self._advantages(
                    judgements,
                    groups=[keys.index(key) for key in keys],
                    valid=[attempt.is_valid for attempt in attempts],
                    stage_ids=pad_rows([stage_ids for _, stage_ids, _ in completions], NO_STAGE, dtype=np.int8),
                )
            )
        return fields

    def close(self) -> None:
        """Stop the thread that plays."""
        self._loop.close()

    def _judge(self, attempts: Sequence[Rollout], groups: Sequence[Sequence[int]]) -> list[Judgement]:
        judgements: dict[int, Judgement] = {}
        for group in groups:
            scored = self._loop.run(self._scorer.score([attempts[index].trajectory for index in group]))
            judgements.update(zip(group, scored, strict=True))
        return [judgements[index] for index in range(len(attempts))]

    def _query(self, prompt: Any) -> Query:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        query = self._queries.get(text)
        if query is None:
            raise UsageError(
                f"the prompt {str(text)[:80]!r} is not a question of this spec; train on spec.train_dataset."
            )
        return query


class StageGRPOTrainer(GRPOTrainer):  # type: ignore[misc,unused-ignore]  # TRL is not installed where types are checked
    """GRPO with the token advantages of a spec; everything else is TRL's."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """As TRL's; raises ConfigError for a model that the spec cannot play."""
        super().__init__(*arguments, **settings)
        spec = getattr(self.rollout_func, "__self__", None)
        if isinstance(spec, TrlSpec):
            spec.check(self.model)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "stage_advantages" not in inputs[0]:
            raise UsageError("the rollouts have no stage advantages; pass advantages=... to the TrlSpec.")
        ids = output["completion_ids"]
        written = [row["written_ids"] for row in inputs]
        lengths = output["completion_mask"].sum(dim=1).tolist()
        held = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
        refuse_retokenised(written, held, trainer=type(self).__name__)
        advantages = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
        for row, fields in enumerate(inputs):
            length = len(written[row])
            advantages[row, :length] = torch.as_tensor(fields["stage_advantages"][:length], device=ids.device)
        return {**output, "advantages": advantages}


def _stage_reward(stage: str) -> Callable[..., list[float | None]]:
    def reward(judgement: Sequence[Judgement], **_: Any) -> list[float | None]:
        return [rollout_judgement.score(stage) for rollout_judgement in judgement]

    reward.__name__ = f"{stage}_score"
    return reward


async def _awaited(rollouts: Awaitable[Sequence[Rollout]]) -> Sequence[Rollout]:
    return await rollouts


def research_spec(
    *,
    queries: Sequence[Query] | None = None,
    toolbox: Toolbox | None = None,
    scorer: Scorer | None = None,
    prompt: AgentPrompt | None = None,
    limits: EpisodeLimits | None = None,
    max_turn_tokens: int = 2_048,
    rows: int = 16,
    credit: CreditSettings | None = None,
    scaffold: StageSet | str = DEEP_RESEARCH,
    context: ContextLimits | None = None,
) -> TrlSpec:
    """A spec whose episodes are played in this process with the trainer's own model, and credited stage by stage.

    The defaults are the almanac, judged by rules, the agent's rules as prompt, and the paper's limits and credit.

    Raises:
        ConfigError: there is no such stage set, the prompt is of another one, or `context` folds, which TRL cannot
            train.
    """
    if context is not None and context.fold_at is not None:
        raise ConfigError(
            f"context.fold_at is {context.fold_at}, and TRL takes one prompt and one completion for an attempt; a "
            "folded one has several of both. Leave context out, or train long episodes with rubricem's trainers."
        )
    stage_set = scaffold if isinstance(scaffold, StageSet) else read_stage_set(scaffold)
    own = stage_set.scaffold
    chosen = offline_queries() if queries is None else tuple(queries)
    tools = shipped_toolbox() if toolbox is None else toolbox
    chosen_prompt = prompt or agent_prompt(tools.names, prompts=stage_prompts(stage_set), scaffold=own)
    if chosen_prompt.scaffold != own:
        raise ConfigError(
            f"the prompt is of the stages of {chosen_prompt.scaffold.name!r}, and scaffold is {own.name!r}. Give "
            "research_spec the scaffold of the prompt, or leave the prompt out."
        )
    play = play_locally(
        chosen_prompt,
        tools,
        limits=limits or EpisodeLimits(),
        max_turn_tokens=max_turn_tokens,
        rows=rows,
    )
    spec = TrlSpec(
        play=play,
        scorer=scorer or offline_scorer(chosen, stage_set),
        advantages=partial(stage_advantages, settings=credit, stage_set=stage_set),
        queries=chosen,
        stages=own.names,
    )
    spec.check = refuse_unplayable
    return spec
