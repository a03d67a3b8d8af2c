"""A dry run: every question to the judge is made up and counted, none is asked."""

from collections.abc import Sequence
from typing import NamedTuple

from rubricem_agent.evals.extraction import Extracted, Found
from rubricem_agent.evals.grading.grade import Case
from rubricem_agent.evals.grading.question import Asked, Question
from rubricem_agent.evals.grading.replay import replay
from rubricem_agent.evals.loading import Loaded
from rubricem_agent.evals.run.money import dollars_of
from rubricem_env.domain.query import AnswerFormat
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.llm.metered import CHARS_PER_TOKEN
from rubricem_env.llm.prices import price_of
from rubricem_env.llm.usage import Usage

ANSWER_CHARACTERS = {AnswerFormat.EXACT: 40, AnswerFormat.SHORT: 1_800, AnswerFormat.LONG: 9_000}
"""What answers of each form usually have; the judge reads them."""
REPLY_TOKENS = 300
"""What a judge usually writes for one verdict; a RACE comparison or a cleaned article is far longer."""
LONG_REPLY_TOKENS = 4_000
_LONG = frozenset({"clean", "race"})


class Estimate(NamedTuple):
    """Calls and money of one stage. The dollars are None where the model has no price."""

    what: str
    model: str
    usage: Usage
    dollars: float | None


def rehearse(
    loaded: Loaded, ids: Sequence[str], *, epochs: int, policy: str | None, judges: Sequence[str]
) -> list[Estimate]:
    """The calls of a run: exact for a judge that is always readable, but that FACT is counted without its pages.

    No policy is one that costs nothing: a script, or answers from a file.
    """
    asked = sum((_asked_about(loaded, example_id) for example_id in ids), Usage())
    estimates = [_policy(len(ids) * epochs, policy)] if policy else []
    estimates += [_priced("verdicts", judge, usage=_times(asked, epochs)) for judge in judges]
    return estimates


def _policy(episodes: int, policy: str) -> Estimate:
    """At most: every episode uses all its calls and all its tokens."""
    limits = EpisodeLimits()
    turns = limits.max_calls + 1
    # Each turn reads the conversation so far again, half of the whole on average.
    read = turns * limits.max_tokens // 2
    whole = Usage(calls=turns, input_tokens=read, output_tokens=limits.max_tokens)
    return _priced("answers, at most", policy, usage=_times(whole, episodes))


def _asked_about(loaded: Loaded, example_id: str) -> Usage:
    length = ANSWER_CHARACTERS[loaded.format_of(example_id)]
    answer = Extracted("x" * length, Found.GIVEN)
    counted: list[Question] = []

    def note(question: Question) -> tuple[str, ...]:
        counted.append(question)
        return ("x" * length,) * question.tries

    replay(loaded.grader.grade(Case(loaded.example(example_id), loaded.gold[example_id], answer)), note)
    asked = [question for question in counted if question.asked is Asked.JUDGE]
    return Usage(
        calls=len(asked),
        input_tokens=sum((len(one.prompt) + len(one.system)) // CHARS_PER_TOKEN for one in asked),
        output_tokens=sum(LONG_REPLY_TOKENS if one.key in _LONG else REPLY_TOKENS for one in asked),
    )


def _times(usage: Usage, times: int) -> Usage:
    return Usage(
        calls=usage.calls * times,
        input_tokens=usage.input_tokens * times,
        output_tokens=usage.output_tokens * times,
    )


def _priced(what: str, model: str, *, usage: Usage) -> Estimate:
    is_free = not usage.calls
    return Estimate(what, model, usage, dollars_of(model, usage) if is_free or price_of(model) else None)
