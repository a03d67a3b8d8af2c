"""The samples of a judged step: its credit, under the opening and at the scale that the settings name."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.learn.samples import Sample, task_samples
from rubricem_agent.learn.step import CreditedGroup, credit_groups, credit_rollouts
from rubricem_env.world.questions import Question
from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout

from .igpo import answer_gains
from .run import Run
from .sampling import JudgedStep


class CreditedStep(NamedTuple):
    """A judged step with its credit."""

    samples: list[Sample]
    """Of the rollouts that teach something."""
    groups: list[CreditedGroup]
    """All of them, as the record has them."""


def credit_step(run: Run, judged: JudgedStep) -> CreditedStep:
    """The credit of a judged step. A rollout that is distilled is trained on after the opening without lessons."""
    config = run.config
    tokenizer = run.policy.tokenizer
    trained = judged.rollouts
    gains = None
    if config.credit == "igpo":
        truths = [run.truth[group.query.key] for group in judged.groups]
        # The settings refuse it in another world.
        questions = [truth for truth in truths if isinstance(truth, Question)]
        gains = answer_gains(run.learner, judged.rollouts, questions, tokenizer=tokenizer)
    if config.references.distill_context:
        openings = [tokenizer.encode_opening(run.prompt.opening(group.query)) for group in judged.groups]
        trained = [
            [reopen(rollout, opening) for rollout in rollouts]
            for rollouts, opening in zip(judged.rollouts, openings, strict=True)
        ]
    credited = credit_rollouts(trained, judged.judgements, settings=config, gains=gains, stage_set=run.judge.stage_set)
    samples = task_samples(trained, credited, version=judged.version)
    if config.advantage_rms is not None:
        samples = match_scale(samples, config.advantage_rms)
    groups = credit_groups(
        judged.groups,
        judged.rollouts,
        judged.judgements,
        credited.credit,
        encounter=judged.batch.encounter,
        buffer=run.judge.buffer,
        lessons=judged.lessons,
        truth=run.truth,
    )
    return CreditedStep(samples, groups)


def reopen(rollout: Rollout, opening: Sequence[int]) -> Rollout:
    """The same text after another opening; its log-probabilities stay those with which it was sampled after its own.

    Every window begins with the opening.
    """
    if rollout.tokens is None:
        return rollout
    own = rollout.tokens
    ids: list[int] = []
    stage_ids: list[int] = []
    logprobs: list[float] = []
    starts = []
    for window in own.windows:
        after = own.after_opening(window)
        starts.append(len(ids))
        ids += [*opening, *own.ids[after]]
        stage_ids += [*(NO_STAGE for _ in opening), *own.stage_ids[after]]
        logprobs += [*(0.0 for _ in opening), *own.logprobs[after]]
    tokens = RolloutTokens(
        ids=tuple(ids),
        stage_ids=tuple(stage_ids),
        logprobs=tuple(logprobs),
        prompt_length=len(opening),
        window_starts=tuple(starts),
    )
    return rollout.model_copy(update={"tokens": tokens})


def match_scale(samples: Sequence[Sample], rms: float) -> list[Sample]:
    """The same samples, with advantages whose root mean square over the policy's tokens is `rms`; all 0 stay 0."""
    written = [sample.advantages[np.asarray(sample.stage_ids) != NO_STAGE] for sample in samples]
    present = np.sqrt(np.mean(np.concatenate(written, dtype=np.float64) ** 2)) if written else 0.0
    scale = np.float32(rms / present if present > 0 else 1.0)
    return [sample._replace(advantages=sample.advantages * scale) for sample in samples]
