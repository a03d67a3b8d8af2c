"""The curriculum as veRL's stream of training data."""

import json

import numpy as np
import pytest

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Query
from trainers.verl_backend.question_stream import CurriculumStream

QUERIES = {query.key: query for query in (Query(question=f"How wide is river {n}?") for n in range(8))}


def stream(*, window=2):
    curriculum = Curriculum(list(QUERIES), batch_size=2, window=window, rng=np.random.default_rng(0))
    return CurriculumStream(curriculum, QUERIES)


def asked(row):
    return (row["query"][0], row["encounter"][0], row["lesson_step"][0])


def test_prompts_come_one_by_one_and_each_window_comes_twice():
    rows = [asked(next(iter_)) for iter_ in [stream()] for _ in range(8)]
    assert [row[1] for row in rows] == ["new"] * 4 + ["repeat"] * 4
    assert [row[0] for row in rows[:4]] == [row[0] for row in rows[4:]]
    assert [row[2] for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_stream_resumed_between_two_prompts_of_a_step_goes_on_with_the_second():
    first = stream()
    next(first)
    state = json.loads(json.dumps(first.state_dict()))
    other = stream()
    other.load_state_dict(state)
    assert [asked(next(other)) for _ in range(6)] == [asked(next(first)) for _ in range(6)]


def test_a_stream_of_another_window_is_refused():
    with pytest.raises(UsageError, match="window 2, this run has 1"):
        stream(window=1).load_state_dict(stream().state_dict())


def test_every_column_holds_one_object_as_verl_collates_them():
    row = next(stream())
    assert {len(column) for column in row.values()} == {1}
    assert row["raw_prompt"][0][0]["role"] == "user"
    assert {column.dtype for column in row.values()} == {np.dtype(object)}
