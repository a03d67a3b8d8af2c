"""Reports of judged runs, with everything that they can show."""

import asyncio
import io
import json
import os

import pytest
from rich.console import Console

from rubricem_agent.evals.report import SUBSTITUTE_NOTE, print_summary, render_page, summarize
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_agent.wiring.stored_runs import rescore_run
from rubricem_env.domain.errors import UsageError
from rubricem_records.evaluations.scores import read_scores


def run(config):
    return asyncio.run(run_evaluation(plan_run(config))).scores


@pytest.fixture
def summary(make_config, judge_url, tmp_path):
    judges = (f"openai:one@{judge_url}", f"openai:other@{judge_url}")
    runs = [run(make_config("simpleqa", judges=judges, epochs=2, out=tmp_path / "simpleqa"))]
    for name in ("healthbench", "deepsearchqa"):
        runs.append(run(make_config(name, out=tmp_path / name)))
    return summarize(runs)


def as_text(summary) -> str:
    console = Console(file=io.StringIO(), width=220)
    print_summary(summary, console)
    return console.file.getvalue()


def test_the_scores_of_a_folder_that_is_no_run_are_refused_as_no_run(tmp_path):
    with pytest.raises(UsageError, match=r"typo is no run: .* Give the --out folder of a run\."):
        read_scores(tmp_path / "typo")


@pytest.mark.parametrize("render", [render_page, as_text])
def test_a_report_shows_score_agreement_variance_axes_and_published_rows(summary, render):
    shown = render(summary)

    for expected in ("50.0", "kappa", "between examples", "RubricEM-8B (RL, 1400 steps)", "53.0", "this run: file:"):
        assert expected in shown
    assert "completeness" in shown


@pytest.mark.parametrize("render", [render_page, as_text])
def test_a_substituted_judge_is_marked_and_explained(summary, render):
    shown = render(summary)

    assert "official*" in shown
    assert SUBSTITUTE_NOTE.removesuffix("'s own: not an official number")[:30] in shown


def test_the_page_prints_the_texts_of_the_official_scorer(summary):
    # Three of eight fully correct: 37.50 with a Wald half-width of 1.96 * sqrt(.375 * .625 / 8) = 33.55.
    assert "37.50 ± 33.55 (3/8)" in render_page(summary)


def test_epochs_take_the_clustered_interval_and_no_wilson_one(summary):
    assert summary.runs[0].headline.wilson is None
    assert summary.runs[2].headline.wilson is not None


def test_a_paid_policy_is_estimated_at_its_upper_bound(make_config, tmp_path):
    planned = plan_run(make_config("simpleqa", policy="gemini:gemini-2.5-flash"))

    answers, verdicts = planned.estimate()

    # 8 episodes of 11 turns; 18,432 tokens written each at $2.50 a million are $0.37 alone.
    assert answers.usage.calls == 88
    assert answers.usage.output_tokens == 8 * 18_432
    assert answers.dollars > 0.36
    assert verdicts.usage.calls == 8
    assert not verdicts.is_priced


@pytest.mark.parametrize(("name", "mode"), [("twowiki", "drtulu"), ("webwalkerqa", "official")])
def test_dr_tulus_files_are_read_as_well(make_config, tmp_path, name, mode):
    path = tmp_path / "lines.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": f"question {number}?"}], "ground_truth": truth}
        for number, truth in enumerate(("Ans A", '["Ans A", "Ans B"]'))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    answers = tmp_path / "two.jsonl"
    answers.write_text('{"id": 0, "answer": "Ans A"}\n{"id": 1, "answer": "Ans B"}\n')

    scores = run(make_config(name, mode, data=str(path), policy=f"file:{answers}"))

    # 2Wiki: the judge says yes where it sees Ans B among the golds. WebWalker: question 0 is right.
    assert scores.headline.score == 0.5


def test_a_folder_without_the_official_prompts_ends_before_the_first_call(make_config, tmp_path, judge_app):
    with pytest.raises(UsageError, match=r"has no simpleqa_eval\.py, where the official prompt"):
        plan_run(make_config("simpleqa", prompts=str(tmp_path)))

    assert judge_app.asked == []


@pytest.mark.skipif("RUBRICEM_OFFICIAL_PROMPTS" not in os.environ, reason="names no folder of official checkouts")
@pytest.mark.parametrize("name", ["simpleqa", "healthbench", "researchqa", "drb", "researchrubrics", "webwalkerqa"])
def test_a_run_with_official_prompts_says_so_and_is_scored_again_with_them(name, make_config, judge_app, tmp_path):
    scores = run(make_config(name, prompts=os.environ["RUBRICEM_OFFICIAL_PROMPTS"]))

    assert judge_app.asked
    assert scores.manifest.label == "official*"
    assert rescore_run(tmp_path / "run").judges == scores.judges
