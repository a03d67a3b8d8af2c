"""What a step needs of the judge's quota at its largest, and whether the rates of the config allow it."""

from typing import NamedTuple

from rubricem_agent.model_names import OWN_JUDGES, parse_judge
from rubricem_env.llm.limits.limiter import Rates

from .estimate import estimate_step, estimate_times, is_own, judge_calls
from .run_shape import Assumptions, ModelShape, RunShape


class JudgeNeed(NamedTuple):
    """Calls and tokens of a step at its largest, to judges that are services."""

    calls: float
    input_tokens: float
    output_tokens: float

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def seconds(self, rates: Rates) -> float:
        """What the rates make of it; 0 where they allow everything."""
        amounts = (
            (self.calls, rates.requests_per_minute),
            (self.tokens, rates.tokens_per_minute),
            (self.input_tokens, rates.input_tokens_per_minute),
            (self.output_tokens, rates.output_tokens_per_minute),
        )
        return max(60 * amount / limit if limit else 0.0 for amount, limit in amounts)


def judge_need(shape: RunShape, assumed: Assumptions) -> JudgeNeed:
    """The need of a step in which every question is reflected on and attempts are as long as the longest measured."""
    config, largest = shape.settings.judge, assumed.in_the_largest_step
    services = [name for name in (config.judge, *config.also) if _is_service(name)]
    if shape.settings.almanac is not None or not services:
        return JudgeNeed(0.0, 0.0, 0.0)
    kinds = [
        kind._replace(calls=kind.calls * (shape.questions / shape.reflected if "reflections" in kind.what else 1.0))
        for kind in judge_calls(shape, largest)
        if any(f"({parse_judge(name).model})" in kind.what for name in services)
    ]
    return JudgeNeed(
        sum(kind.calls for kind in kinds),
        sum(kind.calls * kind.input_tokens for kind in kinds),
        sum(kind.calls * kind.output_tokens for kind in kinds),
    )


def judge_bottleneck(shape: RunShape, model: ModelShape, assumed: Assumptions) -> str:
    """What is wrong with the rates of a judge that is a service; "" where they suffice."""
    need, rates = judge_need(shape, assumed), shape.settings.judge.rates
    said = f"a step sends the judge up to {need.tokens / 1e6:.1f} million tokens in {need.calls:.0f} calls"
    limits = (rates.tokens_per_minute, rates.input_tokens_per_minute, rates.output_tokens_per_minute)
    if not need.calls:
        return ""
    if not any(limits):
        return (
            f"{said}, and rubricem.judge.rates names no quota: the service refuses what is above it, and refusals are "
            "waited for. Set rubricem.judge.rates.tokens_per_minute to your key's."
        )
    step = sum(estimate_step(estimate_times(shape, model, assumed, layout=shape.layout), shape).values())
    seconds = need.seconds(rates)
    if seconds <= step:
        return ""
    return (
        f"{said}, which take {seconds:.0f} s at rubricem.judge.rates; otherwise a step takes {step:.0f} s. "
        "Raise the rates as far as your key allows, or take fewer questions a step."
    )


def _is_service(name: str) -> bool:
    judge = parse_judge(name)
    return judge.backend not in OWN_JUDGES and not is_own(judge.url)
