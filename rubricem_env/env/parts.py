"""What a user hands to an environment: the default where it is left out, a sentence where it is something else."""

from collections.abc import Callable, Iterable

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.query import Query
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.env.offline import offline_queries, shipped_toolbox
from rubricem_env.tools.base import Toolbox

Prompt = Callable[[Query], str]


def read_queries(given: object) -> tuple[Query, ...]:
    """The questions to draw from; those of the shipped world for None.

    Raises:
        UsageError: it is no sequence of queries.
    """
    if given is None:
        return offline_queries()
    if isinstance(given, str | Query) or not isinstance(given, Iterable):
        raise UsageError(f"queries is {_named(given)}; it is a sequence, such as [Query(question='...')].")
    queries = tuple(given)
    for place, query in enumerate(queries):
        if not isinstance(query, Query):
            raise UsageError(f"queries[{place}] is {_named(query)}; each is a Query. Write Query(question='...').")
    return queries


def read_toolbox(given: object) -> Toolbox:
    """The tools; those over the shipped corpus for None.

    Raises:
        UsageError: it cannot be called as tools are.
    """
    if given is None:
        return shipped_toolbox()
    if not isinstance(given, Toolbox):
        raise UsageError(
            f"toolbox is {_named(given)}; a toolbox has `names` and `async call(ToolCall) -> ToolResult`. "
            "Put single tools into one with LocalToolbox(tool, ...)."
        )
    return given


def read_limits(given: object) -> EpisodeLimits:
    """The budgets; the paper's for None.

    Raises:
        UsageError: it is something else than `EpisodeLimits`.
    """
    if given is None:
        return EpisodeLimits()
    if not isinstance(given, EpisodeLimits):
        raise UsageError(f"limits is {_named(given)}; it is EpisodeLimits. Write EpisodeLimits(max_calls=...).")
    return given


def read_prompt(given: object) -> Prompt:
    """The function from a query to what `reset` returns, whose result is looked at each time.

    Raises:
        UsageError: it is no function; or later, it returns no text.
    """
    if not callable(given):
        raise UsageError(f"prompt is {_named(given)}; it is a function, such as lambda query: query.question.")

    def prompt(query: Query) -> str:
        text = given(query)
        if not isinstance(text, str):
            raise UsageError(f"prompt returned {_named(text)} for a query; it returns the text that reset() gives.")
        return text

    return prompt


def _named(value: object) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return "None" if value is None else f"{article} {kind}"
