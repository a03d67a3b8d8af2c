"""Credit: from the stage scores of a group of rollouts to an advantage for every policy token.

The paper's section 2.3 and choices D1-D9, in numpy alone; every trainer and every adapter calls these functions.

    scores[i, k]   R, the judge's score of stage k of rollout i, in [0, 1]; 0 where the stage is missing
    matrix[k, j]   Lambda, what stage k earns of stage j's score: 0 for j < k, 1 for j = k, in [0, 1] above
    returns[i, k]  G = sum_j matrix[k, j] scores[i, j]
    advantages     A = (G - mean) / (std + 1e-8) over the valid rollouts of the group, for each stage by itself

Not here: clipping of advantages, a value function, any statistic across groups.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_env.domain.errors import RubricEMError, UsageError


class NonFiniteLossError(RubricEMError):
    """The loss, or an input of it, is NaN or infinite: the step is refused, and the caller saves the batch."""


Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.integer]
CreditMode = Literal["stages", "terminal"]

PAPER_MATRIX: tuple[tuple[float, ...], ...] = (
    (1.0, 0.4, 0.6, 0.8),
    (0.0, 1.0, 0.4, 0.8),
    (0.0, 0.0, 1.0, 0.8),
    (0.0, 0.0, 0.0, 1.0),
)
"""Appendix E.1. Full marks return 2.8, 2.2, 1.8 and 1.0."""
EPSILON = 1e-8
FLAT = 1e-6
"""A spread below this is rounding, not preference: the stage's advantages are exactly 0 (choice D1)."""
MIN_VALID = 2
"""One rollout alone is neither better nor worse than its group."""


class Credit(NamedTuple):
    """What each rollout earned at each stage; rows as in the scores."""

    returns: Floats
    advantages: Floats
    """0 for masked rollouts, skipped groups and stages without spread."""
    trainable: Bools
    """(rollouts,): valid, and in a group with a non-zero advantage at some stage (choice D6)."""
    skipped: tuple[str, ...]
    """One sentence for each group with too few valid rollouts."""


def assign_credit(
    scores: npt.ArrayLike,
    *,
    groups: Sequence[int] | Integers | None = None,
    valid: Sequence[bool] | Bools | None = None,
    matrix: npt.ArrayLike = PAPER_MATRIX,
    mode: CreditMode = "stages",
) -> Credit:
    """Returns and advantages of many groups at once; `groups` numbers each rollout's, None is one group.

    A rollout that is not `valid` (its judge failed) is left out of the statistics and gets advantage 0.

    Raises:
        UsageError: scores, matrix, groups or mask break a rule; the message names which.
    """
    checked = check_scores(scores)
    weights = check_matrix(matrix, num_stages=checked.shape[1])
    mask = check_mask(valid, length=len(checked))
    labels = check_groups(groups, length=len(checked))
    returns = terminal_returns(checked) if mode == "terminal" else stage_returns(checked, weights)
    names, members = np.unique(labels, return_inverse=True)
    counts = np.bincount(members[mask], minlength=len(names))
    advantages = _normalise(returns, members=members, mask=mask, counts=counts)
    has_signal = np.bincount(members, weights=np.any(advantages != 0, axis=1), minlength=len(names)) > 0
    skipped = tuple(
        f"group {names[index]} is skipped: {counts[index]} of its rollouts are valid, and an advantage needs at least "
        f"{MIN_VALID} to compare."
        for index in np.flatnonzero(counts < MIN_VALID)
    )
    return Credit(returns, advantages, mask & has_signal[members], skipped)


def stage_returns(scores: Floats, matrix: Floats) -> Floats:
    """A stage's own score plus the downstream stages it enabled: G[i, k] = sum_j matrix[k, j] scores[i, j]."""
    return scores @ matrix.T


def terminal_returns(scores: Floats) -> Floats:
    """The answer's score at every stage: the baseline that no matrix expresses, since its diagonal is 1 (choice D9)."""
    return np.repeat(scores[:, -1:], scores.shape[1], axis=1)


