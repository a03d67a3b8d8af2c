"""Which question an episode has."""

import numpy as np
import pytest

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.reset_options import choose_query

QUERIES = [Query(question=f"Q{number}?") for number in range(5)]


def choose(options=None, queries=QUERIES, seed=0) -> Query:
    return choose_query(options or {}, queries, np.random.default_rng(seed))


def test_a_query_or_a_question_that_is_named_is_taken():
    assert choose({"query": QUERIES[3]}) is QUERIES[3]
    assert choose({"question": "Other?"}) == Query(question="Other?")
    assert choose({"question": "Other?", "answer_format": "short"}).answer_format == "short"


def test_without_one_each_of_the_questions_is_drawn_sooner_or_later():
    assert {choose(seed=seed).question for seed in range(40)} == {query.question for query in QUERIES}


@pytest.mark.parametrize(
    ("options", "queries", "said"),
    [
        ({"question": "Q?", "seed": 1}, QUERIES, "got the option 'seed'; it knows query, question, answer_format"),
        ({"query": "Q?"}, QUERIES, "'query' is a str; it must be a Query"),
        ({"question": ""}, QUERIES, "do not name a question"),
        ({}, [], "has no questions to draw from"),
    ],
)
def test_what_names_no_question_is_refused(options, queries, said):
    with pytest.raises(UsageError, match=said):
        choose(options, queries)
