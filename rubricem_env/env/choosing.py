"""Which question an episode is about: the one that `reset` names, or one drawn from the environment's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.query import AnswerFormat, Query

_KNOWN = ("query", "question", "answer_format")


def choose_query(options: Mapping[str, Any], queries: Sequence[Query], rng: np.random.Generator) -> Query:
    """The query of the options, or a drawn one.

    Raises:
        UsageError: an option is unknown, the question is empty, the format is not one, or there is nothing to draw from.
    """
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise UsageError(f"reset() got the option {unknown[0]!r}; it knows {', '.join(_KNOWN)}.")
    if "query" in options:
        return _checked_query(options["query"])
    if "question" in options:
        return _named_query(options["question"], options.get("answer_format", AnswerFormat.LONG))
    if not queries:
        raise UsageError(
            'the environment has no questions to draw from; pass queries=..., or reset(options={"question": "..."}).'
        )
    return queries[int(rng.integers(len(queries)))]


def _checked_query(query: object) -> Query:
    if not isinstance(query, Query):
        raise UsageError(
            f"reset()'s option 'query' is a {type(query).__name__}; it is a Query. For plain text use 'question'."
        )
    return query


def _named_query(question: object, answer_format: object) -> Query:
    if not isinstance(question, str) or not question.strip():
        raise UsageError(
            f"reset()'s option 'question' is {question!r}; it is a text with at least one visible character."
        )
    formats = [known.value for known in AnswerFormat]
    if answer_format not in formats:
        raise UsageError(f"reset()'s option 'answer_format' is {answer_format!r}; it is one of {', '.join(formats)}.")
    return Query(question=question, answer_format=AnswerFormat(answer_format))
