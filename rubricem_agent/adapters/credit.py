"""Attempts in tokens for the adapters of other trainers: their completions and groups, and the paper's credit."""

import warnings
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import CreditSettings, credit_judged
from rubricem_agent.learn.padding import pad_rows
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout


def stage_advantages(
    judgements: Sequence[Judgement],
    *,
    groups: Sequence[int],
    valid: Sequence[bool],
    stage_ids: npt.NDArray[np.int8],
    settings: CreditSettings | None = None,
    stage_set: StageSet = DEEP_RESEARCH,
) -> npt.NDArray[np.float32]:
    """The advantage of every token of a judged batch (section 3.3), 0 where the policy did not write.

    One entry for each attempt; `groups` has equal numbers for attempts at the same question, and `valid` is False where
    an infrastructure failure ended the episode. `stage_ids` (attempts, tokens) counts stages from 0 where the policy
    wrote, else `NO_STAGE`, padded on the right. `settings` choose another method than the paper's.
    """
    chosen = settings or CreditSettings()
    credit = credit_judged(
        judgements, groups=groups, valid=valid, stage_ids=stage_ids, settings=chosen, stage_set=stage_set
    )
    return credit.spread(stage_ids)


def group_advantages(
    attempts: Sequence[Rollout],
    judgements: Sequence[Judgement],
    *,
    settings: CreditSettings | None = None,
    stage_set: StageSet = DEEP_RESEARCH,
) -> list[list[float]]:
    """The advantage of every token after the prompt, for the attempts at one question, each of its own length."""
    stage_ids = [completion_of(attempt)[1] for attempt in attempts]
    rows = stage_advantages(
        judgements,
        groups=[0] * len(attempts),
        valid=[attempt.is_valid for attempt in attempts],
        stage_ids=pad_rows(stage_ids, NO_STAGE, dtype=np.int8),
        settings=settings,
        stage_set=stage_set,
    )
    return [row[: len(ids)].tolist() for row, ids in zip(rows, stage_ids, strict=True)]


def tokens_of(attempt: Rollout) -> RolloutTokens:
    """The attempt's tokens: a prompt, and all that came after it.

    Raises:
        UsageError: the policy has no token mode, or the attempt has several windows.
    """
    if attempt.tokens is None:
        raise UsageError("the policy gave no tokens; training needs one with a token mode, such as LocalPolicy.")
    windows = len(attempt.tokens.windows)
    if windows > 1:
        raise UsageError(
            f"the attempt was folded and has {windows} windows, each with a prompt of its own, and this trainer takes "
            "one prompt and one completion for an attempt. Play without `context`, or train with `rubricem train`, "
            "here or on veRL."
        )
    return attempt.tokens


def completion_of(attempt: Rollout) -> tuple[list[int], list[int], list[float]]:
    """The ids, stage ids and log-probabilities of all tokens after the prompt; never empty."""
    tokens = tokens_of(attempt)
    start = tokens.prompt_length
    if len(tokens.ids) == start:
        # The episode failed before its first token. Trainers need at least one, and this one is masked.
        return [tokens.ids[-1]], [NO_STAGE], [0.0]
    return list(tokens.ids[start:]), list(tokens.stage_ids[start:]), list(tokens.logprobs[start:])


def policy_runs(stage_ids: Sequence[int]) -> list[tuple[int, int]]:
    """The policy's turns as [start, end) of tokens; the tokens between two turns are what it read."""
    is_policy = [False, *(stage != NO_STAGE for stage in stage_ids), False]
    edges = [index for index, (before, after) in enumerate(pairwise(is_policy)) if before != after]
    return list(zip(edges[::2], edges[1::2], strict=True))


def group_by_query(keys: Sequence[str], group_size: int) -> list[list[int]]:
    """The indices of each query key, in order of first appearance; warns of incomplete groups."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        groups[key].append(index)
    incomplete = [len(group) for group in groups.values() if len(group) % group_size]
    if incomplete:
        warnings.warn(
            f"{len(incomplete)} of {len(groups)} groups are incomplete: the first has {incomplete[0]} attempts instead "
            f"of {group_size}. Give each process whole groups: make its batch a multiple of the group size.",
            stacklevel=3,
        )
    return list(groups.values())


def refuse_retokenised(written: Sequence[Sequence[int]], held: Sequence[Sequence[int]], *, trainer: str) -> None:
    """Compare the policy's tokens with those of a trainer, each row truncated to its written length.

    Stages and log-probabilities belong to the policy's tokens alone.

    Raises:
        UsageError: a row differs; the message says which and where.
    """
    for row, (ours, theirs) in enumerate(zip(written, held, strict=True)):
        if list(ours) == list(theirs):
            continue
        pairs = enumerate(zip(ours, theirs, strict=False))
        index = next((index for index, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        raise UsageError(
            f"{trainer} holds other tokens than the policy wrote: row {row} differs from token {index} on. It decodes "
            "and tokenises again; pass the ids through, or train without stage advantages."
        )
