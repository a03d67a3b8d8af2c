"""Rows of different lengths as one array."""

import numpy as np

from rubricem_agent.learn.padding import pad_rows


def test_rows_are_padded_on_the_right_to_the_longest():
    padded = pad_rows([[1, 2, 3], [4], []], -1, dtype=np.int64)
    assert padded.tolist() == [[1, 2, 3], [4, -1, -1], [-1, -1, -1]]
    assert padded.dtype == np.int64


def test_no_rows_are_an_array_without_columns():
    assert pad_rows([], 0.0, dtype=np.float32).shape == (0, 0)
