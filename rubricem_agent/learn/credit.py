"""Assigns credit: from the stage scores of a group to an advantage for every policy token.

The paper's section 3.3, in numpy alone; trainers and adapters call `credit_judged`, which calls
`assign_credit`. `credit_methods.py` has the function of each method. The paper's, SS-GRPO:

    scores[i, k]   R, the judge's score of stage k of rollout i, in [0, 1]; 0 where the stage is missing
    matrix[k, j]   Lambda, what stage k earns of stage j's score: 0 for j < k, 1 for j = k, in [0, 1] above
    returns[i, k]  G = sum_j matrix[k, j] scores[i, j]
    advantages     A = (G - mean) / (std + 1e-8) over the valid rollouts of the group, for each stage by itself
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator

from rubricem_agent.learn.credit_methods import (
    BY_TOKENS,
    METHODS,
    MIN_VALID,
    Bools,
    CreditMode,
    Floats,
    Integers,
    ScoredBatch,
    answer_only_returns,
    stage_returns,
    sum_by_group,
)
from rubricem_env.domain.base import NUM_STAGES
from rubricem_env.domain.errors import RubricEMError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.judge.masking import Fallback, group_scores


class NonFiniteLossError(RubricEMError):
    """The loss, or an input of it, is NaN or infinite: the step is refused, and the caller saves the batch."""


PAPER_MATRIX = DEEP_RESEARCH.matrix
"""Appendix F.1.2. Full marks return 2.8, 2.2, 1.8 and 1.0."""


class Credit(NamedTuple):
    """What each rollout earned at each stage; rows as in the scores."""

    returns: Floats
    """What was compared: G, the answer's score at every stage, or the scores themselves."""
    advantages: Floats
    """0 for masked rollouts, skipped groups and stages without spread."""
    trainable: Bools
    """(rollouts,): valid, and in a group with a non-zero advantage at some stage."""
    skipped: tuple[str, ...]
    """One sentence for each group with too few valid rollouts."""
    filled: Bools
    """(rollouts, stages): the group's mean stands in for a score that failed, in a valid rollout."""
    turns: Floats | None = None
    """(rollouts, turns): advantages by turn, of IGPO; then `advantages` has the mean over a stage's tokens."""

    def spread(self, stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """The advantage of every token, (rollouts, tokens); 0 where the stage id is -1."""
        if self.turns is None:
            return spread_to_tokens(self.advantages, stage_ids)
        return spread_to_tokens(self.turns, turn_ids(stage_ids))


def check_matrix_rows(matrix: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    """The matrix of a config, refused as `check_matrix` refuses it; how many stages there are is not known here."""
    check_matrix(matrix, num_stages=len(matrix))
    return matrix


class CreditSettings(Settings):
    """How rollouts are credited; the keys are the same in every trainer."""

    credit: CreditMode = "stages"
    """`stages` is SS-GRPO; `answer_only` is answer-only GRPO; `dr_grpo`, `gdpo`, `srar`, `draco` and `igpo` are rivals.
    """
    matrix: Annotated[tuple[tuple[float, ...], ...], AfterValidator(check_matrix_rows)] | None = None
    """Lambda: the share of downstream scores that a stage earns; else the paper's. Read by `stages` alone."""
    fallback: Fallback = "mean"
    """What a stage gets whose scoring failed: the group's mean, so advantage 0; `broadcast`: the answer's score."""


def credit_judged(
    judgements: Sequence[Judgement],
    *,
    groups: Sequence[int] | Integers,
    valid: Sequence[bool] | Bools,
    stage_ids: npt.NDArray[np.integer],
    settings: CreditSettings,
    gains: npt.ArrayLike | None = None,
    stage_set: StageSet = DEEP_RESEARCH,
) -> Credit:
    """The credit of judged rollouts by the settings: of a whole step, or of one group; `Credit.spread` gives tokens.

    `groups` has equal numbers for attempts at one question, and `valid` is False where an infrastructure failure ended
    the episode. `stage_ids` (rollouts, tokens) counts stages from 0 where the policy wrote, else -1, padded on the
    right. IGPO alone needs `gains`, as in `ScoredBatch`. GDPO scales by the spread over all rollouts given, so one
    group is scaled alone.

    Raises:
        UsageError: a judgement has other stages than the set.
    """
    names = stage_set.scaffold.names
    other = next((judgement for judgement in judgements if judgement.stages != names), None)
    if other is not None:
        raise UsageError(
            f"a judgement has the stages {', '.join(other.stages)}, and the credit is of the stages "
            f"{', '.join(names)} of {stage_set.name!r}. Give stage_set, the one that the attempts were written in."
        )
    numbers = np.asarray(groups)
    num_stages = len(names)
    counted = np.array(valid, dtype=bool)
    scores = np.zeros((len(judgements), num_stages))
    scored = np.ones(scores.shape, dtype=bool)
    for number in np.unique(numbers):
        rows = np.flatnonzero(numbers == number).tolist()
        scores[rows], judged, scored[rows] = group_scores([judgements[row] for row in rows], settings.fallback)
        counted[rows] &= judged
    return assign_credit(
        scores,
        groups=numbers,
        valid=counted,
        matrix=stage_set.matrix if settings.matrix is None else settings.matrix,
        mode=settings.credit,
        scored=scored,
        tokens=count_tokens(stage_ids, num_stages),
        gains=gains,
    )


def assign_credit(
    scores: npt.ArrayLike,
    *,
    groups: Sequence[int] | Integers | None = None,
    valid: Sequence[bool] | Bools | None = None,
    matrix: npt.ArrayLike = PAPER_MATRIX,
    mode: CreditMode = "stages",
    scored: npt.ArrayLike | None = None,
    tokens: npt.ArrayLike | None = None,
    gains: npt.ArrayLike | None = None,
) -> Credit:
    """Returns and advantages of many groups at once; `groups` numbers each rollout's, None is one group.

    A rollout that is not `valid` (its judge failed) is left out of the statistics and gets advantage 0. So is a stage
    that is not `scored`, in its rollout alone; for the returns of other stages it takes the group's mean. DRACO and
    IGPO need the number of `tokens` as `count_tokens` gives it, and IGPO the `gains` of the turns.

    Raises:
        UsageError: an argument breaks a rule or the method lacks one; the message names which.
    """
    checked = check_scores(scores)
    weights = check_matrix(matrix, num_stages=checked.shape[1])
    mask = check_mask(valid, length=len(checked))
    labels = np.zeros(len(checked), dtype=np.int64) if groups is None else np.asarray(groups)
    if labels.shape != mask.shape or (len(mask) and labels.dtype.kind not in "iu"):
        raise UsageError(f"groups needs one integer for each of the {len(mask)} rollouts; {labels.shape} were given.")
    names, members = np.unique(labels, return_inverse=True)
    sizes = np.bincount(members[mask], minlength=len(names))
    given = np.ones(checked.shape, dtype=bool) if scored is None else np.asarray(scored)
    if given.shape != checked.shape or given.dtype != bool:
        raise UsageError(
            f"scored needs true or false for each of the {_size(checked)} scores; {given.shape} were given."
        )
    if mode not in METHODS:
        raise UsageError(f"the credit method is {mode!r}; it is one of {', '.join(METHODS)}.")
    counts, gained = _check_turns(mode, tokens, gains, shape=checked.shape)
    counted = given & (mask & (sizes >= MIN_VALID)[members])[:, None]
    means = sum_by_group(np.where(counted, checked, 0.0), members) / np.maximum(sum_by_group(counted, members), 1)
    filled = np.where(given, checked, means[members])
    advantages = METHODS[mode](ScoredBatch(filled, counted, members, weights, counts, gained))
    turns = None
    if mode == "igpo":
        turns = advantages
        written = counts.sum(axis=1)
        advantages = np.einsum("it,itk->ik", turns, counts) / np.maximum(written, 1)
    has_signal = np.bincount(members, weights=np.any(advantages != 0, axis=1), minlength=len(names)) > 0
    skipped = tuple(
        f"group {names[index]} is skipped: {sizes[index]} of its rollouts are valid, and an advantage needs at least "
        f"{MIN_VALID} to compare."
        for index in np.flatnonzero(sizes < MIN_VALID)
    )
    returns = stage_returns(filled, weights) if mode == "stages" else filled
    returns = answer_only_returns(filled) if mode in ("answer_only", "dr_grpo", "igpo") else returns
    return Credit(returns, advantages, mask & has_signal[members], skipped, ~given & mask[:, None], turns)


def turn_ids(stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The turn of each token, from 0; -1 where the policy did not write. A turn ends where a tool's text begins."""
    is_policy = stage_ids >= 0
    begins = is_policy & ~np.pad(is_policy, ((0, 0), (1, 0)))[:, :-1]
    return np.where(is_policy, np.cumsum(begins, axis=1) - 1, -1)


def count_tokens(stage_ids: npt.NDArray[np.integer], num_stages: int = NUM_STAGES) -> Integers:
    """The policy's tokens of each turn and stage, (rollouts, turns, stages)."""
    turns = turn_ids(stage_ids)
    counts = np.zeros((len(stage_ids), int(turns.max(initial=0)) + 1, num_stages), dtype=np.int64)
    rows, columns = np.nonzero(turns >= 0)
    np.add.at(counts, (rows, turns[rows, columns], stage_ids[rows, columns]), 1)
    return counts


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
    """The matrix as an array, or one sentence on what is wrong with it."""
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


def _check_turns(
    mode: CreditMode, tokens: npt.ArrayLike | None, gains: npt.ArrayLike | None, *, shape: tuple[int, ...]
) -> tuple[Integers, Floats]:
    """Tokens and gains, empty where the method reads none."""
    counts = np.zeros((shape[0], 1, shape[1]), dtype=np.int64) if tokens is None else np.asarray(tokens)
    gained = np.full(counts.shape[:2], np.nan) if gains is None else np.asarray(gains, dtype=np.float64)
    if mode in BY_TOKENS and tokens is None:
        raise UsageError(f"credit {mode} shares by tokens, and none are given; pass tokens=count_tokens(stage_ids).")
    if mode == "igpo" and gains is None:
        raise UsageError(
            "credit igpo needs the rise of the gold answer's probability in every turn, and no gains are given. The "
            "local trainer measures them in the almanac; elsewhere choose another method."
        )
    if counts.ndim != 3 or (counts.shape[0], counts.shape[2]) != shape or gained.shape != counts.shape[:2]:
        raise UsageError(
            f"tokens must be rollouts x turns x stages, and gains rollouts x turns; {counts.shape} and {gained.shape} "
            f"do not fit {shape[0]} x {shape[1]} scores."
        )
    return counts, gained


_MISSING = " A missing score: assign_credit(np.nan_to_num(scores), scored=~np.isnan(scores)), or use group_scores."


def _numbers(values: npt.ArrayLike, what: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError as cause:
        raise UsageError(f"{what} must be rows of numbers, all of one length.") from cause
    if array.dtype.kind == "O" and any(value is None for value in array.ravel()):
        raise UsageError(
            f"{what} must be numbers; None stands among them. Write scores, valid, scored = group_scores(judgements), "
            "from rubricem_agent.learn, then assign_credit(scores, valid=valid, scored=scored)."
        )
    if array.dtype.kind not in "iuf":
        raise UsageError(f"{what} must be rows of numbers; something else stands among them.")
    return array.astype(np.float64)


def _refuse_outside(values: Floats, what: str, *, row_name: str, column_name: str) -> None:
    outside = np.argwhere(~((values >= 0) & (values <= 1)))
    if len(outside):
        row, column = outside[0]
        raise UsageError(
            f"{what}, {row_name} {row + 1}, {column_name} {column + 1} is {values[row, column]:g}; "
            "it must be a number between 0 and 1." + (_MISSING if np.isnan(values[row, column]) else "")
        )


def _shape(values: Floats) -> str:
    return f"its shape is {_size(values) or 'that of one number'}"


def _size(values: Floats) -> str:
    return " x ".join(map(str, values.shape))
