"""The calls of a step and the money of a run: the judge of rollouts, the judge of reflections, the searches, the GPUs."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rubricem_agent.config.judge import RULES, parse_judge
from rubricem_env.judge.llm_reflections import MAX_CANDIDATE_CHARS
from rubricem_env.judge.reflecting import ReflectionMode
from rubricem_env.judge.render import CONTRAST_BUDGET, SCORING_BUDGET, RenderBudget
from rubricem_env.llm.prices import PRICES, Price, price_of
from trainers.verl_backend.planning.assumptions import Assumptions
from trainers.verl_backend.planning.run_shape import RunShape

_BYTES = 4
"""Characters of a token, as everywhere in this project where no tokenizer counts."""
_PROPOSE_PROMPT, _SCORE_PROMPT, _REFLECT_PROMPT = 1_200, 700, 700
"""Instructions and question."""
_PROPOSAL_TOKENS, _MARK_TOKENS, _RUBRIC_TOKENS = 1_200, 60, 60
_SEARCH_TOKENS = 1_000
"""Of the model behind a grounded search: question and answer."""


class CallKind(NamedTuple):
    """One kind of call, as often as an average step makes it."""

    what: str
    calls: float
    input_tokens: float
    """Of one call."""
    output_tokens: float
    price: Price | None
    fee: float = 0.0
    """Dollars of a call beside its tokens."""
    is_free: bool = False

    @property
    def dollars(self) -> float | None:
        """Of a step; None where the model is in no price table."""
        if self.is_free or not self.calls:
            return 0.0
        if self.price is None:
            return None
        one = self.price.cost(round(self.input_tokens), 0, output_tokens=round(self.output_tokens))
        return self.calls * (one + self.fee)


class CostPlan(NamedTuple):
    """What a run calls and costs."""

    kinds: tuple[CallKind, ...]
    steps: int
    gpu_dollars: float
    """Of the run."""

    @property
    def step_dollars(self) -> float | None:
        return add_known(kind.dollars for kind in self.kinds)

    @property
    def run_dollars(self) -> float | None:
        """With the GPUs."""
        step = self.step_dollars
        return None if step is None else step * self.steps + self.gpu_dollars


def add_known(amounts: Iterable[float | None]) -> float | None:
    """The sum, or None where one of them is not known."""
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def plan_cost(shape: RunShape, assumed: Assumptions, *, hours: float, prices: Mapping[str, Price] = PRICES) -> CostPlan:
    """List prices; retries are in the calls. In the almanac nothing is called and nothing costs."""
    kinds = (
        ()
        if shape.settings.almanac is not None
        else (*_judging(shape, assumed, prices), *_searching(shape, assumed, prices))
    )
    return CostPlan(kinds, shape.steps, hours * shape.gpus * assumed.gpu_hour_dollars)


def _judging(shape: RunShape, assumed: Assumptions, prices: Mapping[str, Price]) -> tuple[CallKind, ...]:
    settings = shape.settings
    judges = [parse_judge(name) for name in (settings.judge.judge, *settings.judge.also)]
    again = 1 + assumed.retries
    scoring = _shown_tokens(assumed, SCORING_BUDGET) + _SCORE_PROMPT + assumed.rubrics * _RUBRIC_TOKENS
    contrast = shape.group_size * _shown_tokens(assumed, CONTRAST_BUDGET) + _PROPOSE_PROMPT
    kinds = []
    for judge in judges:
        price, free = price_of(judge.model, prices), judge.backend == RULES
        named = f" ({judge.model or judge.backend})"
        kinds.append(
            CallKind(
                f"judge: rubrics{named}",
                shape.questions * again,
                contrast,
                _PROPOSAL_TOKENS + assumed.thought_tokens,
                price,
                is_free=free,
            )
        )
        kinds.append(
            CallKind(
                f"judge: scores{named}",
                shape.attempts * again,
                scoring,
                assumed.rubrics * _MARK_TOKENS + assumed.thought_tokens,
                price,
                is_free=free,
            )
        )
        if settings.meta_policy:
            kinds.append(_reflecting(shape, assumed, price)._replace(what=f"judge: reflections{named}", is_free=free))
    return tuple(kinds)


def _reflecting(shape: RunShape, assumed: Assumptions, price: Price | None) -> CallKind:
    """New questions alone are reflected on, which is every other window of steps."""
    reflection = shape.settings.reflection
    listed = reflection.num_candidates if reflection.mode is ReflectionMode.LISTWISE else 1
    candidate = min(assumed.reflection_tokens, MAX_CANDIDATE_CHARS / _BYTES)
    return CallKind(
        "",
        shape.questions / 2 * (reflection.num_candidates / listed) * (1 + assumed.retries),
        _shown_tokens(assumed, SCORING_BUDGET) + _REFLECT_PROMPT + listed * candidate,
        listed * 3 * _MARK_TOKENS + assumed.thought_tokens,
        price,
    )


def _searching(shape: RunShape, assumed: Assumptions, prices: Mapping[str, Price]) -> tuple[CallKind, ...]:
    tools = shape.settings.tools
    asked = shape.attempts * assumed.searches * (1 - assumed.cached)
    # A tool server elsewhere pays its engines all the same.
    free = tools.replay is not None or (tools.backend == "offline" and tools.remote is None)
    google = tools.google_search
    by_model = google.engine == "gemini"
    usual_fee = 0.014 if by_model else 0.001
    price = (
        price_of(google.model, prices)
        if by_model
        else Price(input=0, output=0, as_of=min(p.as_of for p in PRICES.values()))
    )
    return (
        CallKind(
            f"google_search ({google.model if by_model else google.engine})",
            asked * assumed.google_share,
            100 if by_model else 0,
            _SEARCH_TOKENS if by_model else 0,
            price,
            usual_fee if google.fee is None else google.fee,
            is_free=free,
        ),
        CallKind("snippet_search", asked * (1 - assumed.google_share), 0, 0, None, is_free=True),
    )


def _shown_tokens(assumed: Assumptions, budget: RenderBudget) -> float:
    """Of an attempt as a judge sees it: what the policy wrote, and tool text as far as the budget lets it through."""
    seen = assumed.searches * min(assumed.observed_tokens, budget.tool_chars / _BYTES)
    return min(assumed.written_tokens + seen, 4 * budget.stage_chars / _BYTES)
