"""What a generation run will cost, before anything is sent: calls, tokens and money, expected and at most."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubricem_agent.data.asking import TeacherPrompts, asked
from rubricem_agent.data.turns import TeacherTask
from rubricem_env.domain.base import Frozen
from rubricem_env.env.episode import estimate_tokens
from rubricem_env.llm.prices import PRICES, Price, price_of


class Assumptions(Frozen):
    """What is assumed of a trace; measure a few and correct them."""

    rounds: int = 5
    """The answer's round included."""
    turn_tokens: int = 900
    """Written in a round, hidden thoughts included: they are billed."""
    observation_tokens: int = 1_200


class Cost(NamedTuple):
    """One end of the estimate."""

    calls: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    """None where the model is in no price table."""


class Estimate(NamedTuple):
    """What to expect, and what it can come to if every trace takes all its rounds and fills each reply."""

    questions: int
    expected: Cost
    at_most: Cost


def estimate(
    tasks: Sequence[TeacherTask],
    prompts: TeacherPrompts,
    *,
    model: str,
    assumptions: Assumptions | None = None,
    prices: Mapping[str, Price] = PRICES,
) -> Estimate:
    """The cost of a trace for each task. List prices: a batch tariff or cached input makes it less, retries more."""
    assumed = assumptions or Assumptions()
    rounds = min(assumed.rounds, prompts.max_rounds)
    return Estimate(
        len(tasks),
        _cost(tasks, prompts, rounds=rounds, turn=assumed.turn_tokens, seen=assumed, price=price_of(model, prices)),
        _cost(
            tasks,
            prompts,
            rounds=prompts.max_rounds,
            turn=prompts.max_output_tokens,
            seen=assumed,
            price=price_of(model, prices),
        ),
    )


def _cost(
    tasks: Sequence[TeacherTask],
    prompts: TeacherPrompts,
    *,
    rounds: int,
    turn: int,
    seen: Assumptions,
    price: Price | None,
) -> Cost:
    """Each round reads the prompt, the question, and everything before it."""
    questions = sum(estimate_tokens(asked(task.query)) for task in tasks)
    read = estimate_tokens(prompts.first.text) + (rounds - 1) * estimate_tokens(prompts.later.text)
    history = (turn + seen.observation_tokens) * rounds * (rounds - 1) // 2
    input_tokens = rounds * questions + len(tasks) * (read + history)
    output_tokens = len(tasks) * rounds * turn
    dollars = None if price is None else price.cost(input_tokens, 0, output_tokens)
    return Cost(len(tasks) * rounds, input_tokens, output_tokens, dollars)
