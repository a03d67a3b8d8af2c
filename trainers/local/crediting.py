"""The samples of a judged step: its credit, under the opening and at the scale that the settings name."""

from collections.abc import Sequence

import numpy as np

from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.samples import Sample, task_samples
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import NO_STAGE, RolloutTokens

from .igpo import answer_gains
from .run import Run
from .sampling import JudgedStep


def credit_step(run: Run, judged: JudgedStep) -> tuple[list[Sample], Credit]:
    """The samples of the rollouts that teach something, and the credit of all."""
    config, tokenizer = run.config, run.policy.tokenizer
    groups = judged.rollouts
    gains = None
    if config.credit == "igpo":
        questions = [run.truth[group.query.key] for group in judged.groups]
        gains = answer_gains(run.learner, groups, questions, tokenizer=tokenizer)
    if config.references.distill_context:
        openings = [tokenizer.encode_opening(run.prompt.opening(group.query)) for group in judged.groups]
        groups = [[reopen(one, ids) for one in group] for group, ids in zip(groups, openings, strict=True)]
    samples, credit = task_samples(groups, judged.judgements, settings=config, version=judged.version, gains=gains)
    return samples if config.advantage_rms is None else match_scale(samples, config.advantage_rms), credit


def reopen(rollout: Rollout, opening: Sequence[int]) -> Rollout:
    """The same text after another opening; its log-probabilities stay those with which it was sampled after its own."""
    if rollout.tokens is None:
        return rollout
    own, begins = rollout.tokens, rollout.tokens.prompt_length
    tokens = RolloutTokens(
        ids=(*opening, *own.ids[begins:]),
        stage_ids=(*(NO_STAGE for _ in opening), *own.stage_ids[begins:]),
        logprobs=(*(0.0 for _ in opening), *own.logprobs[begins:]),
        prompt_length=len(opening),
    )
    return rollout.model_copy(update={"tokens": tokens})


def match_scale(samples: Sequence[Sample], rms: float) -> list[Sample]:
    """The same samples, with advantages whose root mean square over the policy's tokens is `rms`; all 0 stay 0."""
    written = [sample.advantages[np.asarray(sample.stage_ids) != NO_STAGE] for sample in samples]
    present = np.sqrt(np.mean(np.concatenate(written, dtype=np.float64) ** 2)) if written else 0.0
    scale = np.float32(rms / present if present > 0 else 1.0)
    return [sample._replace(advantages=sample.advantages * scale) for sample in samples]
