"""Exact search against a sort written out in full."""

import numpy as np
from hypothesis import given, strategies as st

from rubricem_agent.memory.embed import unit_rows
from rubricem_agent.memory.item_index import VectorTable


def filled(rows):
    table = VectorTable(rows.shape[1], kinds=1)
    for row in rows:
        table.set_open(table.append(row), True)
    return table


def nearest(table, query, limit):
    return table.nearest(query, table.scores(query), limit)


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 10))
def test_the_nearest_rows_are_those_of_a_full_sort(seed, count, limit):
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator.normal(size=(count, 8)))
    query = unit_rows(generator.normal(size=(1, 8)))[0]
    found = sorted(nearest(filled(rows), query, limit), key=lambda hit: -hit[1])[:limit]
    scores = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    assert [row for row, _ in found] == np.argsort(-scores, kind="stable")[:limit].tolist()


def test_equal_rows_have_equal_scores_wherever_they_stand():
    rows = unit_rows(np.random.default_rng(0).normal(size=(1_000, 384)))
    rows[::7] = rows[0]
    np.testing.assert_array_equal(filled(rows).rows, rows)  # the table has grown twice
    scores = [score for row, score in nearest(filled(rows), rows[3], 1_000) if row % 7 == 0]
    assert len(set(scores)) == 1


def test_all_rows_that_tie_with_the_last_one_are_returned():
    table = filled(unit_rows(np.ones((20, 4))))
    assert len(nearest(table, unit_rows(np.ones((1, 4)))[0], 2)) == 20


def test_a_closed_row_is_not_found_until_it_is_opened():
    table = VectorTable(2, kinds=1)
    row = table.append(np.array([1.0, 0.0], dtype=np.float32))
    assert nearest(table, table.rows[row], 1) == []
    table.set_open(row, True)
    assert nearest(table, table.rows[row], 1) == [(0, 1.0)]


def test_no_row_is_the_nearest_none():
    assert nearest(filled(unit_rows(np.ones((3, 4)))), np.ones(4, dtype=np.float32), 0) == []


def test_rows_begin_on_a_cache_line():
    # numpy begins at multiples of 16 bytes; the tables are kept, so that each begins elsewhere.
    tables = [VectorTable(dimension, kinds=1) for dimension in range(1, 200)]
    assert {table.rows.ctypes.data % 64 for table in tables} == {0}


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 20), st.sampled_from([0.0, 0.1, 0.9]))
def test_closed_rows_are_passed_over_and_scores_may_be_used_again(seed, count, limit, share):
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator.integers(-1, 2, size=(count, 4)).astype(float))  # with many ties
    table = filled(rows)
    is_open = generator.random(count) >= share
    for row in np.flatnonzero(~is_open):
        table.set_open(int(row), False)
    scores = table.scores(rows[0])
    for more in (limit, 4 * limit):
        found = table.nearest(rows[0], scores, more)
        best = sorted((score for _, score in found), reverse=True)[:more]
        exact = (rows.astype(np.float64) * rows[0].astype(np.float64)).sum(axis=1)[is_open]
        assert best == sorted(exact.tolist(), reverse=True)[:more]
        assert is_open[[row for row, _ in found]].all()
