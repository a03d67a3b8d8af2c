"""A budget holds models whose price is known, and says so of the others; their cost is never shown as nothing."""

import asyncio
import io

import pytest
from rich.console import Console

from rubricem_agent.build.eval_plan import plan_run
from rubricem_agent.build.evals import run_evaluation
from rubricem_agent.evals.records import ModelCost, cost_text
from rubricem_agent.evals.report import print_summary, render_page, summarize
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.usage import Usage

USED = Usage(calls=1, input_tokens=10, output_tokens=10)


def cost(dollars: float, *, is_priced: bool) -> ModelCost:
    return ModelCost(stage="verdicts", model="m", usage=USED, dollars=dollars, is_priced=is_priced)


def test_a_budget_that_no_model_would_meet_is_refused(make_config):
    with pytest.raises(ConfigError, match=r"--budget is 0\.01 dollars, and the price of judge-of-tests is unknown"):
        plan_run(make_config("simpleqa", budget=0.01))


def test_the_official_judge_of_webwalkerqa_has_no_price_either(make_config):
    with pytest.raises(ConfigError, match="the price of gpt-4 is unknown: it would never stop this run"):
        plan_run(make_config("webwalkerqa", judges=(), budget=5.0))


def test_a_budget_that_holds_one_of_two_models_says_which(make_config, judge_url):
    judges = (f"openai:gpt-4.1@{judge_url}", f"openai:own@{judge_url}")

    (note,) = plan_run(make_config("simpleqa", judges=judges, budget=1.0)).notes()

    assert note == "no price is known of own: --budget counts the calls of gpt-4.1 alone."


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
