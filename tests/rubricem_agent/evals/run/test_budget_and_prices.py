"""A budget asks for the price of a model that the list lacks; an unknown cost is never shown as nothing."""

import asyncio
import io
import json

import pytest
from rich.console import Console

from rubricem_agent.evals.costs import cost_text
from rubricem_agent.evals.report import print_summary, render_page, summarize
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_agent.wiring.prices import list_prices
from rubricem_agent.wiring.stored_runs import rescore_run
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.prices import PRICES, price_of
from rubricem_env.llm.usage import Usage
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer
from rubricem_records.evaluations.scores import ModelCost

USED = Usage(calls=1, input_tokens=10, output_tokens=10)


def cost(dollars: float, *, is_priced: bool) -> ModelCost:
    return ModelCost(stage="verdicts", model="m", usage=USED, dollars=dollars, is_priced=is_priced)


def test_a_budget_asks_for_the_price_of_every_model_that_has_none(make_config, judge_url):
    judges = (f"openai:gpt-4.1@{judge_url}", f"openai:own@{judge_url}")

    with pytest.raises(ConfigError, match=r"--budget is 0\.01 dollars, and the price of own is unknown") as refusal:
        plan_run(make_config("simpleqa", judges=judges, budget=0.01))

    assert "--price own=2,12" in str(refusal.value)


def test_the_official_judge_of_webwalkerqa_has_a_price_in_the_library_alone(make_config):
    config = make_config("webwalkerqa", judges=(), budget=5.0)
    if price_of("gpt-4", list_prices()) is None:
        with pytest.raises(ConfigError, match="the price of gpt-4 is unknown"):
            plan_run(config)
    else:
        # OpenAI's page: $30 and $60.
        assert str(price_of("gpt-4", plan_run(config).prices)).startswith("$30 read, $60 written")
    assert price_of("gpt-4", PRICES) is None


@pytest.mark.parametrize("model", ["judge-of-tests", ""])
def test_a_given_price_stops_the_run_and_stands_in_the_log(run, make_config, model):
    priced = {"prices": {model: (1.0, 8.0)}}

    stopped = run(make_config("simpleqa", budget=0.017, **priced))

    # A call reserves 232 tokens at $1 and 2048 at $8 a million, $0.016616, and uses 173 of the first. Each waits for
    # the one before it: a third begins with $0.000346 used, a fourth would with $0.000519, and $0.000384 are left.
    assert "0.000519 are used; the limit is 0.017" in stopped.runner.stopped
    assert stopped.scores.headline.graded == 3
    done = run(make_config("simpleqa", budget=5.0, **priced)).scores
    # The answers are from a file.
    (cost,) = done.costs
    assert cost.is_priced
    assert cost.dollars == pytest.approx((cost.usage.input_tokens + 8.0 * cost.usage.output_tokens) / 1e6)
    assert rescore_run(make_config("simpleqa").folder).costs == done.costs


def test_what_each_answer_cost_stands_in_its_line_of_the_log(run, tmp_path):
    app = ModelServer(lambda asked: "<think>so</think><answer>60 m</answer>")
    with serve_loopback(app) as url:
        config = EvalConfig(
            benchmark="almanac", policy=f"openai:p@{url}/v1", limit=2, out=tmp_path, prices={"p": (1.0, 8.0)}
        )
        finished = run(config)

    lines = [json.loads(line) for line in (config.folder / "answers.jsonl").read_text().splitlines()]
    # Dollars for a million tokens read and written.
    paid = [1e-6 * line["usage"]["input_tokens"] + 8e-6 * line["usage"]["output_tokens"] for line in lines]
    assert [line["dollars"] for line in lines] == pytest.approx(paid)
    assert min(paid) > 0
    (cost,) = (cost for cost in finished.scores.costs if cost.stage == "answers")
    assert (cost.dollars, cost.is_priced) == (pytest.approx(sum(paid)), True)


def test_a_server_of_ones_own_is_shown_to_cost_nothing(run, make_config):
    scores = run(make_config("simpleqa", limit=1, budget=1.0, prices={"judge-of-tests": (0.0, 0.0)})).scores

    assert cost_text(scores.costs) == "$0.00"


def test_models_that_are_not_asked_in_this_stage_need_no_price(make_config):
    assert plan_run(make_config("simpleqa", budget=1.0, stage="answers")).notes() == []


@pytest.mark.parametrize(
    ("costs", "shown"),
    [
        ((), "$0.00"),
        ((cost(0.5, is_priced=True),), "$0.50"),
        ((cost(0.0, is_priced=False),), "no price known"),
        ((cost(0.5, is_priced=True), cost(0.0, is_priced=False)), "at least $0.50"),
    ],
)
def test_what_is_not_known_is_not_shown_as_nothing(costs, shown):
    assert cost_text(costs) == shown


def as_text(summary) -> str:
    console = Console(file=io.StringIO(), width=260)
    print_summary(summary, console)
    return console.file.getvalue()


@pytest.mark.parametrize("render", [render_page, as_text])
def test_a_judge_without_a_price_costs_no_zero_dollars(make_config, render):
    scores = asyncio.run(run_evaluation(plan_run(make_config("simpleqa", limit=1)))).scores

    shown = render(summarize([scores]))

    assert "no price known" in shown
    assert "$0.00" not in shown


def test_a_script_in_this_process_is_known_to_cost_nothing(make_config):
    scores = asyncio.run(run_evaluation(plan_run(make_config("twowiki", policy="scripted", limit=1)))).scores

    assert cost_text(scores.costs) == "$0.00"
