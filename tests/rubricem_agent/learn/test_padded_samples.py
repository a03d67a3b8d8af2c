"""Samples as arrays: padding, selecting, saving, and what is refused."""

import numpy as np
import pytest

from rubricem_agent.learn.samples import Sample, pad_batch
from rubricem_env.domain.errors import UsageError


def sample(stages=(-1, 0, -1, 3), **changes) -> Sample:
    size = len(stages)
    made = Sample(
        token_ids=list(range(10, 10 + size)),
        stage_ids=list(stages),
        advantages=np.full(size, 0.5),
        rollout_logprobs=[-0.25] * size,
        temperature=1.0,
        policy_version=3,
    )
    return made._replace(**changes)


def test_samples_are_padded_to_the_longest_and_padding_is_no_policy_token():
    batch = pad_batch([sample(), sample((-1, 2))], pad_id=99)
    assert batch.token_ids.tolist() == [[10, 11, 12, 13], [10, 11, 99, 99]]
    assert batch.policy_mask.tolist() == [[False, True, False, True], [False, True, False, False]]
    assert batch.lengths.tolist() == [4, 2]
    assert batch.num_policy_tokens == 3


def test_a_selection_is_cut_to_its_longest_sample():
    batch = pad_batch([sample(), sample((-1, 2)), sample((-1, 1, 1))], pad_id=0)
    part = batch.select([2, 1])
    assert part.token_ids.shape == (2, 3)
    assert part.lengths.tolist() == [3, 2]


def test_a_saved_batch_comes_back_as_it_was(tmp_path):
    batch = pad_batch([sample(), sample((-1, 2))], pad_id=0)
    batch.save(tmp_path / "refused-step-7.npz")
    with np.load(tmp_path / "refused-step-7.npz", allow_pickle=False) as again:
        for name, before in batch._asdict().items():
            np.testing.assert_array_equal(before, again[name])
            assert before.dtype == again[name].dtype


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stage_ids": [-1, 0]}, "sample 0 has 4 tokens and 2 stage ids; give one for each."),
        ({"rollout_logprobs": [0.0]}, "4 tokens and 1 rollout log-probabilities"),
        ({"stage_ids": [0, 0, -1, 3]}, "begins with a token of the policy; nothing predicts it"),
        ({"stage_ids": [-1, 0, -7, 3]}, "has stage id -7"),
        ({"advantages": np.array([0, np.nan, 0, 0])}, "token 1 has advantage nan; it must be finite"),
        ({"rollout_logprobs": [0, 0, 0, float("-inf")]}, "token 3 has rollout log-probability -inf"),
        ({"temperature": 0.0}, "temperature 0.0; it must be above 0"),
        ({"temperature": float("nan")}, "temperature nan"),
    ],
)
def test_a_sample_that_contradicts_itself_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(UsageError) as refusal:
        pad_batch([sample(**changes)], pad_id=0)
    assert sentence in str(refusal.value)


def test_the_policys_tokens_are_listed_sample_by_sample():
    rows, columns = pad_batch([sample((-1, 2)), sample()], pad_id=0).policy_positions()
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 1], [1, 1, 3])


def test_windows_of_one_rollout_are_known_by_its_number_and_others_are_rollouts_of_their_own():
    batch = pad_batch([sample(), sample(rollout=0), sample(rollout=7), sample(rollout=7), sample()], pad_id=0)
    assert batch.rollouts.tolist() == [0, 1, 2, 2, 3]
    assert batch.num_rollouts == 4
    assert batch.select([3, 4]).num_rollouts == 2
