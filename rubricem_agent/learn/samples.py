"""Samples for the loss, from judged rollouts and scored reflections, and batches of them as padded arrays."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import assign_credit
from rubricem_agent.learn.padding import pad_rows
from rubricem_agent.learn.step import CreditedRollouts
from rubricem_agent.reflection.candidates import ReflectionSample
from rubricem_agent.reflection.reflector import ReflectionOutcome
from rubricem_env.domain.errors import UsageError
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
from rubricem_records.rollouts.rollouts import Rollout


class Batch(NamedTuple):
    """Samples padded on the right to one length. Arrays have the shape (samples, length) unless noted.

    Entry t describes token t itself; the logits that predict it are at t - 1.
    """

    token_ids: npt.NDArray[np.int32]
    policy_mask: npt.NDArray[np.bool_]
    """Tokens that the policy wrote: the only ones that are trained on."""
    stage_ids: npt.NDArray[np.int8]
    """0 to 3 where the policy wrote, -1 elsewhere; 0 throughout for a reflection, which is one stage."""
    advantages: npt.NDArray[np.float32]
    """0 where the policy did not write."""
    rollout_logprobs: npt.NDArray[np.float32]
    """As the sampling engine reported them; 0 where the policy did not write."""
    temperature: npt.NDArray[np.float32]
    """(samples,): the sampling temperature."""
    policy_version: npt.NDArray[np.int32]
    """(samples,): updates of the weights that sampled."""
    lengths: npt.NDArray[np.int32]
    """(samples,): tokens before the padding."""
    rollouts: npt.NDArray[np.int32]
    """(samples,): the rollout that each is a window of, from 0."""

    @property
    def num_samples(self) -> int:
        return len(self.token_ids)

    @property
    def num_rollouts(self) -> int:
        """The denominator of the mean over rollouts: a rollout of several windows counts once."""
        return len(np.unique(self.rollouts))

    @property
    def num_policy_tokens(self) -> int:
        """The denominator of the token mean, before the batch is split into micro-batches."""
        return int(self.policy_mask.sum())

    def select(self, rows: npt.NDArray[np.intp] | Sequence[int]) -> "Batch":
        """The samples of these rows, truncated to the longest among them."""
        index = np.asarray(rows, dtype=np.intp)
        width = int(self.lengths[index].max(initial=0))
        columns = self._asdict().items()
        return Batch(**{name: rows[index, :width] if rows.ndim == 2 else rows[index] for name, rows in columns})

    def policy_positions(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Rows and columns of the policy's tokens, sample by sample, from left to right."""
        rows, columns = np.nonzero(self.policy_mask)
        return rows, columns

    def save(self, path: Path) -> None:
        """Save it for inspection, as after a refused step: numpy reads the fields by their names."""
        with path.open("wb") as file:
            np.savez_compressed(file, **self._asdict())


class Sample(NamedTuple):
    """One window of a rollout, or a reflection, before padding. Sequences have one entry for each token."""

    token_ids: Sequence[int] | npt.NDArray[np.integer]
    stage_ids: Sequence[int] | npt.NDArray[np.integer]
    """-1 where the policy did not write."""
    advantages: npt.NDArray[np.floating]
    rollout_logprobs: Sequence[float] | npt.NDArray[np.floating]
    temperature: float
    policy_version: int
    rollout: int | None = None
    """The same number for the windows of one rollout; None is a rollout of one window."""


def pad_batch(samples: Sequence[Sample], *, pad_id: int) -> Batch:
    """The samples as one batch.

    Raises:
        UsageError: a sample contradicts itself or holds NaN or infinity; the message says which and where.
    """
    for row, sample in enumerate(samples):
        _check(sample, f"sample {row}")
    stage_ids = pad_rows([sample.stage_ids for sample in samples], NO_STAGE, dtype=np.int8)
    mask = stage_ids != NO_STAGE
    advantages = pad_rows([sample.advantages for sample in samples], 0.0, dtype=np.float32)
    logprobs = pad_rows([sample.rollout_logprobs for sample in samples], 0.0, dtype=np.float32)
    return Batch(
        pad_rows([sample.token_ids for sample in samples], pad_id, dtype=np.int32),
        mask,
        stage_ids,
        np.where(mask, advantages, np.float32(0)),
        np.where(mask, logprobs, np.float32(0)),
        temperature=np.array([sample.temperature for sample in samples], dtype=np.float32),
        policy_version=np.array([sample.policy_version for sample in samples], dtype=np.int32),
        lengths=np.array([len(sample.token_ids) for sample in samples], dtype=np.int32),
        rollouts=_number_rollouts(samples),
    )


