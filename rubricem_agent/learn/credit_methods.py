"""Credit methods: the paper's SS-GRPO and its rivals, each a function from a `ScoredBatch` to advantages, in numpy.

z(x) is (x - mean) / (std + eps) within the group, over what is counted. A missing stage scores 0 and counts in every
method: a baseline without it would depend on who stopped early. A statistic across groups is taken by GDPO alone.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.integer]
Number = TypeVar("Number", bound=np.generic)
CreditMode = Literal["stages", "answer_only", "dr_grpo", "gdpo", "srar", "draco", "igpo"]
"""stages: SS-GRPO. terminal: answer-only GRPO. dr_grpo: the same without the standard deviation. gdpo, srar, draco (its
stage variant), igpo: see the functions of these names."""

EPSILON = 1e-8
FLAT = 1e-6
"""A spread below this is rounding, not preference: the stage's advantages are exactly 0."""
MIN_VALID = 2
"""One rollout alone is neither better nor worse than its group."""


class ScoredBatch(NamedTuple):
    """What a method reads, checked. A lost score is the group's mean of its stage."""

    scores: Floats
    """(rollouts, stages)."""
    counted: Bools
    """(rollouts, stages): scored, in a valid rollout of a group with enough of them. Others get 0 and change nothing.
    """
    members: Integers
    """(rollouts,): the group of each, from 0."""
    matrix: Floats
    tokens: Integers
    """(rollouts, turns, stages): policy tokens."""
    gains: Floats
    """(rollouts, turns): the rise of the gold answer's probability in each turn but the last; NaN where not measured.
    """


def stage_returns(scores: Floats, matrix: Floats) -> Floats:
    """A stage's own score plus the downstream stages it enabled: G[i, k] = sum_j matrix[k, j] scores[i, j]."""
    return scores @ matrix.T


