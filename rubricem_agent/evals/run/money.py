"""What a run has cost, by stage and by model."""

from collections.abc import Iterable, Sequence

from rubricem_agent.evals.run.records import AnswerRecord, VerdictRecord
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.llm.prices import price_of
from rubricem_env.llm.usage import Usage

NO_PRICE = "no price known"
_IN_PROCESS = ("scripted", "expert")


class Cost(Frozen):
    """Of one model in one stage."""

    stage: Text
    model: Text
    usage: Usage
    dollars: float
    is_priced: bool
    """Whether the price table knows the model; otherwise the dollars are not all."""


def has_price(model: str) -> bool:
    """Whether it is known what the model charges: by the price table, or because it runs in this process."""
    return price_of(model) is not None or model in _IN_PROCESS or model.startswith("local:")


def dollars_of(model: str, usage: Usage) -> float:
    """By list price; 0 where the model has none."""
    price = price_of(model)
    return price.cost(usage.input_tokens, usage.cached_tokens, usage.output_tokens) if price else 0.0


def costs_of(answers: Iterable[AnswerRecord], verdicts: Iterable[VerdictRecord]) -> tuple[Cost, ...]:
    """Sums over the log, stages in the order of the run."""
    sums: dict[tuple[str, str], Usage] = {}
    for stage, records in (("answers", answers), ("verdicts", verdicts)):
        for record in records:
            if record.usage.calls:
                known = sums.get((stage, record.model), Usage())
                sums[stage, record.model] = known + record.usage
    return tuple(
        Cost(
            stage=stage,
            model=model,
            usage=usage,
            dollars=dollars_of(model, usage),
            is_priced=has_price(model) or not usage.tokens,
        )
        for (stage, model), usage in sums.items()
    )


def cost_text(costs: Sequence[Cost]) -> str:
    """Dollars as they are shown. What models without a price have cost is not in them, and said to be missing."""
    dollars = sum(cost.dollars for cost in costs)
    if all(cost.is_priced for cost in costs):
        return f"${dollars:.2f}"
    return f"at least ${dollars:.2f}" if dollars else NO_PRICE