def spread_to_tokens(advantages: npt.ArrayLike, stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """The advantage of each token's stage, shape (rollouts, tokens); 0 where the stage id is -1 (prompt, tool).

    Stage ids come in long runs, so each run's value is looked up once.
    """
    table = np.asarray(advantages, dtype=np.float32)
    if table.ndim != 2 or stage_ids.ndim != 2 or len(table) != len(stage_ids):
        raise UsageError(f"stage ids of shape {stage_ids.shape} do not fit advantages of shape {table.shape}.")
    num_stages = table.shape[1]
    if stage_ids.size == 0:
        return np.zeros(stage_ids.shape, dtype=np.float32)
    if stage_ids.min() < -1 or stage_ids.max() >= num_stages:
        raise UsageError(
            f"stage ids must lie between -1 and {num_stages - 1}; found {stage_ids.min()} to {stage_ids.max()}."
        )
    padded = np.concatenate([table, np.zeros((len(table), 1), dtype=np.float32)], axis=1)
    is_start = np.ones(stage_ids.shape, dtype=bool)
    np.not_equal(stage_ids[:, 1:], stage_ids[:, :-1], out=is_start[:, 1:])
    starts = np.flatnonzero(is_start)
    values = padded[starts // stage_ids.shape[1], stage_ids.ravel()[starts]]
    lengths = np.diff(starts, append=stage_ids.size)
    return np.repeat(values, lengths).reshape(stage_ids.shape)


def check_matrix(matrix: npt.ArrayLike, num_stages: int = len(PAPER_MATRIX)) -> Floats:
    """The matrix as an array, or one sentence on what is wrong with it (choice D7)."""
    weights = _numbers(matrix, "the stage matrix")
    if weights.shape != (num_stages, num_stages):
        raise UsageError(
            f"the stage matrix must be {num_stages} x {num_stages}, a row for each stage; {_shape(weights)}."
        )
    _refuse_outside(weights, "the stage matrix", row_name="row", column_name="column")
    below = np.argwhere(np.tril(weights, -1) != 0)
    if len(below):
        row, column = below[0]
        raise UsageError(
            f"the stage matrix has {weights[row, column]:g} in row {row + 1}, column {column + 1}: below the diagonal "
            "it must be 0, because a stage earns nothing from the stages before it."
        )
    off = np.flatnonzero(np.diag(weights) != 1)
    if len(off):
        raise UsageError(
            f"the stage matrix has {weights[off[0], off[0]]:g} in row {off[0] + 1}, column {off[0] + 1}: "
            "the diagonal must be 1, because a stage keeps its own score."
        )
    return weights


def check_scores(scores: npt.ArrayLike) -> Floats:
    """The scores as an array (rollouts, stages), or one sentence on what is wrong with them."""
    values = _numbers(scores, "scores")
    if values.ndim != 2 or values.shape[1] == 0:
        raise UsageError(f"scores must have a row for each rollout and a column for each stage; {_shape(values)}.")
    _refuse_outside(values, "scores", row_name="rollout", column_name="stage")
    return values


def check_mask(valid: Sequence[bool] | Bools | None, *, length: int) -> Bools:
    """Which rollouts count; None is all of them."""
    mask = np.ones(length, dtype=bool) if valid is None else np.asarray(valid)
    if mask.shape != (length,) or mask.dtype != bool:
        raise UsageError(f"valid needs one true or false for each of the {length} rollouts; {mask.shape} were given.")
    return mask


def check_groups(groups: Sequence[int] | Integers | None, *, length: int) -> Integers:
    """The number of each rollout's group; None is one group."""
    labels = np.zeros(length, dtype=np.int64) if groups is None else np.asarray(groups)
    if labels.shape != (length,) or (length and labels.dtype.kind not in "iu"):
        raise UsageError(f"groups needs one integer for each of the {length} rollouts; {labels.shape} were given.")
    return labels


def _normalise(returns: Floats, *, members: Integers, mask: Bools, counts: Integers) -> Floats:
    """(G - mean) / (std + eps) by group and stage over the valid rows; two passes, so equal returns spread by 0."""
    rows = np.flatnonzero(mask & (counts[members] >= MIN_VALID))
    group = members[rows]
    held = returns[rows]
    sizes = np.maximum(counts, 1)[:, None]
    centred = held - (_sum_by_group(held, group, num_groups=len(counts)) / sizes)[group]
    spread = np.sqrt(_sum_by_group(centred**2, group, num_groups=len(counts)) / sizes)[group]
    advantages = np.zeros_like(returns)
    advantages[rows] = np.where(spread < FLAT, 0.0, centred / (spread + EPSILON))
    return advantages


def _sum_by_group(values: Floats, group: Integers, *, num_groups: int) -> Floats:
    columns = [np.bincount(group, weights=column, minlength=num_groups) for column in values.T]
    return np.stack(columns, axis=1)


def _numbers(values: npt.ArrayLike, what: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError as cause:
        raise UsageError(f"{what} must be rows of numbers, all of one length.") from cause
    if array.dtype.kind not in "iuf":
        raise UsageError(f"{what} must be rows of numbers; something else stands among them.")
    return array.astype(np.float64)


def _refuse_outside(values: Floats, what: str, *, row_name: str, column_name: str) -> None:
    outside = np.argwhere(~((values >= 0) & (values <= 1)))
    if len(outside):
        row, column = outside[0]
        raise UsageError(
            f"{what}, {row_name} {row + 1}, {column_name} {column + 1} is {values[row, column]:g}; "
            "it must be a number between 0 and 1."
        )


def _shape(values: Floats) -> str:
    return f"its shape is {' x '.join(map(str, values.shape)) or 'that of one number'}"
