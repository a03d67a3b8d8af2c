"""What an evaluation has cost, summed over its logs by stage and model."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rubricem_env.llm.prices import PRICES, Price, price_of
from rubricem_env.llm.usage import Usage
from rubricem_records.evaluations.logs import AnswerRecord, VerdictRecord
from rubricem_records.evaluations.scores import ModelCost

NO_PRICE = "no price known"

_IN_PROCESS = ("scripted", "expert", "local:")


def dollars_of(usage: Usage, *names: str, prices: Mapping[str, Price] = PRICES) -> float | None:
    """The cost at the price of the first of a model's names that has one; None where it is unknown."""
    price = next(filter(None, (price_of(name, prices) for name in names)), None)
    if price is not None:
        return price.cost(usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    return 0.0 if not usage.tokens or any(name.startswith(_IN_PROCESS) for name in names) else None


def costs_of(answers: Iterable[AnswerRecord], verdicts: Iterable[VerdictRecord]) -> tuple[ModelCost, ...]:
    """Sums over the log, stages in the order of the run."""
    usages: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    dollars: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)
    for stage, records in (("answers", answers), ("verdicts", verdicts)):
        for record in records:
            if record.usage.calls:
                usages[stage, record.model] += record.usage
                dollars[stage, record.model].append(record.dollars)
    return tuple(
        ModelCost(
            stage=stage,
            model=model,
            usage=usage,
            dollars=sum(filter(None, dollars[stage, model])),
            is_priced=None not in dollars[stage, model],
        )
        for (stage, model), usage in usages.items()
    )


def cost_cells(cost: ModelCost) -> tuple[str, ...]:
    """Calls, tokens read, tokens written and dollars, as a table shows them."""
    counts = (cost.usage.calls, cost.usage.input_tokens, cost.usage.output_tokens)
    return (*map("{:,}".format, counts), f"{cost.dollars:.2f}" if cost.is_priced else NO_PRICE)


def cost_text(costs: Sequence[ModelCost]) -> str:
    """Dollars as text; "at least" where the cost of models without a price is missing."""
    dollars = sum(cost.dollars for cost in costs)
    if all(cost.is_priced for cost in costs):
        return f"${dollars:.2f}"
    return f"at least ${dollars:.2f}" if dollars else NO_PRICE
