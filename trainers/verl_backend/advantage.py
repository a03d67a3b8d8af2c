"""From the marks of a step's rollouts to an advantage for every token, by `learn/credit` and nothing else."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import Bools, CreditMode, Floats, assign_credit, spread_to_tokens
from rubricem_env.domain.errors import JudgeError
from trainers.verl_backend.episode_row import Credentials


class CreditedRows(NamedTuple):
    """Rows as they were given; those that are not trainable teach nothing and cost nothing (choice D6)."""

    returns: Floats
    """(rows, stages)."""
    advantages: Floats
    """(rows, stages)."""
    trainable: Bools
    skipped: tuple[str, ...]
    """One sentence for each group that had too few valid rollouts."""


def credit_rows(
    rows: Sequence[Credentials], groups: Sequence[str], *, mode: CreditMode, matrix: npt.ArrayLike
) -> CreditedRows:
    """The stage advantages of a step; `groups` names each row's."""
    _, members = np.unique(np.asarray(groups), return_inverse=True)
    credit = assign_credit(
        np.array([row.marks.scores for row in rows]).reshape(len(rows), -1),
        groups=members,
        valid=np.array([row.marks.is_valid for row in rows], dtype=bool),
        mode=mode,
        matrix=matrix,
    )
    return CreditedRows(credit.returns, credit.advantages, credit.trainable, tuple(map(str, credit.skipped)))


def token_advantages(advantages: npt.ArrayLike, stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """One row's advantages spread over its response, (tokens,)."""
    spread: npt.NDArray[np.float32] = spread_to_tokens(np.asarray(advantages)[None], stage_ids[None])[0]
    return spread


def refuse_outage(rows: Sequence[Credentials], limit: float) -> None:
    """Stop where too many of a step's rollouts were lost to the judge or the world (choice B7).

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    lost = [row.marks.failure for row in rows if not row.marks.is_valid]
    if len(lost) > limit * len(rows):
        raise JudgeError(
            f"{len(lost)} of the step's {len(rows)} rollouts were lost; more than {limit:.0%} stop the run, because a "
            f"policy must not learn from what is left. First failure: {lost[0]}. Set right what failed and start "
            "again: the run goes on from its last checkpoint."
        )
