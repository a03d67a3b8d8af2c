"""Tokens packed for a record: the same ids and stages, log-probabilities to three digits."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.rollouts.packed_tokens import PackedTokens, pack_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens

TOKEN = st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 3), st.floats(-1e3, 0))


def tokens_of(rows):
    ids, stages, logprobs = zip(*rows, strict=True) if rows else ((), (), ())
    return RolloutTokens(ids=ids, stage_ids=stages, logprobs=logprobs, prompt_length=min(1, len(ids)))


@given(st.lists(TOKEN, max_size=40))
def test_packing_keeps_ids_and_stages_and_nearly_keeps_log_probabilities(rows):
    tokens = tokens_of(rows)

    packed = PackedTokens.model_validate_json(pack_tokens(tokens).model_dump_json())
    ids, stages, logprobs = packed.unpack()

    assert tuple(ids.tolist()) == tokens.ids
    assert tuple(stages.tolist()) == tokens.stage_ids
    np.testing.assert_allclose(logprobs.astype(float), tokens.logprobs, rtol=1e-3, atol=1e-4)


def test_a_log_probability_beyond_float16_is_kept_as_the_least_number():
    packed = pack_tokens(tokens_of([(1, -1, 0.0), (2, 0, -1e6)]))

    assert packed.unpack()[2].tolist() == [0.0, -65504.0]


@pytest.mark.parametrize(
    "damage", [{"ids": "!"}, {"ids": "AAAA"}, {"length": 3}, {"runs": ((0, 1),)}, {"runs": ((0, -1),)}]
)
def test_damaged_tokens_are_refused(damage):
    packed = pack_tokens(tokens_of([(1, -1, 0.0), (2, 0, -1.0)])).model_copy(update=damage)

    with pytest.raises(FileFormatError, match="packed tokens"):
        packed.unpack()


def test_windows_are_kept_and_left_out_where_there_is_one():
    rows = [(1, -1, 0.0), (2, 0, -1.0), (1, -1, 0.0), (3, 1, -1.0)]
    whole = tokens_of(rows)
    folded = whole.model_copy(update={"window_starts": (0, 2)})

    packed = PackedTokens.model_validate_json(pack_tokens(folded).model_dump_json())

    assert packed.windows() == folded.windows == (slice(0, 2), slice(2, 4))
    assert pack_tokens(whole).windows() == (slice(0, 4),)
    assert "window_starts" not in pack_tokens(whole).model_dump_json()
    assert "window_starts" not in whole.model_dump_json()


def test_windows_that_leave_the_tokens_are_refused():
    packed = pack_tokens(tokens_of([(1, -1, 0.0), (2, 0, -1.0)])).model_copy(update={"window_starts": (0, 5)})

    with pytest.raises(FileFormatError, match=r"damaged: window_starts is \(0, 5\)"):
        packed.windows()
