"""Exact search against a sort written out in full."""

import numpy as np
from hypothesis import given, strategies as st

from rubricem_agent.memory.bank import VectorTable
from rubricem_agent.memory.embed import unit_rows


def filled(rows):
    table = VectorTable(rows.shape[1])
    for row in rows:
        table.set_open(table.append(row), True)
    return table


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 10))
def test_the_nearest_rows_are_those_of_a_full_sort(seed, count, limit):
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator.normal(size=(count, 8)))
    query = unit_rows(generator.normal(size=(1, 8)))[0]
    found = sorted(filled(rows).nearest(query, limit), key=lambda hit: -hit[1])[:limit]
    scores = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    assert [row for row, _ in found] == np.argsort(-scores, kind="stable")[:limit].tolist()


def test_equal_rows_have_equal_scores_wherever_they_stand():
    rows = unit_rows(np.random.default_rng(0).normal(size=(1_000, 384)))
    rows[::7] = rows[0]
    np.testing.assert_array_equal(filled(rows).rows, rows)  # the table has grown twice
    scores = [score for row, score in filled(rows).nearest(rows[3], 1_000) if row % 7 == 0]
    assert len(set(scores)) == 1


def test_all_rows_that_tie_with_the_last_one_are_returned():
    table = filled(unit_rows(np.ones((20, 4))))
    assert len(table.nearest(unit_rows(np.ones((1, 4)))[0], 2)) == 20


def test_a_closed_row_is_not_found_until_it_is_opened():
    table = VectorTable(2)
    row = table.append(np.array([1.0, 0.0], dtype=np.float32))
    assert table.nearest(table.rows[row], 1) == []
    table.set_open(row, True)
    assert table.nearest(table.rows[row], 1) == [(0, 1.0)]