def _number_rollouts(samples: Sequence[Sample]) -> npt.NDArray[np.int32]:
    """The rollout of each sample, from 0 in order of first appearance."""
    numbers: dict[tuple[bool, int], int] = {}
    keys = [
        (sample.rollout is None, row if sample.rollout is None else sample.rollout)
        for row, sample in enumerate(samples)
    ]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)


def _check(sample: Sample, where: str) -> None:
    length = len(sample.token_ids)
    sizes = {"stage ids": len(sample.stage_ids), "advantages": len(sample.advantages)}
    sizes["rollout log-probabilities"] = len(sample.rollout_logprobs)
    for name, entries in sizes.items():
        if entries != length:
            raise UsageError(f"{where} has {length} tokens and {entries} {name}; give one for each.")
    stages = np.asarray(sample.stage_ids)
    if length and stages[0] != NO_STAGE:
        raise UsageError(f"{where} begins with a token of the policy; nothing predicts it. Put the prompt before it.")
    if length and stages.min() < NO_STAGE:
        raise UsageError(f"{where} has stage id {stages.min()}; they are -1 outside the policy's text, else from 0.")
    for name, values in (("advantage", sample.advantages), ("rollout log-probability", sample.rollout_logprobs)):
        bad = np.flatnonzero((stages != NO_STAGE) & ~np.isfinite(np.asarray(values, dtype=np.float64)))
        if len(bad):
            raise UsageError(f"{where}, token {bad[0]} has {name} {np.asarray(values)[bad[0]]}; it must be finite.")
    if not (np.isfinite(sample.temperature) and sample.temperature > 0):
        raise UsageError(f"{where} has temperature {sample.temperature}; it must be above 0.")


ONE_STAGE = ((1.0,),)
"""A reflection is one stage: its return is its score."""


def task_samples(rollouts: Sequence[Sequence[Rollout]], credited: CreditedRollouts, *, version: int) -> list[Sample]:
    """The windows of the rollouts that teach something: valid ones whose judge could tell their group apart.

    `rollouts` are those that were credited, group by group; `version` counts the updates of the weights that sampled
    them.
    """
    flat = [rollout for group in rollouts for rollout in group]
    return [
        sample
        for row, rollout in enumerate(flat)
        if credited.credit.trainable[row]
        for sample in _window_samples(rollout, credited.token_advantages[row], version, row=row)
    ]


def reflection_samples(outcomes: Sequence[ReflectionOutcome], *, version: int) -> list[Sample]:
    """Every scored candidate of each question, normalised within the question.

    `version` is used for outcomes without a policy version.
    """
    samples = []
    for outcome in outcomes:
        scored = [candidate for candidate in outcome.scored if candidate.pieces]
        if not scored:
            continue
        utilities = [[candidate.score.utility] for candidate in scored if candidate.score is not None]
        credit = assign_credit(utilities, matrix=ONE_STAGE)
        drawn_by = version if outcome.policy_version is None else outcome.policy_version
        samples += [
            _reflection_sample(candidate, float(credit.advantages[row, 0]), outcome.temperature, version=drawn_by)
            for row, candidate in enumerate(scored)
            if credit.trainable[row]
        ]
    return samples


def _window_samples(
    rollout: Rollout, advantages: npt.NDArray[np.float32], version: int, *, row: int
) -> Iterator[Sample]:
    """The windows in which the policy wrote; `row` is the number of the rollout among all."""
    tokens = rollout.tokens
    if tokens is None:
        raise ValueError(f"the policy {rollout.policy} gave no tokens; training needs a policy with a token mode")
    for window in tokens.written_windows:
        yield Sample(
            token_ids=tokens.ids[window],
            stage_ids=np.array(tokens.stage_ids[window], dtype=np.int8),
            advantages=advantages[window],
            rollout_logprobs=tokens.logprobs[window],
            temperature=rollout.temperature,
            policy_version=version,
            rollout=row,
        )


def _reflection_sample(candidate: ReflectionSample, advantage: float, temperature: float, *, version: int) -> Sample:
    ids: list[int] = []
    stage_ids: list[int] = []
    logprobs: list[float] = []
    for piece in candidate.pieces:
        ids += piece.ids
        stage_ids += [0 if piece.is_policy else NO_STAGE] * len(piece.ids)
        logprobs += piece.logprobs if piece.is_policy else [0.0] * len(piece.ids)
    stages = np.array(stage_ids, dtype=np.int8)
    return Sample(
        token_ids=ids,
        stage_ids=stages,
        advantages=np.where(stages == NO_STAGE, 0.0, advantage).astype(np.float32),
        rollout_logprobs=logprobs,
        temperature=temperature,
        policy_version=version,
    )
