"""Chooses the question of an episode from `reset`'s options."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.trajectory import Query

_KNOWN = ("query", "question", "answer_format")


def choose_query(options: Mapping[str, Any], queries: Sequence[Query], rng: np.random.Generator) -> Query:
    """The query of `reset`'s options, else one drawn from `queries`.

    Raises:
        UsageError: an option is unknown or invalid, or there is nothing to draw from.
    """
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise UsageError(f"reset() got the option {unknown[0]!r}; it knows {', '.join(_KNOWN)}.")
    if "query" in options:
        query = options["query"]
        if not isinstance(query, Query):
            raise UsageError(
                f"reset()'s option 'query' is a {type(query).__name__}; it must be a Query. "
                "For plain text use 'question'."
            )
        return query
    if "question" in options:
        with validating("reset()'s options do not name a question", error=UsageError):
            named = {name: options[name] for name in ("question", "answer_format") if name in options}
            return Query.model_validate(named, strict=False)
    if not queries:
        raise UsageError(
            'the environment has no questions to draw from; pass queries=..., or reset(options={"question": "..."}).'
        )
    return queries[int(rng.integers(len(queries)))]
