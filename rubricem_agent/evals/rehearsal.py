"""The calls and the cost of a run, counted without asking a model."""

from collections.abc import Mapping, Sequence

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.costs import dollars_of
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case, GradingQuestion, replay
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.metered import CHARS_PER_TOKEN
from rubricem_env.llm.prices import PRICES, Price
from rubricem_env.llm.usage import Usage
from rubricem_records.evaluations.scores import ModelCost

ANSWER_CHARACTERS = {AnswerFormat.EXACT: 40, AnswerFormat.SHORT: 1_800, AnswerFormat.LONG: 9_000}
"""What answers of each form usually have; the judge reads them."""


REPLY_TOKENS = 300
"""What a judge usually writes for one verdict; a RACE comparison or a cleaned article is far longer."""


LONG_REPLY_TOKENS = 4_000


_LONG = frozenset({"clean", "race"})


def rehearse(
    loaded: Loaded,
    ids: Sequence[str],
    *,
    epochs: int,
    policy: str | None,
    judges: Sequence[str],
    prices: Mapping[str, Price] = PRICES,
    limits: EpisodeLimits | None = None,
    context: ContextLimits | None = None,
) -> list[ModelCost]:
    """The calls and the cost of a run, stage by stage; without `policy` the answers cost nothing.

    Exact for a judge whose replies are always readable, except that FACT is counted without its pages. The policy's
    part is an upper limit: every episode uses all its calls and all its tokens.
    """
    judge_usage = sum((_judge_usage(loaded, example_id) for example_id in ids), Usage())
    costs = [_cost("verdicts", judge, sum([judge_usage] * epochs, Usage()), prices=prices) for judge in judges]
    if policy:
        limits, context = limits or EpisodeLimits(), context or ContextLimits()
        turns = limits.max_calls + 1
        # Each turn reads the conversation so far again, half of the whole on average, and no more than is unfolded.
        each = limits.max_tokens // 2
        read = turns * (each if context.fold_at is None else min(each, context.fold_at))
        episode = Usage(calls=turns, input_tokens=read, output_tokens=limits.max_tokens)
        usage = sum([episode] * len(ids) * epochs, Usage())
        costs.insert(0, _cost("answers, at most", policy, usage, prices=prices))
    return costs


def _cost(stage: str, model: str, usage: Usage, *, prices: Mapping[str, Price]) -> ModelCost:
    dollars = dollars_of(usage, model, prices=prices)
    return ModelCost(stage=stage, model=model, usage=usage, dollars=dollars or 0.0, is_priced=dollars is not None)


def _judge_usage(loaded: Loaded, example_id: str) -> Usage:
    length = ANSWER_CHARACTERS[loaded.format_of(example_id)]
    noted: list[GradingQuestion] = []

    def note(question: GradingQuestion) -> tuple[str, ...]:
        noted.append(question)
        return ("x" * length,) * question.tries

    answer = Extracted("x" * length, "given answer")
    replay(loaded.grader.grade(Case(loaded.example(example_id), loaded.gold[example_id], answer)), note)
    questions = [question for question in noted if not question.is_page]
    return Usage(
        calls=len(questions),
        input_tokens=sum((len(question.prompt) + len(question.system)) // CHARS_PER_TOKEN for question in questions),
        output_tokens=sum(LONG_REPLY_TOKENS if question.key in _LONG else REPLY_TOKENS for question in questions),
    )
