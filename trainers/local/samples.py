"""From judged rollouts and scored reflections to samples for the loss."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.learn.batch import PAD, Sample
from rubricem_agent.learn.credit import Credit, CreditMode, assign_credit, spread_to_tokens
from rubricem_agent.learn.group_scores import group_scores
from rubricem_agent.reflection.outcome import ReflectionOutcome, ReflectionSample
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.judge.outcomes import GroupJudgement

ONE_STAGE = ((1.0,),)
"""A reflection is one stage: its return is its score."""


class Credited(NamedTuple):
    """Samples, and the credit that they were given."""

    samples: list[Sample]
    credit: Credit


def task_samples(
    groups: Sequence[Sequence[Rollout]], judged: Sequence[GroupJudgement], *, mode: CreditMode, version: int
) -> Credited:
    """The rollouts that teach something: valid, and in a group that its judge could tell apart."""
    scored = [group_scores(judgement.judgements) for judgement in judged]
    rollouts = [rollout for group in groups for rollout in group]
    credit = assign_credit(
        np.concatenate([one.scores for one in scored]),
        groups=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        valid=np.concatenate([one.valid for one in scored]) & np.array([rollout.is_valid for rollout in rollouts]),
        mode=mode,
    )
    samples = [
        _task_sample(rollout, credit.advantages[row], version)
        for row, rollout in enumerate(rollouts)
        if credit.trainable[row]
    ]
    return Credited(samples, credit)


def reflection_samples(outcomes: Sequence[ReflectionOutcome], *, version: int) -> list[Sample]:
    """Every scored candidate of each question, normalised within the question (choices C3, C19).

    `version` is that of outcomes which do not say what weights drew them (choice C16).
    """
    samples = []
    for outcome in outcomes:
        scored = [one for one in outcome.scored if one.pieces]
        if not scored:
            continue
        utilities = [[one.score.utility] for one in scored if one.score is not None]
        credit = assign_credit(utilities, matrix=ONE_STAGE)
        drawn_by = version if outcome.policy_version is None else outcome.policy_version
        samples += [
            _reflection_sample(one, float(credit.advantages[row, 0]), outcome.temperature, version=drawn_by)
            for row, one in enumerate(scored)
            if credit.trainable[row]
        ]
    return samples


def _task_sample(rollout: Rollout, advantages: np.ndarray, version: int) -> Sample:
    tokens = rollout.tokens
    if tokens is None:
        raise ValueError(f"the policy {rollout.policy} gave no tokens; training needs a policy with a token mode")
    stage_ids = np.array(tokens.stage_ids, dtype=np.int8)
    return Sample(
        token_ids=tokens.ids,
        stage_ids=stage_ids,
        advantages=spread_to_tokens(advantages[None], stage_ids[None])[0],
        rollout_logprobs=tokens.logprobs,
        temperature=rollout.temperature,
        policy_version=version,
    )


def _reflection_sample(one: ReflectionSample, advantage: float, temperature: float, *, version: int) -> Sample:
    ids: list[int] = []
    stage_ids: list[int] = []
    logprobs: list[float] = []
    for piece in one.pieces:
        ids += piece.ids
        stage_ids += [0 if piece.is_policy else PAD] * len(piece.ids)
        logprobs += piece.logprobs if piece.is_policy else [0.0] * len(piece.ids)
    stages = np.array(stage_ids, dtype=np.int8)
    return Sample(
        token_ids=ids,
        stage_ids=stages,
        advantages=np.where(stages == PAD, 0.0, advantage).astype(np.float32),
        rollout_logprobs=logprobs,
        temperature=temperature,
        policy_version=version,
    )
