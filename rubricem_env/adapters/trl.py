"""TRL's GRPOTrainer with rollouts in tokens, the four stage scores as rewards, and stage advantages in the loss.

    spec = TrlSpec(play=play, scorer=scorer, advantages=stage_advantages)
    trainer = StageGRPOTrainer(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)

A plain GRPOTrainer takes the same arguments; it sees four rewards and makes one advantage of them.
`rubricem_agent.adapters.trl.research_spec()` is the spec with the agent's play and credit filled in.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rubricem_env.adapters.session import (
    NO_STAGE,
    Advantages,
    JudgedRows,
    Played,
    completion_of,
    group_by_query,
    pad_stage_ids,
    refuse_retokenised,
    require_tested,
    tokens_of,
)
from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.env.research_env import offline_queries
from rubricem_env.env.rewards import Scorer

require_tested("trl", ">=1.16,<1.17", extra="trl")

import torch  # noqa: E402 - the version of TRL is looked at first
from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]  # noqa: E402 - of the extra
from trl import GRPOTrainer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402 - of the extra

Play = Callable[[Sequence[Query], Any], Awaitable[Sequence[Played]]]
"""Plays one attempt at each query with a trainer's weights, in order; a query may occur many times."""


class TrlSpec:
    """The arguments of a GRPOTrainer; the trainer decides on batches, group size and steps."""

    def __init__(
        self,
        *,
        play: Play,
        scorer: Scorer,
        advantages: Advantages | None = None,
        queries: Sequence[Query] | None = None,
    ) -> None:
        self._play = play
        self._scorer = scorer
        self._advantages = advantages
        self._queries = {query.question: query for query in (offline_queries() if queries is None else queries)}
        self._loop = LoopThread()

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
        return [_stage_reward(stage) for stage in STAGES]

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
        attempts = self._loop.run(_gather(self._play, queries, trainer))
        completions = [completion_of(attempt) for attempt in attempts]
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        rows = self._judge(queries, attempts, [stage_ids for _, stage_ids, _ in completions], size=size)
        fields: dict[str, list[Any]] = {
            "prompt_ids": [list(tokens_of(attempt).ids[: tokens_of(attempt).prompt_length]) for attempt in attempts],
            "completion_ids": [ids for ids, _, _ in completions],
            "logprobs": [logprobs for _, _, logprobs in completions],
            "env_mask": [[int(stage != NO_STAGE) for stage in stage_ids] for _, stage_ids, _ in completions],
            "written_ids": [list(ids) for ids, _, _ in completions],
            "judgement": list(rows.judgements),
        }
        if self._advantages is not None:
            fields["stage_advantages"] = list(self._advantages(rows))
        return fields

    def close(self) -> None:
        """Stop the thread that plays."""
        self._loop.close()

    def _judge(
        self, queries: Sequence[Query], attempts: Sequence[Played], stage_ids: Sequence[Sequence[int]], *, size: int
    ) -> JudgedRows:
        groups = [0] * len(attempts)
        judgements: dict[int, Judgement] = {}
        for number, group in enumerate(group_by_query([query.key for query in queries], size)):
            scored = self._loop.run(_score(self._scorer, [attempts[index].trajectory for index in group]))
            for index, judgement in zip(group, scored, strict=True):
                groups[index] = number
                judgements[index] = judgement
        return JudgedRows(
            tuple(judgements[index] for index in range(len(attempts))),
            tuple(groups),
            tuple(attempt.is_valid for attempt in attempts),
            pad_stage_ids(stage_ids),
        )

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


def _stage_reward(stage: Stage) -> Callable[..., list[float | None]]:
    def reward(judgement: Sequence[Judgement], **_: Any) -> list[float | None]:
        return [each.score(stage) for each in judgement]

    reward.__name__ = f"{stage.value}_score"
    return reward


async def _gather(play: Play, queries: Sequence[Query], trainer: Any) -> Sequence[Played]:
    return await play(queries, trainer)


async def _score(scorer: Scorer, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
    return await scorer.score(trajectories)
