"""IGPO's gains in the almanac: how much likelier the gold answer gets in each turn.

IGPO (arXiv 2510.14967) credits a turn by that gain, and needs no judge for it. The gold answer is written by force
after all that the policy read before turn t: in a folded rollout, what its window has before the turn. With p_t the
geometric mean of the policy's probabilities of its values' tokens, turn t gains p_{t+1} - p_t. The last turn gains
nothing: it is credited by the answer's score. In the almanac an answer is its values; the words around them are given.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from rubricem_agent.learn.credit import turn_ids
from rubricem_agent.learn.padding import pad_rows
from rubricem_agent.learn.samples import Sample, pad_batch
from rubricem_agent.policy.dense_decoder import is_dense
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.questions import Question
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
from rubricem_records.rollouts.rollouts import Rollout

from .learner import Learner, policy_logprobs
from .packed import pack_samples


def answer_gains(
    learner: Learner, groups: Sequence[Sequence[Rollout]], questions: Sequence[Question], *, tokenizer: PolicyTokenizer
) -> npt.NDArray[np.float64]:
    """(rollouts, turns), as `ScoredBatch.gains`: NaN in last turns, behind them, and where a rollout has no tokens."""
    golds = [gold_answer(question, tokenizer) for question in questions]
    rollouts = [(rollout, gold) for group, gold in zip(groups, golds, strict=True) for rollout in group]
    ids = [rollout.tokens.stage_ids if rollout.tokens else () for rollout, _ in rollouts]
    turns = turn_ids(pad_rows(ids, NO_STAGE, dtype=np.int8))
    positions: list[tuple[int, int]] = []
    samples: list[Sample] = []
    for row, (rollout, gold) in enumerate(rollouts):
        # The longest beginning first: the others share its tokens, so that a rollout is read once.
        for turn in range(int(turns[row].max(initial=NO_STAGE)), -1, -1):
            positions.append((row, turn))
            samples.append(_forced(rollout, int(np.argmax(turns[row] == turn)), gold))
    likely = np.full((len(rollouts), int(turns.max(initial=0)) + 2), np.nan)
    if samples:
        likely[tuple(np.transpose(positions))] = _likelihoods(learner, samples)
    return np.diff(likely, axis=1)


def gold_answer(question: Question, tokenizer: PolicyTokenizer) -> list[tuple[int, bool]]:
    """The tokens of the gold answer in the policy's form, and whether each belongs to a value."""
    stated = [(need.sentence, need.value) for need in question.truth.needs]
    stated += [(duty.sentence, duty.value) for duty in question.truth.implicit_needs]
    text, spans = "<answer>", []
    if question.answer_format is AnswerFormat.EXACT:
        text, stated = "<answer>\\boxed{", [(question.truth.reference, question.truth.reference)]
    for sentence, value in stated:
        begins = len(text) + max(0, sentence.find(value))
        spans.append((begins, begins + len(value)))
        text += f"{sentence} "
    tokens, end = [], 0
    for token_id in tokenizer.encode_foreign(text.strip()):
        start, end = end, end + len(tokenizer.token_bytes(token_id))
        tokens.append((token_id, any(start < last and first < end for first, last in spans)))
    return tokens


def _forced(rollout: Rollout, begins: int, gold: Sequence[tuple[int, bool]]) -> Sample:
    """A window up to a token, then the gold answer, whose values alone are asked for."""
    ids: list[int] = []
    if rollout.tokens is not None:
        ids += rollout.tokens.ids[max(start for start in rollout.tokens.window_starts if start < begins) : begins]
    stage_ids = [NO_STAGE] * len(ids) + [0 if is_value else NO_STAGE for _, is_value in gold]
    ids += [token_id for token_id, _ in gold]
    blank = np.zeros(len(ids), dtype=np.float32)
    return Sample(ids, stage_ids, blank, blank, temperature=1.0, policy_version=0)


@torch.no_grad()
def _likelihoods(learner: Learner, samples: Sequence[Sample]) -> list[float]:
    """The geometric mean of the probabilities of each sample's forced tokens."""
    most = learner.micro_batch_tokens if is_dense(learner.policy) else 0
    means: list[float] = []
    for pack in pack_samples(pad_batch(samples, pad_id=0), max_tokens=most):
        logprobs = policy_logprobs(learner.policy, pack)[0].double().cpu().numpy()
        rows = pack.part.policy_positions()[0]
        means += np.exp(np.bincount(rows, weights=logprobs) / np.bincount(rows)).tolist()
    return means