def answer_only_returns(scores: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The answer's score at every stage: the baseline that no matrix expresses, since its diagonal is 1."""
    return np.repeat(scores[:, -1:], scores.shape[1], axis=1)


def ss_grpo(batch: ScoredBatch) -> Floats:
    """Stage-Structured GRPO (the paper, section 3.3): A_k = z(G_k) at each stage; a lost score gives exactly 0."""
    return normalise(stage_returns(batch.scores, batch.matrix), batch.counted, batch.members)


def answer_only(batch: ScoredBatch) -> Floats:
    """GRPO (arXiv 2402.03300) on the answer's score, z(r) on every token; the deviation divides by n."""
    answered = answer_only_returns(batch.counted)
    return normalise(answer_only_returns(batch.scores), answered, batch.members)


def dr_grpo(batch: ScoredBatch) -> Floats:
    """Dr. GRPO (arXiv 2503.20783): r - mean, undivided, so that questions are not weighted by their difficulty.

    The paper also sums the token losses over a constant length: `loss.aggregation: seq-mean-token-sum`.
    """
    answered = answer_only_returns(batch.counted)
    return normalise(answer_only_returns(batch.scores), answered, batch.members, is_scaled=False)


def gdpo(batch: ScoredBatch) -> Floats:
    """GDPO (arXiv 2601.05242) on stage scores: the sum of z(R_k), divided by its spread over the batch, on every token.

    As in NVlabs/GDPO for TRL: deviations divide by n - 1, eps is 1e-4, all weights are 1. A sum of z-scores has mean 0.
    """
    total = normalise(batch.scores, batch.counted, batch.members, ddof=1, epsilon=1e-4).sum(axis=1)
    counted: Bools = batch.counted.max(axis=1)
    spread = np.sqrt(np.sum(total**2) / max(1, counted.sum() - 1))
    whitened = total / (spread + 1e-4) if spread >= FLAT else np.zeros_like(total)
    return np.where(counted[:, None], whitened[:, None], 0.0).repeat(batch.scores.shape[1], axis=1)


def srar(batch: ScoredBatch) -> Floats:
    """SRaR (arXiv 2605.17291, akarinmoe/SRaR 801a48d): z(r) + z(d_k), where d_k is the stage's own score.

    It normalises and then adds, with no matrix. Deviations divide by n - 1, eps is 1e-6. A lost score adds 0.
    """
    local = normalise(batch.scores, batch.counted, batch.members, ddof=1, epsilon=1e-6)
    answered = batch.counted[:, -1:]
    return local + normalise(batch.scores[:, -1:], answered, batch.members, ddof=1, epsilon=1e-6)


def draco(batch: ScoredBatch) -> Floats:
    """The stage variant of DRACO (arXiv 2609.04094): a rollout's A = z(mean R), redistributed over its N tokens.

    Each criterion cites its own stage, so the share of passed criteria that cite stage k is Q_k = R_k.
    w = Q where A >= 0, else 1 - Q; a_k = A N w_k / (n_k sum w). No sign flips, and sum n_k a_k = A N. A lost stage
    takes the mean Q of the others, as one that no criterion cites; with sum w = 0 every stage gets A. (ddof and eps
    unstated.)
    """
    rows: Bools = batch.counted.max(axis=1, keepdims=True)
    overall = normalise(batch.scores.mean(axis=1, keepdims=True), rows, batch.members)
    written = batch.tokens.sum(axis=1)
    cited = batch.counted & (written > 0)
    mean = np.where(cited, batch.scores, 0.0).sum(axis=1, keepdims=True) / np.maximum(cited.sum(1, keepdims=True), 1)
    quality = np.where(cited, batch.scores, mean)
    share = np.where(overall >= 0, quality, 1.0 - quality) * (written > 0)
    total = share.sum(axis=1, keepdims=True)
    scale = written.sum(axis=1, keepdims=True) / np.where(total > 0, total, 1.0) / np.maximum(written, 1)
    return np.where(total > 0, overall * share * scale, overall)


GAMMA = 0.95


def igpo(batch: ScoredBatch) -> Floats:
    """IGPO (arXiv 2510.14967; DR-Venus 6013141, `separate`): a turn earns the rise of the gold answer's probability.

    x_t = z(g_t) over all gains of the group, and z(r) at the last turn; then A_t = x_t + 0.95 A_{t+1}. Turns, not
    stages: (rollouts, turns). eps is 1e-6 (the release also adds 1e-8 to the variance); a gain that was not measured
    adds 0.
    """
    written = batch.tokens.sum(axis=2) > 0
    is_last = np.arange(written.shape[1]) == written.sum(axis=1, keepdims=True) - 1
    answered = batch.counted[:, -1:]
    rows, turns = np.nonzero(answered & written & ~is_last & ~np.isnan(batch.gains))
    gains = batch.gains[rows, turns][:, None]
    outcome = normalise(batch.scores[:, -1:], answered, batch.members, epsilon=1e-6)
    earned = np.where(is_last, outcome, 0.0)
    earned[rows, turns] = normalise(gains, np.ones(gains.shape, bool), batch.members[rows], epsilon=1e-6)[:, 0]
    for turn in range(written.shape[1] - 2, -1, -1):
        earned[:, turn] += GAMMA * earned[:, turn + 1]
    return earned


BY_TOKENS = ("draco", "igpo")
"""The methods that need the number of tokens."""
METHODS: Mapping[CreditMode, Callable[[ScoredBatch], Floats]] = {
    "stages": ss_grpo,
    "answer_only": answer_only,
    "dr_grpo": dr_grpo,
    "gdpo": gdpo,
    "srar": srar,
    "draco": draco,
    "igpo": igpo,
}


def normalise(
    values: Floats,
    counted: Bools,
    members: Integers,
    *,
    ddof: int = 0,
    epsilon: float = EPSILON,
    is_scaled: bool = True,
) -> Floats:
    """Z by group and column over what is counted, else 0; two passes, so equal values spread by 0."""
    sizes = sum_by_group(counted, members)
    means = sum_by_group(np.where(counted, values, 0.0), members) / np.maximum(sizes, 1)
    centred = np.where(counted, values - means[members], 0.0)
    spread = np.sqrt(sum_by_group(centred**2, members) / np.maximum(sizes - ddof, 1))
    scaled = centred / (spread + epsilon)[members] if is_scaled else centred
    return np.where((spread < FLAT)[members], 0.0, scaled)


def sum_by_group(values: npt.NDArray[np.generic], members: Integers) -> Floats:
    return np.stack([np.bincount(members, weights=column) for column in values.T], axis=1)
